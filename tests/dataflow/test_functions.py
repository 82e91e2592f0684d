"""What is read off a user's function, what an update may be, and the ends of a flow."""

from __future__ import annotations

import functools

import pandas as pd
import pyarrow as pa
import pytest

from fries_nb.dataflow import (
    DataflowBuilder,
    Emits,
    Graph,
    Kind,
    Memory,
    Operator,
    ParquetFiles,
    Rate,
    Replay,
    Shape,
    Update,
    as_updates,
    batched,
    check_updates,
    emits_of,
    memory,
    parquet,
    rate,
    replay,
    shape_of,
    takes_state,
)  # fmt: skip
from fries_nb.dataflow.awaiting import Awaiting
from fries_nb.dataflow.traits import TRAITS
from fries_nb.dataflow.windowing import tumbling
from fries_nb.errors import DataflowError, PlanError, SinkError, SourceError


def row(given):
    """Of a row."""
    return given


def rows(given):
    """Yields rows."""
    yield given


class Keyed:
    """With state."""

    def process(self, given, state):
        """One row."""
        return given


class Stateless:
    """Without state."""

    def process(self, given):
        """Many rows."""
        yield given


class Called:
    """An instance is called with a row."""

    def __call__(self, given):
        """Many rows."""
        yield given


@batched
class Model:
    """An instance is called with a batch; loads something first."""

    def open(self):
        """Nothing to load."""

    def __call__(self, batch):
        """The batch."""
        return batch


@pytest.mark.parametrize(
    ("function", "shape", "state", "emits"),
    [
        (row, Shape.ROW, False, Emits.ONE_TO_ONE),
        (rows, Shape.ROW, False, Emits.ONE_TO_MANY),
        (functools.partial(rows), Shape.ROW, False, Emits.ONE_TO_MANY),
        (dict, Shape.ROW, False, Emits.ONE_TO_ONE),
        (Called(), Shape.ROW, False, Emits.ONE_TO_MANY),
        (Keyed(), Shape.KEYED, True, Emits.ONE_TO_ONE),
        (Stateless(), Shape.KEYED, False, Emits.ONE_TO_MANY),
        (batched(lambda batch: batch), Shape.BATCH, False, Emits.ONE_TO_ONE),
        (Model(), Shape.BATCH, False, Emits.ONE_TO_ONE),
    ],
)
def test_what_a_function_is(function, shape, state, emits):
    """How it is called, whether it asks for state, and whether a map of it is one-to-many."""
    assert (shape_of(function), takes_state(function), emits_of(Kind.MAP, function)) == (shape, state, emits)


def test_kinds_that_multiply():
    """flat_map, unnest and windows are one-to-many whatever the function looks like; a filter is not."""
    many = {kind for kind in Kind if emits_of(kind, row) is Emits.ONE_TO_MANY}
    assert many == {Kind.FLAT_MAP, Kind.UNNEST, Kind.REPLICATE, Kind.WINDOW, Kind.REDUCE, Kind.COUNT_WINDOW}


@pytest.mark.parametrize("given", [Keyed, Called, Model, 5, None, "text"])
def test_what_cannot_be_run(given):
    """Classes instead of their instances, and what cannot be called."""
    with pytest.raises(DataflowError, match="expected"):
        shape_of(given)


class Scorer:
    """A batched method."""

    factor = 3

    @batched
    def score(self, batch, more=0):
        """All rows at once."""
        return [self.factor * value + more for value in batch]


@pytest.mark.parametrize(
    ("function", "expected"),
    [(Scorer().score, [3, 6]), (functools.partial(Scorer().score, more=1), [4, 7])],
    ids=["method", "partial"],
)
def test_a_batched_function_stays_so_when_it_is_bound_or_filled_in(function, expected):
    """A method finds its object, a partial its arguments, and both still want batches."""
    assert shape_of(function) is Shape.BATCH
    DataflowBuilder("f").source("S", rate(1)).map("M", function)
    assert function([1, 2]) == expected


async def awaited(row):
    """A coroutine function."""
    return row


async def awaited_rows(row):
    """An asynchronous generator function."""
    yield row


class Awaits:
    """A coroutine as a method, with state."""

    async def process(self, row, state):
        """Count the rows of a key."""
        state["n"] = state.get("n", 0) + 1
        return row


class Late:
    """Works by the time of rows, which does not stop while it waits."""

    async def process(self, row, state, at):
        """Wait."""


class HalfAsync:
    """Only its ``open`` is a coroutine."""

    async def open(self):
        """Connect."""

    def process(self, row):
        """Give the row."""
        return row


