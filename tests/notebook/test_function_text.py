"""The text of what an operator runs, and the value of a text, in a real IPython."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told

from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.operators import batched
from fries_nb.notebook.function_text import FunctionText, TextError, running_text, text_of, value_of
from fries_nb.workloads.fraud import Combine, MerchantModel

FM = Operator("FM", key=("k",))
NAMED = """class Named:
    def __init__(self, window): self.window = window
    def __call__(self, row): return row"""
MADE = """
import functools, fries_nb as fn
limit = 3
def plain(row):
    # why
    return row | {"p": limit}
@fn.batched
def whole(batch):
    return batch
class Model:
    '''Remembers.'''
    def __init__(self, window, share=0.5): self.size = window
    def process(self, row, state): return row
    def score(self, row): return row
class Bare:
    def __call__(self, row): return row
def closing(factor, model):
    def closed(row):
        return row | {"p": factor}
    def opened(row):
        return model(row)
    return closed, opened, lambda row: {"p": factor}
two = (lambda row: 1, lambda row: {"p": 2})
bracketed = dict(f=lambda row:
    row | {"p": 3})["f"]
wide = (lambda row: {
    "中": "文", "p": 4})
"""


@pytest.fixture
def names(shell: InteractiveShell) -> dict[str, Any]:
    """What a cell has made."""
    told(shell, MADE + NAMED)
    return shell.user_ns


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("plain", 'def plain(row):\n    # why\n    return row | {"p": limit}'),
        ("whole", "@fn.batched\ndef whole(batch):\n    return batch"),
        ("two[0]", "lambda row: 1"),
        ("two[1]", 'lambda row: {"p": 2}'),
        ("bracketed", '(\n    lambda row:\n    row | {"p": 3}\n)'),
        ("wide", 'lambda row: {\n"中": "文", "p": 4}'),
        ("closing(2, len)[0]", 'factor = 2\ndef closed(row):\n    return row | {"p": factor}'),
        ("closing(2, len)[2]", 'factor = 2\nlambda row: {"p": factor}'),
        ("Named(window=2)", f"{NAMED}\n\nNamed(window=2)"),
        ("Bare()", "class Bare:\n    def __call__(self, row): return row\n\nBare()"),
        ("dict", "dict"),
    ],
)  # fmt: skip
def test_what_a_cell_has_made_is_its_text_which_makes_it_again(
    names: dict[str, Any], expression: str, text: str
) -> None:
    """And its own text again, of which the cell has the definition."""
    for made in (eval(expression, names), value_of("FM", text, names)):
        shown = text_of(FM, made, names)
        assert (shown.text, shown.note) == (text, "")
    assert text_of(FM, eval(expression, names), names).cell in ("", text, text.rpartition("\n\n")[0])


@pytest.mark.parametrize(
    ("expression", "words", "text"),
    [
        ("Model(4)", "how this Model was made is not known", "\n\nModel(...)"),
        ("closing(2, len)[1]", "model: known only where the function was made", "return model(row)"),
        ("functools.partial(plain)", "it is a partial of plain", "def FM("),
        ("Model(4).score", "the source of score is not to be had", "def FM(row):\n    return row"),
        ("len", "the source of len is not to be had", "def FM(obj):\n    return obj"),
    ],
)
def test_what_is_not_known_is_said(names: dict[str, Any], expression: str, words: str, text: str) -> None:
    """In one sentence; an empty new function has the signature of the present one."""
    shown = text_of(FM, eval(expression, names), names)
    assert words in shown.note
    assert text in shown.text


@pytest.mark.parametrize("cell", [
    "%%fries_dataflow other\nflow.source('s', fn.rate(1)).map('FM', Model(4, share=0.25)).sink('o', fn.memory())",
    "FM = Model(4, share=0.25)",
])  # fmt: skip
def test_the_newest_cell_that_may_have_made_an_object_has_its_call(
    shell: InteractiveShell, names: dict[str, Any], cell: str
) -> None:
    """One with other values has not made it, nor one with an error of syntax."""
    for one in (cell, "FM = Other(1)", "FM = (Model(4)"):
        shell.run_cell(one, store_history=True)
    made = names["Model"](4, share=0.25)
    made.share = 0.25
    assert text_of(FM, made, names).text.endswith("\n\nModel(4, share=0.25)")
    made.share = 0.5
    assert text_of(FM, made, names).text.endswith("\n\nModel(...)")


def test_objects_of_modules_are_their_call_and_tables_their_name() -> None:
    """Their class is edited in its module."""
    assert text_of(FM, MerchantModel(window=6), {}) == FunctionText("MerchantModel(window=6, cost_ms=0.0)")
    assert text_of(FM, Combine([0.4, 0.6]), {}).text.startswith("Combine(")
    join = Operator("J", kind=Kind.JOIN)
    assert text_of(join, "/data/it's", {}).text == repr("/data/it's")
    assert "expected" not in text_of(join, functools.partial(len), {}).note
    assert text_of(FM, batched(abs), {}).text.startswith("def FM(x):")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("lambda row: row +", 1, "FM, line 1: invalid syntax"),
        ("def f(row):\n    return (row", 2, "FM, line 2: '(' was never closed"),
        ("limit = 1\nlimit / 0\nlambda row: row", 2, "FM, line 2: ZeroDivisionError: division by zero"),
        ("def f(row):\n    return row\n\nf(limt)", 4, "name 'limt' is not defined; did you mean 'limit'?"),
        ("def f():\n    raise SystemExit('bye')\nf()", 2, "FM, line 2: SystemExit: bye"),
        ("", 0, "FM: the text is empty"),
        ("x = 1", 1, "FM, line 1: the text has no value"),
        ("Model(...)", 1, "put the arguments in place of ..."),
        ("Model(window=...)", 1, "put the arguments in place of ..."),
        ("lambda row: '\0'", 1, "null bytes"),
    ],
)
def test_an_error_says_its_line(text: str, line: int, said: str) -> None:
    """The user's namespace is as before."""
    names: dict[str, Any] = {"limit": 3}
    with pytest.raises(TextError) as error:
        value_of("FM", text, names)
    assert said in str(error.value)
    assert error.value.line == line
    assert names == {"limit": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lambda row: limit", 3),
        ("limit = 5\nlambda row: limit", 5),
        ("def f(row): return limit\nlimit = 6", 6),
        ("def f(row): return 1\ndef g(row): return f(row) + 1", 2),
        ("def f(row): return 1\nf", 1),
    ],
)
def test_the_value_is_the_last_expression_or_what_is_defined_last(text: str, value: int) -> None:
    """In a copy of the namespace."""
    names = {"limit": 3}
    made: Callable[[Any], int] = value_of("FM", text, names)
    assert made({}) == value
    assert names == {"limit": 3}


