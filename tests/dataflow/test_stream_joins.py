"""Declarations of joins of two streams: what is made of them, and what is refused, in a sentence."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.dataflow import (
    DataflowBuilder,
    Emits,
    Kind,
    Stream,
    as_updates,
    batched,
    check_runnable,
    check_updates,
    graph_from_json,
    graph_to_json,
    memory,
    rate,
)
from fries_nb.dataflow.updates import configured, returning
from fries_nb.errors import DataflowError, PlanError
from fries_nb.planning.covering import cover
from fries_nb.planning.difference import Difference
from fries_nb.protocol.topology import chains


def flow(**time: Any) -> tuple[DataflowBuilder, Stream, Stream]:
    """A dataflow with two sources that have times."""
    builder = DataflowBuilder("joined")
    given = {"time": "at", **time}
    return builder, builder.source("L", rate(1), **given), builder.source("R", rate(1), time="at")


def joined(method: str = "join_within", builder_of: Any = flow, **more: Any) -> DataflowBuilder:
    """The dataflow with a join and sinks."""
    builder, left, right = builder_of()
    given = {"windows": fn.tumbling(60)} if method == "join_window" else {}
    getattr(left, method)("J", right, on="k", **given, **more).sink("out", memory())
    return builder


@pytest.mark.parametrize("method", ["join_within", "join_latest", "join_window"])
def test_a_join_is_a_keyed_operator_with_two_inputs(method: str) -> None:
    """One-to-many, the first of its chain, with a branch for late rows; JSON keeps what planning needs of it."""
    graph = joined(method, late=memory()).graph(1)
    check_runnable(graph)
    operator = graph.operator("J")
    assert (operator.kind, operator.key, operator.branches) == (Kind(method), ("k",), 2)
    assert operator.emits is Emits.ONE_TO_MANY
    assert [(edge.source, edge.key) for edge in graph.in_edges("J")] == [("L", ("k",)), ("R", ("k",))]
    assert chains(graph) == (("L",), ("R",), ("J",), ("J.late",), ("out",))
    again = graph_from_json(graph_to_json(graph)).operator("J")
    assert (again.emits, again.begins_transactions) == (operator.emits, method == "join_latest")


@pytest.mark.parametrize(("method", "parts"), [("join_within", [["D", "J"]]), ("join_latest", [["D"], ["J"]])])
def test_planning_cuts_behind_what_time_brings_out_only(method: str, parts: Any) -> None:
    """A pair is in the transaction of its second row; the row of a left side with the latest one begins its own."""
    builder, left, right = flow()
    rows = getattr(left, method)("J", right, on="k").map("D", lambda row: row, key="n")
    rows.map("E", lambda row: row, key="m").sink("out", memory())
    assert sorted(sorted(part.operators) for part in cover(builder.graph(), ["J", "D"]).components) == parts


def pair(left: Any, right: Any) -> Any:
    """A function of a pair."""


class Pair:
    """An object that is called with a pair."""

    def __call__(self, left: Any, right: Any) -> Any:
        """A row."""


class Model:
    """A function of rows."""

    def process(self, row: Any, state: Any) -> None:
        """A row."""


class Torn(Pair, Model):
    """Both."""


async def awaited(left: Any, right: Any) -> Any:
    """A coroutine."""


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("join_within", {"before": -1}, "join 'J' has before=-1; expected a finite number of 0 or more, in seconds or"),
        ("join_within", {"after": math.inf}, "join 'J' has after=inf; expected a finite number of 0 or more"),
        ("join_within", {"after": math.nan}, "join 'J' has after=nan; expected a finite number"),
        ("join_within", {"before": "1m"}, "join 'J' has before='1m'; expected a finite number"),
        ("join_within", {"before": True}, "join 'J' has before=True; expected a finite number"),
        ("join_within", {"before": None}, "join 'J' has before=None; expected a finite number"),
        ("join_latest", {"tolerance": -0.5}, "tolerance=-0.5; expected a finite number .*, or None for no limit"),
        ("join_latest", {"tolerance": math.inf}, "has tolerance=inf; expected a finite number"),
        ("join_latest", {"how": "full"}, "join 'J' has how='full'; expected 'inner', 'left'$"),
        ("join_within", {"how": "outer"}, "how='outer'; expected 'inner', 'left', 'right', 'full'"),
        ("join_window", {"windows": fn.tumbling(0)}, "window 'J' has windows of 0; expected a number above 0"),
        ("join_window", {"windows": 60}, "'J' has 60 as its windows; expected fn.tumbling or fn.sliding"),
        ("join_within", {"on": None}, "join_within 'J' needs the columns to join on; got on=None"),
        ("join_within", {"on": 5}, "operator 'J' has the key 5"),
        ("join_within", {"suffixes": "_x"}, r"has suffixes='_x'; expected two strings, as in \('_x', '_y'\)"),
        ("join_within", {"suffixes": ("_x", None)}, "expected two strings"),
        ("join_within", {"suffixes": ("_x", "_x")}, "with which columns of both sides would have one name; expected"),
        ("join_within", {"late": "here"}, "join_within 'J' has late='here'; expected a sink"),
        ("join_within", {"right": "R"}, "join_within 'J' got 'R' as its right side; expected a stream"),
        ("join_within", {"function": 5}, "operator 'J' got 5 as its function; expected a function of the two rows"),
        ("join_within", {"function": Pair}, "operator 'J' got .*Pair.* as its function; expected a function of"),
        ("join_within", {"function": Model()}, "operator 'J' got a Model as its function; expected a function"),
        ("join_within", {"function": Torn()}, r"operator 'J' got an object with process\(\) as its function"),
        ("join_within", {"function": batched(pair)}, "operator 'J' got a function of a batch as its function"),
        ("join_within", {"function": awaited}, "operator 'J' got an async function as its function"),
        ("join_within", {"function": lambda row: row}, "operator 'J': its function takes 1 parameters; expected a"),
        ("join_within", {"workers": 0}, "operator 'J' has workers=0"),
    ],
)
def test_bad_joins_are_refused(method: str, given: Any, words: str) -> None:
    """Each in a sentence that names the operator; nothing is declared."""
    builder, left, right = flow()
    windows = {"windows": fn.tumbling(60)} if method == "join_window" else {}
    with pytest.raises(DataflowError, match=words):
        getattr(left, method)("J", **{"right": right, "on": "k", **windows, **given})
    assert list(builder.graph()) == ["L", "R"]


def test_both_sides_have_times_and_a_place_for_late_rows() -> None:
    """Whichever side lacks them; what leaves a join is never late."""
    builder, left, right = flow()
    plain = builder.source("plain", rate(1))
    for one, other in ((left, plain), (plain, left)):
        with pytest.raises(DataflowError, match="join_within 'J' has the source 'plain' above it, whose rows have"):
            one.join_within("J", other, on="k")
    with pytest.raises(DataflowError, match="join_latest 'J' has the sort 'S' above it, whose rows have no time any"):
        left.join_latest("J", right.sort("S", "k"), on="k")
    with pytest.raises(DataflowError, match="would get two direct copies of 'L'"):
        left.join_within("J", left, on="k")
    _, late, right = flow(late=30)
    with pytest.raises(DataflowError, match="join_within 'J' has no place for rows that come late, and source 'L' has"):
        right.join_within("J", late, on="k")
    right.join_within("J", late, on="k", late=memory()).reduce("T", Sum(), key="k")


class Sum(Model):
    """A reduce's function."""

    def close(self, key: Any, time: Any, state: Any) -> Any:
        """The sum."""


