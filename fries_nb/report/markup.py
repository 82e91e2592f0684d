"""Markup from values; all text is escaped.

>>> tag("p", "a < b, ", tag("b", "bold"), class_="note")
'<p class="note">a &lt; b, <b>bold</b></p>'
>>> milliseconds(3.14159), milliseconds(4213.2), milliseconds(None)
('3.1 ms', '4,213 ms', '-')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

NONE = "-"


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
    return tag("figure", Html(drawing), tag("figcaption", *caption))


def counted(number: int, noun: str) -> str:
    """A count with its noun: ``1 tuple``, ``2,000 tuples``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    """A duration in milliseconds, with a tenth if that is significant."""
    if value is None:
        return NONE
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


def _kind(column: Column) -> str:
    return "number" if column.number else "text"
