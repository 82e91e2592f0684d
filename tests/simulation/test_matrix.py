"""Every kind of operator under every action, two at a time: rows are those of a sequential reference, whatever happens.

The actions are paired like the players of a tournament. A kind plays one round, in which each action occurs once, and
the next kind plays the next one; so all pairs occur, and with FRIES_SOAK all pairs on all kinds. Each cell is counted:
one that no seed reaches fails its test.
"""

from __future__ import annotations

import pytest
from cold_hosts import most_states_on_disk
from matrix_kinds import KINDS
from matrix_played import ACTIONS, REWIRING, reached, try_cell
from soak import SOAK

TRIES = 12
"""Seeds for what the first one has not reached."""
MOVED = {
    "keyed map", "keyed flat_map", "dedup", "self_join", "self_join of two", "tumbling window", "sliding window",
    "reduce", "loop",
}  # fmt: skip
"""The kinds whose states leave memory; those of the timed function hold tokens."""
CHUNKS = (slice(0, 4), slice(4, 7), slice(7, 10))


def pairs_of(number):
    """The pairs of a round, in which each action occurs once; reversed in each second tour."""
    first, *others = ACTIONS
    turn = number % len(others)
    others = others[turn:] + others[:turn]
    names = [first, *others]
    half = len(names) // 2
    pairs = list(zip(names[:half], reversed(names[half:]), strict=True))
    return [pair[::-1] for pair in pairs] if number // len(others) % 2 else pairs


def test_a_tour_has_all_pairs():
    """Each once."""
    rounds = [pairs_of(number) for number in range(len(ACTIONS) - 1)]
    assert all(sorted(name for pair in pairs for name in pair) == sorted(ACTIONS) for pairs in rounds)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(set(met)) == len(met) == len(ACTIONS) * (len(ACTIONS) - 1) // 2


def is_possible(kind, pair):
    """Whether the second action can begin before the first one has ended."""
    return pair[0] not in KINDS[kind].refuses and not REWIRING.issuperset(pair)


@pytest.mark.parametrize("kind", KINDS)
def test_every_action_on_every_kind(kind):
    """Each is done, or refused in words; and two at once, in pairs."""
    for number in range(SOAK):
        pairs = pairs_of(list(KINDS).index(kind) + number)
        played = [try_cell(kind, pairs[chunk], number * TRIES) for chunk in CHUNKS]
        done = {name for one in played for name in reached(one)}
        met = {pair for one in played for pair in one.pairs}
        missing = {pair for pair in pairs if not done.issuperset(pair) or (pair not in met and is_possible(kind, pair))}
        for pair in sorted(missing):
            _reach(kind, pair, done, pair in met or not is_possible(kind, pair), number)


@pytest.mark.parametrize("kind", KINDS)
def test_every_action_on_every_kind_with_most_states_on_disk(kind, monkeypatch):
    """The same, as states come and go."""
    moved = most_states_on_disk(monkeypatch)
    test_every_action_on_every_kind(kind)
    assert (moved[0] > 0) == (kind in MOVED)


def _reach(kind, pair, done, is_met, number):
    """Play a pair until both of its actions were done, and both were under way."""
    left = set(pair) - done
    for seed in range(number * TRIES + 1, (number + 1) * TRIES):
        played = try_cell(kind, [pair], seed)
        left -= set(reached(played))
        is_met = is_met or pair in played.pairs
        if is_met and not left:
            return
        if left and seed % 2:  # the other action may be what prevents it
            left -= set(reached(try_cell(kind, [(name, "checkpoint") for name in sorted(left)], seed)))
    assert is_met, f"{pair} were not under way at once on {kind}"
    assert not left, f"{sorted(left)} did not succeed on {kind}"
