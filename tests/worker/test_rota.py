"""The rota on a manual clock: its laws over seeded workloads, and rotas that break one of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fries_nb.worker.rota import DEBT, Rota

QUANTUM = 1_000
SEEDS = range(60)
NAMES = "abcdefgh"


@dataclass
class Served:
    """What a rota did: processor time of each worker while all were busy, and the longest wait of an urgent event."""

    spent: Counter[str] = field(default_factory=Counter)
    turns: list[str] = field(default_factory=list)
    longest: int = 0


def serve(seed: int, turns: int = 400) -> Served:
    """Workers that are always busy, each with slices of its own length; urgent events come now and then."""
    draws = random.Random(seed)
    names = NAMES[: draws.randint(2, len(NAMES))]
    slices = {name: draws.randint(QUANTUM // 10, 4 * QUANTUM) for name in names}
    rota: Rota[str] = Rota(QUANTUM)
    for name in names:
        rota.ready(name)
    served = Served()
    for _ in range(turns):
        if urgent := draws.random() < 0.1:
            wanted = draws.choice(names)
            rota.ready(wanted, urgent=True)
        name = rota.next()
        assert name is not None
        if urgent:
            assert name == wanted, "an urgent event waits for another worker"
        assert not rota.has_urgent
        took = slices[name] - draws.randrange(QUANTUM // 20)
        served.turns.append(name)
        if not urgent:
            served.spent[name] += took
            rota.charge(name, took, busy=True)
        else:
            rota.charge(name, 0, busy=True)
    shortest = min(served.spent[name] for name in names)
    assert max(served.spent.values()) - shortest <= QUANTUM + max(slices.values()), "one worker gets more than another"
    return served


@pytest.mark.parametrize("seed", SEEDS)
def test_busy_workers_share_the_time_and_urgent_events_come_first(seed: int) -> None:
    """Whatever a slice of each costs."""
    serve(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_ready_workers_are_served_and_those_ahead_come_last(seed: int) -> None:
    """Against a model: a set of ready workers, a set of those ahead, a queue of urgent ones."""
    draws = random.Random(seed)
    rota: Rota[str] = Rota(QUANTUM)
    ready: dict[str, bool] = {}
    urgent: list[str] = []
    for _ in range(300):
        name, kind = draws.choice(NAMES), draws.randrange(5)
        if kind < 2:
            ahead = kind == 1
            rota.ready(name, ahead=ahead)
            ready[name] = ahead
        elif kind == 2:
            rota.ready(name, urgent=True)
            ready[name] = False
            urgent += [name] * (name not in urgent)
        elif kind == 3:
            rota.drop(name)
            ready.pop(name, None)
        served = rota.next()
        first = [one for one, ahead in ready.items() if not ahead] or list(ready)
        if urgent:
            assert served == urgent.pop(0)
        else:
            assert served in first or (served is None and not ready)
        if served is not None:
            busy = draws.random() < 0.5
            rota.charge(served, draws.randint(0, 3 * QUANTUM), busy, ready.get(served, False))
            if not busy:
                ready.pop(served, None)
        assert rota.has_others("z") == bool(ready)


def test_a_debt_is_bounded() -> None:
    """One slice of an hour does not keep its worker from its turns for an hour."""
    rota: Rota[str] = Rota(QUANTUM)
    for name in "ab":
        rota.ready(name)
    while rota.next() != "a":
        rota.charge("b", QUANTUM, busy=True)
    rota.charge("a", 10**6 * QUANTUM, busy=True)
    waited = 0
    while rota.next() != "a":
        rota.charge("b", QUANTUM, busy=True)
        waited += 1
    assert waited <= DEBT + 1


def _urgent_last(rota: Rota[str]) -> str | None:
    return (rota._round or rota._ahead or rota._urgent)[0]


def _always_the_first(rota: Rota[str]) -> str | None:
    return rota._urgent.popleft() if rota._urgent else rota._round[0]


def _without_charge(rota: Rota[str], member: str, spent_ns: int, busy: bool, ahead: bool = False) -> None:
    rota._round.rotate(-1)


@pytest.mark.parametrize(
    ("name", "broken"),
    [("next", _urgent_last), ("next", _always_the_first), ("charge", _without_charge)],
    ids=["urgent last", "one worker only", "turns instead of time"],
)
def test_a_broken_rota_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., object]) -> None:
    """By the laws above, within the seeds."""
    monkeypatch.setattr(Rota, name, broken)
    caught = 0
    for seed in SEEDS:
        try:
            serve(seed)
        except AssertionError:
            caught += 1
    assert caught


def test_a_worker_that_only_saves_comes_last_and_gets_its_turns() -> None:
    """One of eight while others are busy, all when they are not; and a tuple makes it one of the others again."""
    rota: Rota[str] = Rota(quantum_ns=10)
    for name in ("busy", "saves"):
        rota.ready(name)
    served = []
    for _ in range(80):
        name = rota.next()
        assert name is not None
        served.append(name)
        rota.charge(name, spent_ns=10, busy=True, saves=name == "saves")
    assert 9 <= served.count("saves") <= 11
    assert rota.is_aside("saves")
    assert not rota.has_others("busy")
    rota.drop("busy")
    assert (rota.next(), rota.has_others("saves")) == ("saves", False)
    rota.ready("saves")
    assert not rota.is_aside("saves")
    rota.drop("saves")
    assert rota.next() is None
