"""State that ends: a silent key is forgotten, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
from window_setting import TimedRun, shown

import fries_nb as fn
from fries_nb.changes.function_versions import function_text
from fries_nb.dataflow import Kind, Operator
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import check_updates, configured, returning
from fries_nb.dataflow.windowing import following
from fries_nb.errors import DataflowError, PlanError
from fries_nb.operators.instance import Instance
from fries_nb.planning.difference import Difference
from fries_nb.protocol.messages import WorkerId
from fries_nb.report.change_rows import users_function
from fries_nb.storage.flow_shape import conflict, flow_of

Row = dict[str, Any]


class Counting:
    """Counts the rows of a key, and tells the count when the key ends."""

    def process(self, row: Row, state: Row) -> Row:
        """Count a row."""
        state["n"] = state.get("n", 0) + 1
        return {"k": row["k"], "n": state["n"]}

    def on_expire(self, key: Any, state: Row) -> Row:
        """The count, below 0."""
        return {"k": key, "n": -state["n"]}


def counting(function: Any = None, ttl: float = 10, **more: Any) -> TimedRun:
    """A map with ``ttl``, keyed by ``k``."""
    used = Expiring(function or Counting(), ttl)
    operator = Operator("M", kind=Kind.MAP, function=used, key=("k",), **more)
    made = Instance(WorkerId("M", 0), operator, used, False)
    made.has_dead_letters = more.get("on_error", "fail") not in ("fail", "pause")
    return TimedRun(made, branches=1)


def test_a_silent_key_ends_and_begins_anew() -> None:
    """When no row of its newest time + ttl can come; an earlier row that comes later does not shorten that."""
    run = counting()
    run.frame([{"k": 1}, {"k": 2}, {"k": 1}, {"k": 1}], [5, 5, 8, 6])
    state = run.instance.state
    assert dict(state.live) == {1: {"n": 3}, 2: {"n": 1}}
    assert run.fire((0, 15)) == []
    assert shown(run.fire((0, 16))) == [{"k": 2, "n": -1}]
    assert set(state.live) == {1}
    assert [row["n"] for row in shown(run.frame([{"k": 1}, {"k": 2}], [18, 18]))] == [4, 1]
    assert run.fire((0, 28)) == []
    assert sorted(row["n"] for row in shown(run.fire((0, 29)))) == [-4, -1]
    assert not state.live
    assert len(run.counts) == 0


def test_a_key_has_one_entry_however_many_rows_it_has() -> None:
    """It goes on once in the time that the key lasts."""
    run = counting()
    for time in range(1_000):
        run.frame([{"k": time % 2}], [time])
        assert run.fire((0, time)) == []
        assert len(run.agenda) == min(2, time + 1)
        assert len(run.agenda.held) <= 2
    assert sorted(row["n"] for row in shown(run.fire())) == [-500, -500]


def test_a_row_that_fails_does_not_put_off_the_end() -> None:
    """And a key on whose end the function fails is forgotten all the same, with a dead letter."""

    class Failing(Counting):
        def process(self, row: Row, state: Row) -> Row:
            result = super().process(row, state)
            if row["fails"]:
                raise ValueError("no")
            return result

        def on_expire(self, key: Any, state: Row) -> Row:
            if key == 2:
                raise ValueError("no end")
            return super().on_expire(key, state)

    run = counting(Failing(), on_error="dead letters")
    run.frame([{"k": 1, "fails": False}, {"k": 2, "fails": False}, {"k": 1, "fails": True}], [5, 5, 9])
    run.frame([{"k": 3, "fails": True}], [5])
    assert dict(run.instance.state.live) == {1: {"n": 1}, 2: {"n": 1}}
    assert shown(run.fire((0, 16))) == [{"k": 1, "n": -1}]
    assert (dict(run.instance.state.live), len(run.agenda), len(run.counts)) == ({}, 0, 0)
    letters = [row for letter in run.instance.take_letters() for row in letter.to_pylist()]
    assert len(letters) == 3


def test_a_function_that_yields_may_have_ends() -> None:
    """Its rows leave as those of any generator."""

    class Yielding:
        def process(self, row: Row, state: Row) -> Any:
            state["n"] = state.get("n", 0) + 1
            for number in range(state["n"]):
                yield {"k": row["k"], "n": number}

        def on_expire(self, key: Any, state: Row) -> Any:
            yield {"k": key, "n": -state["n"]}

    run = counting(Yielding())
    assert [row["n"] for row in shown(run.frame([{"k": 1}, {"k": 1}], [1, 2]))] == [0, 0, 1]
    assert shown(run.fire()) == [{"k": 1, "n": -2}]


@pytest.mark.parametrize("ttl", [0, -1, nan, inf, True, "3600", 1e-10])
def test_a_ttl_is_a_duration(ttl: Any) -> None:
    """Not none, negative, endless, a truth value or text; neither in a declaration nor in a change."""
    source = fn.Dataflow("ends").source("S", fn.rate(1), time="at")
    with pytest.raises(DataflowError, match=r"operator 'M' has ttl=.*; expected a number above 0, in seconds or"):
        source.map("M", Counting(), "k", ttl=ttl)
    source.map("M", Counting(), "k", ttl=1)
    with pytest.raises(DataflowError, match=r"operator 'M' has ttl=.*; expected a number above 0, in seconds or"):
        check_updates(source.flow.graph(), {"M": fn.Update(Counting(), ttl=ttl)})


def test_what_keeps_no_state_by_the_time_of_rows_does_not_expire() -> None:
    """Neither a function without state, key or times, nor one that awaits or is timed, nor in a loop."""

    class Awaiting:
        async def process(self, row: Row, state: Row) -> Row:
            return row

    class Timed:
        def process(self, row: Row, state: Row, at: Any) -> Row:
            return row

    class Fixed(Counting):
        def initial_state(self) -> int:
            return 0

    class Unending(Counting):
        on_expire = None

        def __init__(self) -> None:
            self.on_expire = 3

    class OfThree(Counting):
        def on_expire(self, key: Any, time: Any, state: Row) -> None:
            """Takes one too many."""

    flow = fn.Dataflow("ends")
    source = flow.source("S", fn.rate(1), time="at")
    kept = source.map("K", Counting(), "k", ttl=1)
    untimed = flow.source("untimed", fn.rate(1)).map("P", Counting(), "k")
    refused: list[tuple[Any, str]] = [
        (dict, "has ttl=.* keeps none"), (Awaiting(), "ttl= and an async process"),
        (Timed(), r"ttl= and a timed function.*at.call"), (Fixed(), "initial_state.. returns"),
        (Unending(), "on_expire is 3; expected a method"), (OfThree(), "its on_expire takes 3 parameters"),
    ]  # fmt: skip
    for given, words in refused:
        with pytest.raises(DataflowError, match=words):
            source.map("M", given, "k", ttl=1)
        with pytest.raises(DataflowError, match=words):
            check_updates(flow.graph(), {"K": fn.Update(given)})
    with pytest.raises(DataflowError, match=r"has ttl=1, .*'untimed'.*no time; expected source.*clock"):
        untimed.map("M", Counting(), "k", ttl=1)
    with pytest.raises(DataflowError, match="has no key"):
        source.map("M", Counting(), ttl=1)
    with pytest.raises(DataflowError, match=r"has ttl=1, and rows of a loop.*in front of the loop"):
        source.iterate("L", lambda inside: (inside.map("M", Counting(), "k", ttl=1),) * 2)
    with pytest.raises(PlanError, match=r"'P' .map. was declared without ttl="):
        check_updates(flow.graph(), {"P": fn.Update(Counting(), ttl=1)})
    with pytest.raises(PlanError, match=r"'K' .map. has no windows"):
        check_updates(flow.graph(), {"K": fn.Update(Counting(), windows=fn.tumbling(1))})
    assert kept.name == "K"


def test_a_change_keeps_the_ttl_or_replaces_it() -> None:
    """Whichever holds, it is that of the next row of a key, and never shortens what earlier rows have given."""
    operator = counting().instance.operator
    for given, lasts in ((fn.Update(Counting()), 10), (fn.Update(Counting(), ttl=4), 4)):
        assert following(operator.function, configured(operator, given)).ttl == lasts
        assert returning(following(operator.function, configured(operator, given)), None, None).ttl == lasts
    run = counting()
    run.frame([{"k": 1}, {"k": 2}], [0, 0])
    run.instance.run_function(configured(operator, fn.Update(Counting(), ttl=4)), "u1")
    run.executor.rebuild()
    run.frame([{"k": 1}, {"k": 3}], [2, 2])
    assert [row["k"] for row in shown(run.fire((0, 7)))] == [3]
    assert sorted(row["k"] for row in shown(run.fire((0, 11)))) == [1, 2]


def test_timestamps_end_after_seconds() -> None:
    """A ttl is in the unit of the source's times."""
    assert (Expiring(Counting(), 1.5).lasts(True), Expiring(Counting(), 1.5).lasts(False)) == (1_500_000_000, 2)


