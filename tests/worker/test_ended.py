"""A worker that has ended: it passes markers on and switches no more, and what might bring it back is tried on it."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from worker_bench import Bench, Sum, change, data, version

from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import Abort, Done, End, Ended, Fcm, Marker, Prepared, Reconfigure, WorkerId
from fries_nb.protocol.rollout import RolloutStep


def unopenable() -> Any:
    """A function whose model is not there."""

    class Model:
        def open(self) -> None:
            raise OSError("no such model")

        def __call__(self, row: Any) -> Any:
            return row

    return Model()


def ended(operator: Operator, *rows: int) -> Bench:
    """A worker that has met these rows and has ended."""
    bench = Bench(operator)
    bench.arrive(0, data(*rows))
    for index in (0, 1):
        bench.arrive(index, End())
    bench.run()
    assert bench.worker.ended
    return bench


def test_an_ended_worker_acknowledges_passes_on_and_switches_nothing() -> None:
    """An ended worker acknowledges passes on and switches nothing."""
    bench = Bench(Operator("M", function=version(1)))
    for index in (0, 1):
        bench.arrive(index, data(index))
        bench.arrive(index, End())
    bench.run()
    assert bench.worker.ended
    assert bench.sent == [1, 1, End()]
    assert [ended.worker for ended in bench.answers(Ended)] == [WorkerId("M", 0)]
    bench.prepare("M", "u1", Update(version(2)))
    assert bench.answers(Prepared) == [Prepared("u1", WorkerId("M", 0))]
    assert "u1" in bench.worker.instances[0].prepared
    bench.direct("M", Fcm(change(1, "M", scope="MZ")))
    assert bench.answers(Done) == [Done(1, WorkerId("M", 0), ended=True)]
    assert bench.sent[-1] == change(1, "M", scope="MZ")
    assert bench.worker.instances[0].prepared == {}
    assert bench.worker.instances[0].function({}) == {"v": 1}


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (Update(unopenable()), r"failed in open\(\): OSError: no such model"),
        (Update(Sum(), state=lambda old: old["x"]), "failed in the state transformation: TypeError"),
        (Update(Sum(), state=lambda old: None), "failed in the state transformation: .*returned None"),
        (Update(lambda row: 1 / 0, state=lambda old: old), "^$"),
    ],
)
def test_an_ended_worker_tries_what_it_prepares(update: Update, words: str) -> None:
    """It may be restored with it. Its states are tried, and no tuple, of which none will come to it any more."""
    bench = ended(Operator("M", function=Sum(), key=("n",)), 1, 2)
    bench.prepare("M", "u1", update)
    [answer] = bench.answers(Prepared)
    assert re.search(words, answer.error), answer.error


def appended(old: list[int], number: int, expected: list[int]) -> list[int]:
    """A transformation that is particular about what it finds."""
    assert old == expected, f"got {old}"
    return [*old, number]


@pytest.mark.parametrize(("marker_has_come", "is_canary"), [(True, False), (False, False), (True, True)])
def test_an_ended_worker_tries_a_change_on_what_those_before_it_would_have_made(
    marker_has_come: bool, is_canary: bool
) -> None:
    """It has missed them. Its own states stay as they are, and what was aborted or taken back is not counted."""
    bench = ended(Operator("M", function=Sum(), key=("n",)), 1)
    for number, before in ((1, [1]), (2, [1, 10]), (3, [1, 10])):
        transformation = partial(appended, number=10 * number, expected=before)
        bench.prepare("M", f"u{number}", Update(Sum(), state=transformation))
        if marker_has_come and number != 3:
            bench.direct("M", Fcm(change(number, "M")))
        if number == 2:  # taken back, or a canary that is rolled back
            rolled_back = (RolloutStep({}, 0.1), RolloutStep({}, 0.0))
            step = Reconfigure("u2.back", frozenset("M"), steps=rolled_back, step_of="u2")
            bench.direct("M", Fcm(Marker(4, frozenset("M"), step)) if is_canary else Abort("u2"))
    assert [answer.error for answer in bench.answers(Prepared)] == [""] * 3
    assert bench.worker.instances[0].state.live == {1: [1]}
    assert bench.worker.instances[0].applied == ()
