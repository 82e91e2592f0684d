r"""The parts that all pictures share: stacked drawings, widths of text, and colours for light and dark pages.

>>> both = stacked('<svg width="20" height="5"/>', '<svg width="7" height="4.5"/>')
>>> print(both.replace("><", ">\n<"))
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 9.5" width="20" height="9.5">
<svg y="0" width="20" height="5"/>
<svg y="5" width="7" height="4.5"/>
</svg>

The widths of text are an upper bound in any browser, so that names that users choose stay in their boxes.

A picture is laid out before it is known in which font it will be shown. The widths here are those of DejaVu Sans Bold,
as measured in Chromium, the widest of the fonts that ``FONT`` asks for; East Asian letters are as wide as high in
all fonts. Text in narrower fonts has a little more room around it.

>>> round(text_width("FM", 13, bold=True)), round(text_width("客户", 13, bold=True))
(24, 26)
>>> fitted("MERCHANT_MODEL", 80, 13, bold=True), fitted("FM", 80, 13)
('MERCH…', 'FM')

A picture states its colours directly (not as CSS variables, which few programs except browsers support), and again for
dark pages: by the reader's system setting, and by JupyterLab's own theme, which overrides the system setting.

>>> print(themed(".p", {"text": "fill: #000"}, {"text": "fill: #fff"}))
.p text { fill: #000 }
@media (prefers-color-scheme: dark) { .p text { fill: #fff } }
[data-jp-theme-light="true"] .p text { fill: #000 }
[data-jp-theme-light="false"] .p text { fill: #fff }

A table as SVG: a heading, and rows of short texts, for several widths.

Where the columns do not fit beside each other, a row takes several lines: its name, and below it all other cells, each
after the name of its column: a line for each text, and one for all numbers.

>>> columns = (TextColumn("operator"), TextColumn("rows", number=True))
>>> svg = rows_svg("What waits", columns, [("W", "12")], width=300)
>>> svg.count('<text class="cell'), 'aria-label="What waits. operator W: rows: 12"' in svg
(2, True)

A self-contained HTML page: no script, no network access, no other files; follows the reader's light or dark mode.

``page.jinja`` is what all pages share; ``run.jinja`` and ``comparison.jinja`` have the words of each.

>>> part("next_step", "a < b")
Markup('<p>Next: <code>a &lt; b</code></p>')
>>> rendered("page.jinja", title="A & B", contents="two").startswith('<!DOCTYPE html>\n<html lang="en">')
True

Frames that a reader steps through, without script: one is shown at a time, with buttons for its neighbours.

The frames follow each other in a form whose radio buttons choose one; style rules (``stepper.css``) turn the labels of
its neighbours into ``Previous`` and ``Next``. Keys work as for all radio buttons: Tab enters the group, arrows step. A
form keeps the radio buttons of several displays on one page apart. Where style rules are missing (an untrusted
notebook), where the browser does not know them, and in print, all frames are shown one below the other.

>>> html = part("stepper", "Two frames", ["first", "second"])
>>> html.count('type="radio"'), html.count("checked>"), "Step 2 of 2" in html
(2, 1, True)
"""

from __future__ import annotations

import os
import platform
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from html import escape
from importlib.metadata import version
from os import PathLike
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fries_nb.errors import RunError
from fries_nb.running.results import Place
from fries_nb.words import counted, milliseconds

_STYLE = re.compile("<style>.*?</style>", re.DOTALL)
_SIZE = re.compile(r'<svg\b[^>]*?\swidth="([\d.]+)" height="([\d.]+)"')


def inline(drawing: str) -> Markup:
    """An SVG element within markup. In an untrusted notebook only its text remains: spaces keep labels apart."""
    return Markup(str(drawing).replace("</title>", "</title> ").replace("</text>", "</text> "))


def in_one_style(drawings: Iterable[str]) -> Iterator[str]:
    """The drawings of one kind for one page: the style of the first applies to all."""
    for index, drawing in enumerate(drawings):
        yield _STYLE.sub("", drawing) if index else drawing


def stacked(*drawings: str) -> str:
    """Stack SVG elements vertically into one; each must declare its width and height."""
    width = height = 0.0
    parts = []
    for drawing in drawings:
        size = _SIZE.match(drawing)
        assert size is not None, drawing[:200]
        parts.append(drawing.replace("<svg ", f'<svg y="{height:g}" ', 1))
        width, height = max(width, float(size[1])), height + float(size[2])
    extent = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {extent}>{"".join(parts)}</svg>'


ELLIPSIS = "…"
_EMS = {
    0.42: " ,./:;IJijl|\\'-f",
    0.53: '!()[]"*_`rt',
    0.6: "csz?",
    0.72: "0123456789abdeghknopquvxy{}$SFETL",
    1.11: "MWm%@w" + ELLIPSIS,
}
_EM_OF = {letter: em for em, letters in _EMS.items() for letter in letters}
_OTHERS, _WIDE, _EMOJI = 0.87, 1.0, 1.4
_REGULAR = 0.9
"""Width of text that is not bold, relative to bold text."""
_FIRST_EMOJI = "\U0001f000"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """The width of a line in pixels, at most."""
    return sum(map(_em, text)) * size * (1.0 if bold else _REGULAR)


def fitted(text: str, width: float, size: float, bold: bool = False) -> str:
    """The text, cut to a width; an ellipsis stands for what is missing."""
    if text_width(text, size, bold) <= width:
        return text
    left = width - text_width(ELLIPSIS, size, bold)
    for end, letter in enumerate(text):
        left -= text_width(letter, size, bold)
        if left < 0:
            return text[:end] + ELLIPSIS
    return text