def tables(left: dict[str, Any], right: dict[str, Any]) -> Any:
    """Makes a dataflow of two tables."""

    def made() -> tuple[DataflowBuilder, Stream, Stream]:
        builder = DataflowBuilder("tables")
        both = [builder.source(name, fn.replay(pa.table({"at": [1], **one})), time="at")
                for name, one in (("L", left), ("R", right))]  # fmt: skip
        return builder, *both

    return made


@pytest.mark.parametrize(
    ("left", "right", "more", "words"),
    [
        ({"k": [1]}, {"k": ["1"]}, {}, "join 'J': column 'k' is int64 on the left side and string on the right"),
        ({"k": [1]}, {"k": [1.0]}, {}, "column 'k' is int64 on the left side and double on the right"),
        ({"k": [1]}, {"j": [1]}, {}, r"join_within 'J' is on 'k', which Stream\('R'\) lacks; it has at, j"),
        ({"k": [1], "at_x": [1]}, {"k": [1]}, {}, r"would have two columns 'at_x' with suffixes=\('_x', '_y'\)"),
        ({"k": [1], "n": [1]}, {"k": [1], "n_y": [1], "n": [1]}, {}, "would have two columns 'n_y' with suffixes"),
    ],
)
def test_sides_that_do_not_go_together_are_refused(left: Any, right: Any, more: Any, words: str) -> None:
    """Where the columns are known, by the call that declares the join."""
    with pytest.raises(DataflowError, match=words):
        joined(builder_of=tables(left, right), **more)


