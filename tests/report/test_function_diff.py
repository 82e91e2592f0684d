"""Differences of functions: sources of files and cells, attributes, and bounds on both."""

from __future__ import annotations

import functools
import linecache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.dataflow.windowing import WindowFunction
from fries_nb.report.change_rows import MOST_CHARS, MOST_SHOWN, diff_html, function_diff
from fries_nb.workloads.fraud import Combine, MerchantModel

CLASS = """
import dataclasses

@dataclasses.dataclass
class Model:
    window: int = 5

    def process(self, row):
        return row{more}
"""


def cell(name: str, text: str) -> dict[str, Any]:
    """The names that a cell of a notebook defines: its text is in the line cache only, under a name of its own."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), names)
    return names


def test_functions_of_cells_have_a_diff_of_their_sources() -> None:
    """So have lambdas in expressions, vectorised functions and partial ones."""
    old = cell("<cell 1>", "def score(row):\n    row['p'] = 1\n    return row\n")["score"]
    new = cell("<cell 2>", "x = 1\ndef score(row):\n    row['p'] = 2\n    return row\n")["score"]
    lines = ["--- score", "+++ score", "@@ -1,3 +1,3 @@", " def score(row):"]
    lines += ["-    row['p'] = 1", "+    row['p'] = 2", "     return row"]
    assert function_diff(old, new).splitlines() == lines
    assert function_diff(fn.batched(old), fn.batched(new)).splitlines() == lines
    assert function_diff(functools.partial(old, 3), functools.partial(new, 4)).splitlines() == [
        *lines, "args: (3,) -> (4,)",
    ]  # fmt: skip
    one, two = (cell(f"<FM {text}>", f"f = [({text}\n)]")["f"][0] for text in ("lambda row: 1", "lambda row: 2"))
    assert "+f = [(lambda row: 2" in function_diff(one, two)


def test_classes_of_cells_are_compared_as_well_as_their_objects() -> None:
    """A class that was defined anew has a source; one that was not has attributes only."""
    old, new = (cell(f"<class {more}>", CLASS.format(more=more))["Model"] for more in (" | {}", " | {1: 2}"))
    text = function_diff(old(), new(10))
    assert "-        return row | {}\n+        return row | {1: 2}\nwindow: 5 -> 10" in text
    assert "@dataclasses.dataclass" not in text
    assert function_diff(MerchantModel(window=5), MerchantModel(window=10)) == "window: 5 -> 10"
    text = function_diff(Combine((0.4, 0.6)), MerchantModel())
    assert "-class Combine:" in text
    assert "+class MerchantModel:" in text
    assert "weights" not in text.rpartition("\n")[2]


def test_the_windows_of_a_window_are_told() -> None:
    """With the attributes of its function."""
    before = WindowFunction(MerchantModel(), fn.tumbling(60))
    after = WindowFunction(MerchantModel(window=10), fn.tumbling(30))
    assert function_diff(before, after).splitlines() == [
        "windowing: Windowing(size=60, every=60) -> Windowing(size=30, every=30)", "window: 5 -> 10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"), [(len, sorted), (len, Combine), (Path, Path), (print, None), (3, "x"), (pa.table({}), len)]
)
def test_where_nothing_can_be_told_the_text_is_empty(before: Any, after: Any) -> None:
    """Functions without a source, and what is no function."""
    assert function_diff(before, after) == ""


class Odd:
    """An object whose attributes do not like to be shown."""

    def __init__(self, given: Any) -> None:
        self.given = given


class Raises:
    """An object without a text."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Huge:
    """An object with a long one."""

    def __repr__(self) -> str:
        return "x" * 10_000_000


def test_odd_and_large_objects_do_no_harm() -> None:
    """Of a text that raises the class is named; a long one, a long source and a long line are cut."""
    assert function_diff(Odd(1), Odd(Raises())) == "given: 1 -> <Raises instance>"
    assert len(function_diff(Odd(Huge()), Odd(2))) < 120
    assert function_diff(Odd(object()), Odd(object())) == ""
    long = "def f(row):\n" + "    row = 1\n    row = 2\n" * 50_000
    old, new = (cell(f"<long {end}>", long.replace("2", end))["f"] for end in "34")
    lines = function_diff(old, new).splitlines()
    assert len(lines) == MOST_SHOWN + 1
    assert lines[-1].startswith("... and ")
    text = 'def f(row):\n    """{}\n' + "".join(f"    {line}\n" for line in range(5_000)) + '    """\n'
    old, new = (cell(f"<text {end}>", text.format(end))["f"] for end in "ab")
    assert function_diff(old, new).splitlines()[-1] == "... of which the first 1,000 lines are compared"
    wide = [cell(f"<wide {end}>", f"def f(row):\n    return '{'x' * 1_000_000}{end}'\n")["f"] for end in "ab"]
    assert max(map(len, function_diff(*wide).splitlines())) == MOST_CHARS


def test_a_difference_is_shown_as_text_whatever_is_in_it() -> None:
    """Nothing in it becomes markup, and the letters are kept beside the colours."""
    shown = diff_html("-a <b>\n+</style><script>\n c")
    assert "<b>" not in shown
    assert shown.count("<script") == 0
    assert '<span class="removed">-a &lt;b&gt;</span>\n' in shown