@pytest.mark.parametrize("method", ["map", "flat_map", "filter"])
@pytest.mark.parametrize("function", [awaited, functools.partial(awaited)])
def test_a_coroutine_has_a_worker_of_its_own(method, function):
    """Its calls overlap, so it is not chained; 64 are in flight unless another number is declared."""
    flow = DataflowBuilder("f")
    getattr(flow.source("S", rate(1)), method)("M", function, timeout=2)
    operator = flow.graph().operator("M")
    assert (operator.awaiting, operator.chain, operator.emits) == (
        Awaiting(64, 2.0), False, TRAITS[operator.kind].emits
    )  # fmt: skip


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda s: s.split("M", awaited), "split 'M' got an async function, which nothing awaits; expected a plain"),
        (lambda s: s.map("M", awaited_rows), "operator 'M' got an async generator, which nothing iterates over;"),
        (lambda s: s.map("M", batched(awaited)), "operator 'M' got an async function of a batch, which nothing awaits"),
        (lambda s: s.map("M", Late(), key="k"), "operator 'M' got an async process.row, state, at., but time would"),
        (lambda s: s.map("M", HalfAsync()), "operator 'M': its open is async and its process is not, so nothing"),
        (lambda s: s.map("M", Awaits()), "operator 'M' keeps state per key, .* but has no key; expected key=<column>"),
        (lambda s: s.window("M", Awaits(), tumbling(1), key="k"), "operator 'M': its process is async, which nothing"),
        (lambda s: s.map("M", dict, concurrency=8), "operator 'M' has concurrency=8 and a plain function, whose calls"),
        (lambda s: s.map("M", dict, timeout=1), "operator 'M' has timeout=1 and a plain function"),
        (lambda s: s.flat_map("M", dict, ordered=False), "operator 'M' has ordered=False and a plain function"),
        (lambda s: s.filter("M", dict, on_change="retry"), "operator 'M' has on_change='retry' and a plain function"),
        (lambda s: s.map("M", 3, concurrency=8), "operator 'M': got 3, which cannot be called"),
        (lambda s: s.map("M", awaited, concurrency=0), "has concurrency=0; expected a whole number of rows in flight"),
        (lambda s: s.map("M", awaited, concurrency=True), "has concurrency=True; expected a whole number of rows"),
        (lambda s: s.map("M", awaited, concurrency=2.5), "has concurrency=2.5; expected a whole number of rows"),
        (lambda s: s.map("M", awaited, concurrency=10**6), "has concurrency=1000000; expected .*, 1 to 10,000"),
        (lambda s: s.map("M", awaited, timeout=-1), "has timeout=-1; expected seconds, more than 0 and at most"),
        (lambda s: s.map("M", awaited, timeout=float("inf")), "has timeout=inf; expected seconds, .* or None for no"),
        (lambda s: s.map("M", awaited, ordered="yes"), "has ordered='yes'; expected True or False"),
        (lambda s: s.map("M", awaited, on_change="stop"), "has on_change='stop'; expected 'finish', which lets calls"),
    ],
)
def test_what_is_no_way_to_await_is_refused(declare, words):
    """In a sentence, by the call that declares it."""
    with pytest.raises(DataflowError, match=words):
        declare(DataflowBuilder("f").source("S", rate(1), time="t"))


def test_a_change_keeps_coroutines_and_plain_functions_apart():
    """Workers are made for one or the other."""
    flow = DataflowBuilder("f")
    flow.source("S", rate(1)).map("M", awaited).map("N", dict).sink("out", memory())
    with pytest.raises(PlanError, match="'M' runs a coroutine and would change to a plain function; expected a corout"):
        check_updates(flow.graph(), {"M": Update(dict)})
    with pytest.raises(PlanError, match="'N' runs a plain function and would change to a coroutine; expected a plain"):
        check_updates(flow.graph(), {"N": Update(awaited)})


def test_only_functions_are_batched():
    """The decorator refuses what cannot be called."""
    with pytest.raises(DataflowError, match="got 3"):
        batched(3)


def test_bare_functions_become_updates():
    """They keep the state; an Update stays as it is."""
    update = Update(row, state=list, back=tuple)
    assert as_updates({"A": row, "B": update}) == {"A": Update(row), "B": update}


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({}, PlanError, "the change is empty"),
        (["FM"], PlanError, "maps operator names to functions; got a list"),
        ({3: row}, PlanError, "got 3 as a name"),
        ({"FM": None}, DataflowError, "operator 'FM': no function was given"),
        ({"FM": Keyed}, DataflowError, "expected an instance"),
    ],
)
def test_bad_changes(change, error, said):
    """Empty, not a mapping, or no function."""
    with pytest.raises(error, match=said):
        as_updates(change)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"state": 3}, r"Update\(..., state=...\) is a function"),
        ({"state": row, "back": "x"}, r"Update\(..., back=...\) is a function"),
        ({"back": row}, "without state"),
    ],
)
def test_bad_transformations(arguments, said):
    """State transformations are functions, and the way back needs a way there."""
    with pytest.raises(PlanError, match=said):
        Update(row, **arguments)


@pytest.fixture
def graph() -> Graph:
    """One operator of each kind that matters."""
    flow = DataflowBuilder("f")
    stream = flow.source("S", rate(1)).map("M", row).map("K", Keyed(), key="ID").flat_map("F", rows)
    stream.filter("P", row).unnest("U", "items").sink("T", memory())
    return flow.graph()


