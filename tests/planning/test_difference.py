"""The difference of two dataflows: what is told, of functions and of the shape, and what is not one."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, parquet, rate
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.sameness import unlike
from fries_nb.dataflow.updates import as_updates, check_updates, configured
from fries_nb.dataflow.windowing import following, tumbling
from fries_nb.planning.difference import Difference
from fries_nb.report.plan_section import difference_svg, united


def made(text: str, **names: Any) -> FunctionType:
    """A function as a cell of a notebook defines it: with globals of its own."""
    names["__name__"] = "__main__"
    exec(compile(text, "<cell>", "exec"), names)
    function = names["f"]
    assert isinstance(function, FunctionType)
    return function


class Slotted:
    """Without a ``__dict__``."""

    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


@dataclass
class Model:
    """With a dict, and another in it."""

    window: int
    inner: Any = None


class Hostile:
    """Hands on all attributes, and fails on unknown ones, as wrappers of models do."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    whole: list[Any] = []
    for _ in range(depth):
        whole = [whole]
    return whole


ADD = "def f(row):\n    return row | {'p': LIMIT}"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (made(ADD, LIMIT=1), made(ADD, LIMIT=1), None),
        (made(ADD, LIMIT=1), made(ADD, LIMIT=2), "global LIMIT: 1 -> 2"),
        (made(ADD, LIMIT=1), made("\n\n\n" + ADD, LIMIT=1), None),  # other lines
        (made(ADD, LIMIT=1), made(ADD.replace("'p'", "'q'"), LIMIT=1), "its code"),
        (made("f = lambda row, w=1: row"), made("f = lambda row, w=2: row"), "defaults: item 0: 1 -> 2"),
        (made("f = lambda row: [x for x in row]"), made("f = lambda row: [x for x in row]"), None),
        (made("f = lambda row: [1 for x in row]"), made("f = lambda row: [2 for x in row]"), "its code"),
        (made("f = lambda row: 1"), made("f = lambda row: True"), "its code"),
        (made("f = lambda row: 0.0"), made("f = lambda row: -0.0"), "its code"),
        (made("def g(x): return x\ndef f(row): return g(row)"), made("def g(x): return 1\ndef f(row): return g(row)"),
         "global g: its code"),
        (made("def f(n): return f(n - 1)"), made("def f(n): return f(n - 1)"), None),  # itself
        (functools.partial(max, 1), functools.partial(max, 1), None),
        (functools.partial(max, 1), functools.partial(max, 2), "arguments: item 0: 1 -> 2"),
        (functools.partial(max, key=len), functools.partial(max, key=str), "keywords: 'key': len -> str"),
        (Model(5), Model(5), None),
        (Model(5), Model(10), "window: 5 -> 10"),
        (Model(5, Model(1)), Model(5, Model(2)), "inner: window: 1 -> 2"),
        (Slotted(1), Slotted(2), "a: 1 -> 2"),
        (Model(5).__eq__, Model(5).__eq__, None),
        (np.arange(3), np.arange(3), None),
        (np.arange(3), np.array([0, 1, 3]), "another ndarray"),
        (np.arange(3), np.arange(3.0), "another ndarray"),
        (np.float64(2), np.float64(2), None),
        (np.array([None, "a"], object), np.array([None, "a"], object), None),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}), None),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]}), "another DataFrame"),
        (pa.table({"a": [1]}), pa.table({"a": [1]}), None),
        ({1: 2}, {1: 2.0}, "1: 2 -> 2.0"),
        ([1], [1, 2], "1 -> 2 items"),
        ({1, 2}, {2, 1}, None),
        (OrderedDict(a=1), {"a": 1}, f"{OrderedDict(a=1)!r} -> {{'a': 1}}"),
        (float("nan"), float("nan"), None),
        (threading.Lock(), threading.Lock(), "a lock, which cannot be compared"),
        (Model(1, threading.Lock()), Model(1, threading.Lock()), "inner: a lock, which cannot be compared"),
        (nested(100), nested(100), None),
        (nested(5_000), nested(5_000), "a list, which cannot be compared (RecursionError)"),
        (len, max, "len -> max"),
        (parquet("a"), parquet("b"), "path: 'a' -> 'b'"),
        (rate(1_000), rate(2_000), "rate: 1000.0 -> 2000.0"),
        (memory(), memory(), None),
    ],
)  # fmt: skip
def test_functions_are_compared_by_what_they_do(before: Any, after: Any, words: str | None) -> None:
    """And the same the other way round, as far as there is none."""
    found = unlike(before, after)
    assert found == words
    assert (unlike(after, before) is None) is (words is None)


