r"""Markup from values; all text is escaped.

>>> tag("p", "a < b, ", tag("b", "bold"), class_="note")
'<p class="note">a &lt; b, <b>bold</b></p>'
>>> milliseconds(3.14159), milliseconds(4213.2), milliseconds(None)
('3.1 ms', '4.2 s', '-')
>>> both = stacked('<svg width="20" height="5"/>', '<svg width="7" height="4.5"/>')
>>> print(both.replace("><", ">\n<"))
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 9.5" width="20" height="9.5">
<svg y="0" width="20" height="5"/>
<svg y="5" width="7" height="4.5"/>
</svg>
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from fries_nb.durations import duration

NONE = "-"
_SIZE = re.compile(r'<svg\b[^>]*?\swidth="([\d.]+)" height="([\d.]+)"')


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers are right-aligned."""

    name: str
    number: bool = False


def tag(name: str, *children: str, **attributes: str) -> Html:
    """An element; in attribute names a trailing underscore is dropped, and other underscores become hyphens."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """The concatenation of markup and text."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def section(heading: str, *children: str) -> Html:
    """A section of the page with a second-level heading."""
    return tag("section", tag("h2", heading), *children)


def listed(items: Iterable[str]) -> Html:
    """A bulleted list."""
    return tag("ul", *(tag("li", item) for item in items))


def defined(terms: Iterable[tuple[str, str]]) -> Html:
    """A list of terms and their definitions."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", meaning)) for term, meaning in terms))


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Html:
    """A table whose first column holds row headings; it scrolls on narrow pages."""
    head = tag("tr", *(tag("th", column.name, scope="col", class_=_kind(column)) for column in columns))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=_kind(column)) for column, cell in zip(columns[1:], row[1:], strict=True)),
        )
        for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="wide", role="region", aria_label=caption, tabindex="0")


def figure(drawing: str, *caption: str) -> Html:
    """An SVG element with a caption."""
    return tag("figure", inline(drawing), tag("figcaption", *caption))


def inline(drawing: str) -> Html:
    """An SVG element within markup. In an untrusted notebook only its text remains: spaces keep labels apart."""
    return Html(drawing.replace("</title>", "</title> ").replace("</text>", "</text> "))


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


def counted(number: int, noun: str) -> str:
    """A count with its noun: ``1 tuple``, ``2,000 tuples``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    """A duration that is known in milliseconds, or a dash."""
    return NONE if value is None else duration(value / 1_000)


def _kind(column: Column) -> str:
    return "number" if column.number else "text"
