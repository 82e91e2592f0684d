"""What a change is rehearsed on: few of the recent tuples that workers hand over, of all workers in turn.

>>> chosen({WorkerId("FM", 0): (b"1", b"2"), WorkerId("FM", 1): (b"3",)})
{'FM': (b'1', b'3', b'2')}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

from fries_nb.messages import Rehearsed, WorkerId

MOST_TUPLES = 32
"""Of one operator."""
MOST_BYTES = 1 << 20
"""Of one operator, all tuples together; the first one counts whatever its size."""


def chosen(samples: Mapping[WorkerId, tuple[bytes, ...]]) -> dict[str, tuple[bytes, ...]]:
    """The tuples to rehearse on, by operator: the first one of each worker, then the second ones."""
    by_operator: dict[str, list[tuple[bytes, ...]]] = {}
    for worker in sorted(samples):
        by_operator.setdefault(worker.operator, []).append(samples[worker])
    return {operator: _few(of_workers) for operator, of_workers in by_operator.items()}


def _few(of_workers: list[tuple[bytes, ...]]) -> tuple[bytes, ...]:
    in_turn = [one for one in chain.from_iterable(zip_longest(*of_workers)) if one is not None][:MOST_TUPLES]
    few, total = in_turn[:1], len(in_turn[0])
    for one in in_turn[1:]:
        total += len(one)
        if total <= MOST_BYTES:
            few.append(one)
    return tuple(few)


def in_words(rehearsed: Rehearsed | None, targets: Iterable[str]) -> str:
    """How a change was rehearsed, as a sentence.

    >>> in_words(Rehearsed("u1", WorkerId("FM", 0), tuples=3, tried=frozenset({"FM"}), unreached=frozenset({"J"})), [])
    'rehearsed on 3 recent tuples through FM; of J only the types were checked, since no tuple came so far'
    """
    if rehearsed is None or not rehearsed.tuples:
        return f"not rehearsed, since no tuple that {_listed(targets)} got past was at hand"
    count = "a recent tuple" if rehearsed.tuples == 1 else f"{rehearsed.tuples} recent tuples"
    words = f"rehearsed on {count} through {_listed({*rehearsed.tried, *rehearsed.arriving})}"
    if rehearsed.spared:
        words += f"; {_listed(rehearsed.spared)} did not run, since what comes there has the types of now"
    if rehearsed.unreached:
        words += f"; of {_listed(rehearsed.unreached)} only the types were checked, since no tuple came so far"
    return words


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