def ending(ttl: float | None, function: Any = None) -> Graph:
    """A dataflow with a map that has this ttl."""
    source = fn.Dataflow("ends").source("S", fn.rate(1), time="at")
    source.map("K", function or Counting(), "k", ttl=ttl).sink("out", fn.memory())
    return source.flow.graph()


def test_a_declaration_with_another_ttl_is_a_change() -> None:
    """One with a ttl where there was none, or without, is another operator: to a run, and to its checkpoint."""
    found = Difference.of(ending(3600), ending(60))
    assert [one.aspects for one in found.changed] == [{"function": "ttl: 3600 -> 60"}]
    assert found.functions["K"].ttl == 60
    check_updates(ending(3600), found.functions)
    assert not Difference.of(ending(60), ending(60)).changed
    for before, after, words in ((None, 60, "none -> some"), (60, None, "some -> none")):
        aspects = {one.name: one.aspects for one in Difference.of(ending(before), ending(after)).changed}
        assert aspects["K"]["ttl"] == words
        assert "K: map by k" in conflict(flow_of(ending(before), "run"), ending(after))
    assert conflict(flow_of(ending(60), "run"), ending(30)) == ""


def test_what_runs_is_shown_as_the_users_function() -> None:
    """As text, and where a change is drawn."""
    assert function_text(Expiring(Doubling(2), 60)) == "Doubling(by=2)"
    assert users_function(Expiring(Doubling(2), 60)) == Doubling(2)


@dataclass
class Doubling:
    """Keeps a state, and has a text."""

    by: int

    def process(self, row: Row, state: Row) -> Row:
        return row