@pytest.mark.parametrize("change", [{"M": row}, {"K": Keyed()}, {"F": rows}, {"F": row}, {"P": row}])
def test_updates_that_fit(graph, change):
    """The same shape, or another that the operator can run."""
    check_updates(graph, as_updates(change))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"N": row}, DataflowError, "no operator 'N'"),
        ({"S": row}, PlanError, r"'S' \(source\) runs no function that could be changed"),
        ({"T": row}, PlanError, r"'T' \(sink\)"),
        ({"U": row}, PlanError, r"'U' \(unnest\)"),
        ({"M": Keyed()}, DataflowError, "'M' keeps state per key.*has no key"),
        ({"M": rows}, PlanError, "'M' emits one row at most, and its new function is a generator"),
        ({"M": lambda: 1}, DataflowError, "takes 0 parameters"),
        ({"M": Model()}, PlanError, "'M' runs a function of a row and would change to one of a batch"),
        ({"M": Keyed.process}, DataflowError, "takes 3 parameters"),
        ({"P": rows}, DataflowError, "filter 'P' got a generator"),
    ],
)
def test_updates_that_do_not_fit(graph, change, error, said):
    """What the operator cannot run, or what would make the plan's types untrue."""
    with pytest.raises(error, match=said):
        check_updates(graph, as_updates(change))


def test_ends(tmp_path):
    """Descriptions are values."""
    table = pa.table({"x": [1]})
    assert replay(tmp_path / "x", rate=3) == Replay(str(tmp_path / "x"), 3.0)
    assert replay(table).data == table
    assert rate(2.5, count=3) == Rate(2.5, 3)
    assert rate(None).rate is None
    assert memory() == Memory()
    assert parquet(tmp_path) == ParquetFiles(str(tmp_path))


def test_tables_of_others_are_replayed_as_they_are():
    """Arrow and pandas data, and whatever offers an Arrow stream; of an index only what has a name."""
    table = pa.table({"x": [1, 2, 3], "s": ["a", None, "c"]})
    frame = pd.DataFrame({"x": [1, 2, 3], "s": ["a", None, "c"]})
    for given in (table.to_batches()[0], frame, pa.RecordBatchReader.from_batches(table.schema, table.to_batches())):
        assert replay(given).data.equals(table)
    assert replay(frame[frame.x > 1]).data.column_names == ["x", "s"]
    assert replay(frame.set_index("s")).data.column_names == ["x", "s"]
    frame["x"] = 0
    assert replay(table).data["x"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("bad", [0, -1, float("inf"), float("nan"), True, "5"])
def test_bad_rates(bad):
    """A rate is a positive number of rows a second, or None."""
    for declare in (lambda: rate(bad), lambda: replay("path", rate=bad)):
        with pytest.raises(SourceError, match="rate is a number of rows a second above 0"):
            declare()


@pytest.mark.parametrize(
    ("declare", "error", "said"),
    [
        (lambda: replay([1, 2]), SourceError, "got a list; expected the path"),
        (lambda: replay(""), SourceError, "empty path"),
        (
            lambda: replay(pd.DataFrame({"a": [1, "x"]})),
            SourceError,
            r"column 'a' of the DataFrame has a number \(1\) beside text \('x'\); expected values of one type",
        ),
        (lambda: replay(pd.Series([1])), SourceError, "got a Series; expected the path"),
        (lambda: rate(1, count=0), SourceError, "count is a number of rows, 1 or more; got 0"),
        (lambda: rate(1, row=5), SourceError, "row is a function"),
        (lambda: parquet(""), SinkError, "path of a directory; got ''"),
        (lambda: parquet(3), SinkError, "path of a directory; got 3"),
    ],
)
def test_bad_ends(declare, error, said):
    """Each says what was got and what was expected."""
    with pytest.raises(error, match=said):
        declare()


def test_operators_with_functions_are_equal_by_their_types():
    """Functions take no part in comparing graphs."""
    assert Operator("A", function=row) == Operator("A", function=rows)


def test_what_is_replayed_is_not_what_the_user_edits_later():
    """A declaration is a value; Arrow would share the memory of a frame's columns."""
    frame = pd.DataFrame({"amount": [1.0, 2.0]})
    declared = replay(frame)
    frame["amount"] *= 100
    frame.loc[0, "amount"] = 7.0
    assert declared.data["amount"].to_pylist() == [1.0, 2.0]


def test_a_frame_is_told_by_what_it_is():
    """Columns may be called as attributes of Spark's DataFrame are, and one of Spark's must have an end."""

    class Streaming:
        schema, write = None, property(lambda self: 1 / 0)
        isStreaming = True

    assert replay(pd.DataFrame({"schema": [1], "write": [2]})).data.num_rows == 1
    with pytest.raises(SourceError, match="a streaming DataFrame cannot be replayed"):
        replay(Streaming())