def all_fitted(lines: Iterable[str], width: float, size: float, bold: bool = False) -> list[str]:
    """Each of the lines, cut to a width; see ``fitted``."""
    return [fitted(line, width, size, bold) for line in lines]


@lru_cache(maxsize=4096)
def _em(letter: str) -> float:
    """The width of a letter in ems; an accent that is drawn above another letter has none."""
    if letter in _EM_OF:
        return _EM_OF[letter]
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return _EMOJI if letter >= _FIRST_EMOJI else _WIDE
    parts = unicodedata.normalize("NFKD", letter)
    return _OTHERS if parts == letter else sum(map(_em, parts))


FONT = "font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"

# The palette of Okabe and Ito, which is distinguishable with colour blindness.
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8b949e"
"""A neutral grey, legible on light and on dark pages."""
PAPER, INK, SOFT, LINE, BAND = "#ffffff", "#1b1f24", "#57606a", "#d0d7de", "#f3f5f7"
NIGHT_PAPER, NIGHT_INK, NIGHT_SOFT, NIGHT_LINE, NIGHT_BAND = "#15191e", "#e6e9ed", "#a3acb8", "#3a424c", "#232a32"

_ILLEGAL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


def themed(scope: str, light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """CSS rules below a selector: from selectors to declarations, of which dark pages override some."""

    def rules(where: str, declared: Mapping[str, str]) -> str:
        return " ".join(f"{_within(where, selector)} {{ {said} }}" for selector, said in declared.items())

    inside = f"{scope} "
    return "\n".join(
        [
            rules(inside, light),
            f"@media (prefers-color-scheme: dark) {{ {rules(inside, dark)} }}",
            rules(f'[data-jp-theme-light="true"] {inside}', light),
            rules(f'[data-jp-theme-light="false"] {inside}', dark),
        ]
    )


def _within(where: str, selectors: str) -> str:
    """Each selector of a group, prefixed with ``where``."""
    return ", ".join(f"{where}{selector.strip()}" for selector in selectors.split(","))


def escaped(text: str) -> str:
    """The text escaped for XML, inside and outside of quotes; characters that XML excludes become �."""
    # XML normalises unescaped tabs and line ends in attribute values to spaces.
    return escape(_ILLEGAL.sub("\ufffd", text)).replace("\n", "&#10;").replace("\t", "&#9;")


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def picture(kind: str, size: tuple[float, float], alt_text: str, css: str, *contents: str, role: str = "img") -> str:
    """A drawing on paper as SVG: its class is ``fries-<kind>-svg``, and ``alt_text`` is read aloud in its place."""
    width, height = map(number, size)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fries-{kind}-svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="{role}" aria-label="{escaped(alt_text)}"><style>{css}</style>'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>{"".join(contents)}</svg>'
    )


_PAD, _LINE, _GAP, _RULE = 16.0, 19.0, 18.0, 6.0
_LETTER, _TITLE = 6.4, 30.0
_UNBROKEN = "\N{NO-BREAK SPACE}"

_LIGHT = {
    ".paper": f"fill: {PAPER}",
    "text": f"{FONT}; font-size: 11.5px; fill: {SOFT}; font-variant-numeric: tabular-nums",
    ".title": f"font-size: 13px; font-weight: 600; fill: {INK}",
    ".cell": f"fill: {INK}",
    ".first": "font-weight: 600",
    ".number": "text-anchor: end",
    ".rule": f"stroke: {LINE}; stroke-width: 1px",
}
_DARK = {
    ".paper": f"fill: {NIGHT_PAPER}",
    "text": f"fill: {NIGHT_SOFT}",
    ".title, .cell": f"fill: {NIGHT_INK}",
    ".rule": f"stroke: {NIGHT_LINE}",
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


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {"counted": counted, "inline": inline, "milliseconds": milliseconds}
    return found


def rendered(template: str, **values: object) -> str:
    """A page by a template; text is escaped."""
    return _templates().get_template(template).render(values)


def part(name: str, *values: object) -> Markup:
    """What the macro ``name`` of ``parts.jinja`` makes of values; text among them is escaped."""
    macro: Callable[..., str] = getattr(_templates().get_template("parts.jinja").module, name)
    return Markup(macro(*values))


def setting_words(place: Place) -> str:
    """The setting in one line, with the versions of the software."""
    software = f"Python {platform.python_version()}, PySpark {version('pyspark')}, fries_nb {version('fries_nb')}"
    machine = f"{platform.system()} {platform.machine()} with {counted(os.cpu_count() or 1, 'core')}"
    credit = f"{place.budget / (1 << 20):,.3g} MiB of credit a host"
    began = f"Begun {datetime.fromtimestamp(place.began_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{began} · {counted(place.hosts, 'host')}, {credit} · {software} · {machine}"


def writable(path: str | PathLike[str]) -> Path:
    """The path, if a file can be written there."""
    chosen = Path(path)
    if not chosen.parent.is_dir() or chosen.is_dir():
        raise RunError(f"cannot write a report to {str(path)!r}; expected a file name in a directory that exists")
    return chosen


def write_page(path: str | PathLike[str], text: str) -> str:
    """Write the document to a file and return its path."""
    try:
        writable(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write a report to {str(path)!r}: {error.strerror}") from None
    return str(path)