def test_a_class_that_was_defined_again_is_compared_by_its_methods() -> None:
    """As a cell that is run again defines it; the same class is one that has the same code."""
    text = "class K:\n    def __init__(self, n): self.n = n\n    def __call__(self, row): return row | {{'n': {}}}"

    def again(constant: int) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text.format(constant), "<cell>", "exec"), names)
        return names["K"]

    assert unlike(again(1)(5), again(1)(5)) is None
    assert unlike(again(1)(5), again(1)(6)) == "n: 5 -> 6"
    assert unlike(again(1)(5), again(2)(5)) == "__call__: its code"


def test_an_object_that_fails_when_it_is_looked_at_cannot_be_compared() -> None:
    """It counts as changed, and the difference says so."""
    assert unlike(Hostile(), Hostile()) == "a Hostile, which cannot be compared (KeyError)"


def test_what_refers_to_itself_is_compared_once() -> None:
    """A model that holds itself."""
    one, other = Model(1), Model(1)
    one.inner, other.inner = one, other
    assert unlike(one, other) is None
    other.window = 2
    assert unlike(one, other) == "window: 1 -> 2"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_plain_values_are_the_same_if_their_text_is(a: Any, b: Any) -> None:
    """``repr`` tells all of them apart, up to the order of a dict."""
    assert (unlike(a, b) is None) is (_ordered(a) == _ordered(b))


def _ordered(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{key!r}: {_ordered(one)}" for key, one in value.items())) + "}"
    return f"[{', '.join(map(_ordered, value))}]" if isinstance(value, list) else repr(value)


# ---- dataflows


def add(row: dict[str, Any]) -> dict[str, Any]:
    """One of two functions."""
    return row | {"p": 1}