def test_the_text_of_a_run_follows_its_changes(
    shell: InteractiveShell, with_fraud: None, stand_ins: list[StandIn]
) -> None:
    """The function of the last change that is done; of one that nobody remembers, that it is not known."""
    told(shell, "%fries_run")
    [run] = stand_ins
    of = functools.partial(running_text, run, "FM", shell.user_ns)
    first = of().text
    assert first.startswith("class Score:\n    def __init__(self, version)")
    assert first.endswith("\n\nScore(version=1)")
    text = "class Score:\n    def __call__(self, row): return 2\n\nScore()"
    change = run.reconfigure({"FM": value_of("FM", text, shell.user_ns)})
    assert of().text == text
    told(shell, "%fries_reconfigure FM=Score(int('7')) --wait 0")
    assert of().text == first.replace("version=1", "int('7')")
    run.rollback(change)
    assert of().text == first
    run.made = run.made[:1]
    monkey = run.functions()
    run.functions = lambda: {"FM": monkey["FM"].__class__("FM", "Score(2)", "u9", 0.0)}  # type: ignore[method-assign]
    assert "Score(2) runs by u9, of which this run keeps nothing" in of().note


def test_a_function_with_a_ttl_is_shown_without_what_holds_both() -> None:
    """As one with windows is: what is typed in its place keeps the ttl."""
    assert text_of(FM, Expiring(MerchantModel(window=6), 60), {}) == text_of(FM, MerchantModel(window=6), {})
