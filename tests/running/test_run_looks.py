"""Questions of a run for what its workers hold: answers, limits of time, and what a run that is over has left."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.driver.open_questions import Asked, Looked
from fries_nb.errors import RunError
from fries_nb.operators.state import Pickles
from fries_nb.protocol.messages import LookAtRows, StateSeen, WorkerId
from fries_nb.running.key_states import RunLooks


class Counting:
    """Keeps a state."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Nothing is run here."""


def held(index: int, error: str = "", **states: Any) -> StateSeen:
    """What a worker of K answers."""
    pickles = Pickles()
    for pair in states.items():
        pickles.add(pair)
    worker = WorkerId("K", index)
    return StateSeen(1, worker, len(states), pickles.content, tuple(pickles.ends), is_last=True, error=error)


class AnsweringRun:
    """A run, and its driver, that answers each question with these parts, or not at all; or is over."""

    def __init__(self, *parts: StateSeen, answers: bool = True, left: tuple[StateSeen, ...] | None = None) -> None:
        self.graph = Graph("g", (Operator("K", key=("k",), function=Counting(), workers=2),), ())
        self.ended = threading.Event()
        self.is_closed = left is not None
        self.parts, self.answers = parts, answers
        last = {part.worker: [part] for part in left or ()}
        self.core = SimpleNamespace(looks=SimpleNamespace(last=last))
        self.controller = SimpleNamespace(topology=SimpleNamespace(workers={"K": (0, 1)}))
        self.looks = RunLooks(self)  # type: ignore[arg-type]

    def driver_of(self, operator: str) -> Any:
        """Itself."""
        return self

    def shown_time(self, ticks: int) -> Any:
        """As it is."""
        return ticks

    def source_of(self, identity: int) -> Any:
        """None."""

    def post(self, asked: Asked) -> None:
        """Answer from another thread, unless it is closed."""
        if self.answers and not self.is_closed:
            error = next((part.error for part in self.parts if part.error), "")
            parts = () if isinstance(asked.look, LookAtRows) else self.parts
            told = Looked(asked.look.number, parts, error)
            threading.Thread(target=self.looks.told, args=[told]).start()


def test_states_of_all_workers_are_told_in_turn_and_what_came_later_counts() -> None:
    """A key that was seen twice, since it has moved, is there once."""
    run = AnsweringRun(held(0, a={"n": 1}, b={"n": 2}), held(1, c={"n": 3}), held(1, a={"n": 4}))
    table = run.looks.table("K", None, None, 10.0)
    assert dict(zip(table["k"], table["n"], strict=True)) == {"a": 4, "b": 2, "c": 3}
    assert list(run.looks.table("K", None, 2, 10.0)["k"]) == ["a", "b"]
    assert list(run.looks.table("K", ["c", "z", "a"], None, 10.0)["n"]) == [3, 4]
    [size] = run.looks.sizes(10.0)
    assert (size.keys, size.largest[0][0] in "abc") == (3, True)


def test_a_worker_that_does_not_answer_is_waited_for_in_vain() -> None:
    """For as long as was said; its answer is dropped if it comes later."""
    run = AnsweringRun(answers=False)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s not all workers of K have answered"):
        run.looks.states("K", None, None, 0.01)
    run.looks.told(Looked(1, (held(0, a={}),)))
    assert run.looks._answers == {}


def test_what_a_worker_refuses_is_told_with_advice() -> None:
    """If there is one."""
    run = AnsweringRun(held(0, error="9 keys of K[0] have about 900 MB, at most 134"))
    with pytest.raises(RunError, match=r"at most 134; expected fewer: n=1_000, or keys="):
        run.looks.states("K", None, None, 10.0)


def test_a_run_that_is_over_tells_what_is_missing() -> None:
    """A host that was gone has left nothing; what was too large is refused."""
    run = AnsweringRun(left=(held(0, a={"n": 1}), held(1, b={"n": 2})))
    assert sorted(one.key for one in run.looks.states("K", None, None, 10.0)) == ["a", "b"]
    run = AnsweringRun(left=(held(0, a={"n": 1}),))
    with pytest.warns(UserWarning, match=r"K\[1\] left nothing behind: its host was gone"):
        assert [one.key for one in run.looks.states("K", None, None, 10.0)] == ["a"]
    with pytest.warns(UserWarning, match="left nothing behind"):
        assert len(run.looks.rows("K", 5, None, 10.0)) == 0
    run = AnsweringRun(left=(held(0, a={"n": 1}), held(1, error="7 keys of K[1] have about 70 MB, at most 17")))
    with pytest.raises(RunError, match=r"the run is over, and has left nothing of K: 7 keys of K\[1\]"):
        run.looks.states("K", None, None, 10.0)
