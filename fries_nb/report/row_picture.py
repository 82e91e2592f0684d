"""A table as SVG: a heading, and rows of short texts, for several widths.

Where the columns do not fit beside each other, a row takes several lines: its name, and below it all other cells, each
after the name of its column: a line for each text, and one for all numbers.

>>> columns = (TextColumn("operator"), TextColumn("rows", number=True))
>>> svg = rows_svg("What waits", columns, [("W", "12")], width=300)
>>> svg.count('<text class="cell'), 'aria-label="What waits. operator W: rows: 12"' in svg
(2, True)
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fries_nb.report import markup
from fries_nb.report.markup import FONT, escaped, number, picture, themed

_PAD, _LINE, _GAP, _RULE = 16.0, 19.0, 18.0, 6.0
_LETTER, _TITLE = 6.4, 30.0
_UNBROKEN = "\N{NO-BREAK SPACE}"

_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{FONT}; font-size: 11.5px; fill: {markup.SOFT}; font-variant-numeric: tabular-nums",
    ".title": f"font-size: 13px; font-weight: 600; fill: {markup.INK}",
    ".cell": f"fill: {markup.INK}",
    ".first": "font-weight: 600",
    ".number": "text-anchor: end",
    ".rule": f"stroke: {markup.LINE}; stroke-width: 1px",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".title, .cell": f"fill: {markup.NIGHT_INK}",
    ".rule": f"stroke: {markup.NIGHT_LINE}",
}
_CSS = themed(".fries-rows-svg", _LIGHT, _DARK)

Cells = tuple[str, ...]


@dataclass(frozen=True)
class TextColumn:
    """A column; numbers are aligned to the right."""

    name: str
    number: bool = False


def rows_svg(title: str, columns: Sequence[TextColumn], rows: Sequence[Cells], width: float = 760.0) -> str:
    """Draw a table; its first column has the names of rows."""
    body, height = _beside(columns, rows, width) or _below(columns, rows, width)
    heading = f'<text class="title" x="{number(_PAD)}" y="{number(_TITLE - 8)}">{escaped(title)}</text>'
    alt_text = ". ".join([title, *(_read_aloud(columns, row) for row in rows)])
    return picture("rows", (width, height), alt_text, _CSS, heading, body)


def _read_aloud(columns: Sequence[TextColumn], row: Sequence[str]) -> str:
    return f"{columns[0].name} {row[0]}: {', '.join(_named(columns, row))}"


def _named(columns: Sequence[TextColumn], row: Sequence[str]) -> list[str]:
    """The cells behind the first one that are not empty, with the names of their columns."""
    return [f"{column.name}: {cell}" for column, cell in zip(columns[1:], row[1:], strict=True) if cell]


def _beside(columns: Sequence[TextColumn], rows: Sequence[Cells], width: float) -> tuple[str, float] | None:
    """The columns beside each other, and the height of the drawing; ``None`` if they do not fit."""
    heads = tuple(column.name for column in columns)
    widths = [max(map(len, cells)) * _LETTER for cells in zip(heads, *rows, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > width - 2 * _PAD:
        return None
    starts = [_PAD + sum(widths[:place]) + _GAP * place for place in range(len(widths))]
    spots = [
        start + own if column.number else start for column, start, own in zip(columns, starts, widths, strict=True)
    ]
    parts = list(_line(columns, heads, spots, _TITLE + _LINE - 5, ""))
    for place, row in enumerate(rows):
        y = _TITLE + _RULE + _LINE * (place + 2) - 5
        parts += _line(columns, row, spots, y, "cell")
    rule = f'<path class="rule" d="M{number(_PAD)} {number(_TITLE + _LINE + 2)} H{number(width - _PAD)}"/>'
    return "".join([rule, *parts]), _TITLE + _RULE + _LINE * (len(rows) + 1) + _PAD / 2


def _line(
    columns: Sequence[TextColumn], cells: Sequence[str], spots: Sequence[float], y: float, kind: str
) -> Iterator[str]:
    for place, (column, cell, x) in enumerate(zip(columns, cells, spots, strict=True)):
        words = " ".join(filter(None, [kind, "number" if column.number else "", "" if place or not kind else "first"]))
        yield f'<text class="{words}" x="{number(x)}" y="{number(y)}">{escaped(cell)}</text>'


def _below(columns: Sequence[TextColumn], rows: Sequence[Cells], width: float) -> tuple[str, float]:
    """The cells of each row below its name, and the height of the drawing."""
    parts, y, letters = [], _TITLE, int((width - 2 * _PAD) / _LETTER)
    for row in rows:
        lines = [line for words in _paragraphs(columns, row) for line in textwrap.wrap(words, letters)]
        for place, line in enumerate(lines):
            y += _LINE
            kind = "" if place else "cell first"
            parts.append(f'<text class="{kind}" x="{number(_PAD)}" y="{number(y - 5)}">{escaped(line)}</text>')
        y += _RULE
    return "".join(parts), y + _PAD / 2


def _paragraphs(columns: Sequence[TextColumn], row: Cells) -> list[str]:
    texts = [cell if not column.number else "" for column, cell in zip(columns, row, strict=True)]
    numbers = [cell if column.number else "" for column, cell in zip(columns, row, strict=True)]
    together = [text.replace(" ", _UNBROKEN) for text in _named(columns, numbers)]
    return [row[0], *_named(columns, texts), f"{_UNBROKEN}· ".join(together)]