class Counted:
    """With a state."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """Counts."""
        state["n"] = state.get("n", 0) + 1
        return row


def flow(*edits: str) -> Graph:
    """``S > A > K > out``, and the edits of a user."""
    build = DataflowBuilder("fraud")
    stream = build.source("S", rate(10))
    if "filter in front" in edits:
        stream = stream.filter("F", lambda row: True)
    function = (lambda row: row) if "function" in edits else add
    stream = stream.map("A", function, workers=4 if "workers" in edits else None)
    if "branch" in edits:
        stream.map("Rule", add).sink("alerts", memory())
    if "no state" not in edits:
        stream = stream.map("k" if "case" in edits else "K", Counted(), key="other" if "key" in edits else "value")
    stream.sink("out", parquet("elsewhere") if "sink" in edits else memory())
    return build.graph()


@pytest.mark.parametrize(
    ("edit", "lines", "shape"),
    [
        ("nothing", ["fraud: no difference"], False),
        ("function", ["fraud: 1 operator changed", "~ A: function: add -> lambda"], False),
        ("filter in front", ["fraud: 1 operator added, 2 edges added, 1 removed", "+ F (filter)", "+ S -> F, F -> A",
                             "- S -> A"], True),
        ("branch", ["fraud: 2 operators added, 2 edges added", "+ Rule (map)", "+ alerts (sink)",
                    "+ A -> Rule, Rule -> alerts"], True),
        ("no state", ["fraud: 1 operator removed, 1 edge added, 2 removed", "- K (map); its state is dropped",
                      "+ A -> out", "- A -> K, K -> out"], True),
        ("workers", ["fraud: 1 operator changed", "~ A: workers: 2 -> 4"], False),
        ("key", ["fraud: 1 operator changed, 1 edge changed", "~ K: key: value -> other; its state is kept",
                 "~ A -> K: key: value -> other"], True),
        ("sink", ["fraud: 1 operator changed", "~ out: function: Memory -> ParquetFiles"], True),
        ("case", ["fraud: 1 operator added, 1 removed, 2 edges added, 2 removed",
                  "+ k (map); it starts with an empty state", "- K (map); its state is dropped",
                  "+ A -> k, k -> out", "- A -> K, K -> out",
                  "operators are matched by name: K and k are two; did you mean K?"], True),
    ],
)  # fmt: skip
def test_each_edit_is_told(edit: str, lines: list[str], shape: bool) -> None:
    """A line for each operator and what becomes of its state; then the edges."""
    found = Difference.of(flow(), flow(edit))
    assert repr(found).splitlines() == lines
    assert (bool(found), found.has_new_shape) == (edit != "nothing", shape)
    assert set(found.functions) == ({"A"} if edit == "function" else set())
    back = Difference.of(flow(edit), flow())
    assert (back.added, back.removed) == (found.removed, found.added)
    assert back.edges_added == found.edges_removed
    svg = difference_svg(found)
    added = sum(name not in found.before for name in found.after)
    assert svg.count('data-state="added"') == added + bool(added)  # and in the legend
    assert svg.count('data-state="removed"') == len(found.removed) + bool(found.removed)


def test_operators_that_change_places_are_drawn_in_two_pictures() -> None:
    """Both dataflows in one would have a cycle."""

    def order(*names: str) -> Graph:
        build = DataflowBuilder("swap")
        stream = build.source("S", rate(1))
        for name in names:
            stream = stream.map(name, add)
        stream.sink("out", memory())
        return build.graph()

    found = Difference.of(order("A", "B"), order("B", "A"))
    assert united(found) is None
    assert difference_svg(found).count(">A<") == 2


class Sum:
    """The rows of a window are counted; a time's, too."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        state["n"] = state.get("n", 0) + self.factor

    def close(self, key: Any, time: int, state: dict[str, int]) -> dict[str, Any]:
        return {"key": key, "sum": state["n"]}


NAMES = pa.table({"key": [1, 2], "name": ["a", "b"]})
OTHERS = pa.table({"key": [1, 2], "name": ["a", "c"]})


def timed(factor: int = 1, size: float = 5, lateness: float = 0, table: pa.Table = NAMES, how: str = "inner") -> Graph:
    """A window, a reduce and a join."""
    flow = DataflowBuilder("timed")
    rows = flow.source("S", rate(10), time="ts")
    late = memory() if lateness else None
    summed = rows.window("W", Sum(factor), tumbling(size), key="key", lateness=lateness, late=late)
    summed.join("J", table, on="key", how=how).sink("out", memory())
    rows.reduce("R", Sum(factor), key="key").sink("sums", memory())
    return flow.graph()


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (timed(factor=2), {"W", "R"}),
        (timed(size=7), {"W"}),
        (timed(factor=2, size=7), {"W", "R"}),
        (timed(table=OTHERS), {"J"}),
    ],
)
def test_functions_of_windows_and_tables_are_changes_that_the_run_takes(after: Graph, names: set[str]) -> None:
    """What is found is accepted as a change, and once it runs there is no difference left."""
    before = timed()
    found = Difference.of(before, after)
    assert not found.has_new_shape
    assert set(found.functions) == names
    updates = as_updates(found.functions)
    check_updates(before, updates)
    runs = {
        name: following(before.operator(name).function, configured(before.operator(name), update))
        for name, update in updates.items()
    }
    assert not Difference.of(before, after, running=runs)


@pytest.mark.parametrize(
    ("after", "name", "words"),
    [
        (timed(lateness=3), "W", "lateness: 0 -> 3"),
        (timed(how="left"), "J", "how: inner -> left"),
    ],
)
def test_what_no_update_replaces_is_a_matter_of_shape(after: Graph, name: str, words: str) -> None:
    """It would be dropped without a word otherwise."""
    found = Difference.of(timed(), after)
    assert found.has_new_shape
    assert words in next(operator.words for operator in found.changed if operator.name == name)
    assert not found.functions