def test_columns_are_known_behind_what_keeps_them() -> None:
    """Filters and splits, but no maps; widths of whole numbers, and ways to keep texts, do not matter."""
    builder, left, right = tables({"k": pa.array([1], pa.int32())}, {"k": [1], "n": ["a"]})()
    kept, _ = right.filter("F", bool).split("SP", bool)
    function = left.join_within("J", kept, on="k", how="full") and builder.graph().operator("J").function
    assert (function.left.names, function.right.types) == (["at", "k"], [pa.int64(), pa.int64(), pa.string()])
    left.map("M", dict).join_within("U", kept, on="k").sink("out", memory())
    assert (builder.graph().operator("U").function.left, builder.graph().operator("U").function.right.names) == (
        None, ["at", "k", "n"],
    )  # fmt: skip


def test_functions_and_bounds_are_changed_and_the_rest_stays() -> None:
    """To bounds of the same type; states are rows, which no function transforms."""
    graphs = {method: joined(method).graph() for method in ("join_within", "join_latest", "join_window")}
    for method, new in (
        ("join_within", fn.within(5, 6)), ("join_latest", fn.latest(5)), ("join_window", fn.sliding(60, 30))
    ):  # fmt: skip
        for update in (fn.Update(None, windows=new), fn.Update(pair, windows=new), fn.Update(Pair())):
            check_updates(graphs[method], {"J": update})
        operator = graphs[method].operator("J")
        changed = configured(operator, fn.Update(Pair(), windows=new))
        assert (changed.windowing, changed.how, changed.suffixes) == (new, "inner", ("_x", "_y"))
        back = returning(operator.function, None, None)
        assert (back.function, back.windows) == (None, operator.function.windowing)
    for method, change, words in (
        ("join_within", fn.Update(None, windows=fn.tumbling(5)), r"expected fn.within\(before=..., after=...\)"),
        ("join_latest", fn.Update(None, windows=fn.within(5)), r"its bounds; expected fn.latest\(tolerance=...\)"),
        ("join_window", fn.Update(None, windows=fn.within(5)), "as its windows; expected fn.tumbling or fn.sliding"),
        ("join_within", fn.Update(None, windows=fn.within(-5)), "join 'J' has before=-5; expected a finite number"),
        ("join_within", fn.Update(None, windows=fn.within(after=math.inf)), "join 'J' has after=inf; expected a fin"),
        ("join_within", fn.Update(pair, state=dict), r"'J' \(join_within\) keeps rows of both sides, and no state of"),
        ("join_within", lambda row: row, "operator 'J': its function takes 1 parameters; expected a function of the"),
    ):
        with pytest.raises((PlanError, DataflowError), match=words):
            check_updates(graphs[method], as_updates({"J": change}))
    with pytest.raises(DataflowError, match="no function was given"):
        fn.Update(None)
    builder, left, _ = flow()
    left.map("M", dict).window("W", Sum(), fn.tumbling(5), key="k").sink("out", memory())
    for name, windows in (("M", fn.within(5)), ("W", fn.within(5))):
        with pytest.raises((PlanError, DataflowError)):
            check_updates(builder.graph(), {name: fn.Update(None, windows=windows)})


def test_what_differs_between_two_joins_is_said() -> None:
    """Function and bounds are a change; the rest needs another operator; two declarations of one join are the same."""
    before = joined(before=5, function=Pair()).graph()
    assert not Difference.of(before, joined(before=5, function=Pair()).graph())
    changed = Difference.of(before, joined(before=6, function=Pair()).graph())
    assert not changed.has_new_shape
    assert changed.functions["J"].windows == fn.within(6, 0)
    assert "before: 5 -> 6" in str(changed)
    assert Difference.of(before, joined(before=5, how="left", function=Pair()).graph()).has_new_shape
