"""Recent rows before and after a change, as a table for a notebook or a report: what differs is marked.

Long values and wide rows are cut for show; the DataFrame of ``Examples.table`` has all of them. Marks repeat what the
column ``result`` says, so nothing is told by colour alone.

>>> from fries_nb.changes.change_examples import Example
>>> one = Example("FM", 0, {"n": 1}, {"n": 1, "p": 0.5}, {"n": 1, "p": 0.25}, "differs", ("p",))
>>> shown = example_parts(Examples("u1", (one,), left_out="2 cannot be pickled"))
>>> "<mark>0.25</mark>" in shown, "2 cannot be pickled" in shown, shown.count("<th scope=")
(True, True, 4)
>>> shown_value("a" * 50), shown_value(None), shown_value(0.1 + 0.2)
('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...', 'null', '0.3')
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from fries_nb.changes.change_effect import ChangeEffect, EffectFigure
from fries_nb.changes.change_examples import Example, Examples
from fries_nb.report import markup
from fries_nb.report.markup import themed
from fries_nb.report.page import part
from fries_nb.telemetry.metrics import MISSING

MOST_COLUMNS = 8
"""Number of columns of the rows that came which are shown."""
MOST_LETTERS = 48
"""Length of a value beyond which it is cut."""
_LIGHT = {
    "table": "border-collapse: collapse; font-variant-numeric: tabular-nums",
    "caption": f"text-align: left; font-weight: 600; color: {markup.INK}; padding: 4px 0",
    "th, td": f"padding: 3px 8px; text-align: left; border-bottom: 1px solid {markup.LINE}; color: {markup.INK}",
    "mark": f"background: #fdf0d2; color: {markup.INK}; border-bottom: 2px solid {markup.ORANGE}",
}
_DARK = {
    "caption": f"color: {markup.NIGHT_INK}",
    "th, td": f"border-bottom-color: {markup.NIGHT_LINE}; color: {markup.NIGHT_INK}",
    "mark": f"background: #4a3a10; color: {markup.NIGHT_INK}",
}
_CSS = themed(".fries-examples", _LIGHT, _DARK)

Cell = tuple[str, bool]
"""A text, and whether it is marked."""


def example_parts(examples: Examples) -> Markup:
    """The rows of each operator as a table, with what they show in words, and why the change would be refused."""
    examples = examples.shown
    came = list(dict.fromkeys(name for one in examples.rows for name in one.came))
    changed, names = examples.changed, [name for name in came if name not in examples.changed]
    shown = names[:MOST_COLUMNS]
    operators = [
        (name, [list(_cells(one, shown, changed)) for one in examples.rows if one.operator == name])
        for name in dict.fromkeys(one.operator for one in examples.rows)
    ]
    sides = [f"{name} ({side})" for name in changed for side in ("before", "after")]
    hidden = f"{len(names) - len(shown)} more columns that came are in .table" if len(names) > len(shown) else ""
    lines = [words for words in (examples.words, hidden) if words]
    return part("examples", _CSS, [*shown, *sides, "result"], operators, lines, examples.refusal)


def _cells(example: Example, shown: Sequence[str], changed: Sequence[str]) -> Iterator[Cell]:
    for name in shown:
        yield shown_value(example.came.get(name, MISSING)), False
    one_sided = example.result in ("dropped", "added")
    for name in changed:
        for row in (example.before, example.after):
            is_marked = name in example.differs or (one_sided and row is not None)
            yield shown_value(MISSING if row is None else row.get(name, MISSING)), is_marked
    words = f"{example.result}: {example.error}" if example.error else example.result
    yield words, example.result not in ("same", "dropped as before")


def shown_value(value: Any) -> str:
    """A value as text, cut to ``MOST_LETTERS``; nothing where there is none."""
    if value is MISSING:
        return ""
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def effect_parts(effect: ChangeEffect) -> Markup:
    """The figures of a change's effect as a table; those that differ are marked."""
    effect = effect.shown
    groups = [
        (name, [list(_figures(one)) for one in effect.measures if one.operator == name])
        for name in dict.fromkeys(one.operator for one in effect.measures)
    ]
    return part("examples", _CSS, ["column", "measure", "before", "after"], groups, [effect.words], "")


def _figures(measure: EffectFigure) -> Iterator[Cell]:
    yield measure.column, False
    yield measure.name, False
    yield shown_value(MISSING if measure.before is None else measure.before), False
    yield shown_value(MISSING if measure.after is None else measure.after), measure.differs
