"""What a page shows of a run's rows and states: tables of texts, without widgets.

Columns that the run hides are masked, as in the HTML of the DataFrames of which the tables are made. Long values are
cut, and so are wide rows: what a table says of each row or key stays, of the user's own columns the first ones do.
The questions wait for workers, at most ``ASK_S``; they raise what the methods of the run raise.

>>> from fries_nb.running.shown_table import shown_table
>>> seen = shown_table({"CARD_NO": [4000], "n": [7], "_side": ["in"], "_source": [("numbers", 0, 2506)]}, {"CARD_NO"})
>>> found = text_table(seen)
>>> found.columns, found.rows
(('_side', 'CARD_NO', '#n', '_source'), (('in', '•••', '7', 'numbers, 0, 2506'),))
>>> found.sources
(('numbers', 0, 2506),)
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fries_nb.run import Run

ASK_S = 2.0
"""Seconds that a question waits for the workers."""
ROWS, KEYS = 20, 100
"""Number of rows of each side, and of keys, that are shown at most."""
MOST_COLUMNS = 24
"""Number of the user's columns that are shown at most."""
MOST_CHARS = 40
"""Length of a value that is shown at most."""
Source = tuple[str, int, int]
"""The source, split and row of a source row."""
_FIRST = ("_operator", "_side")
_LAST = ("_version", "_worker", "_time", "_source", "_start", "_end", "_bytes", "_bin")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MOST_CHARS


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        columns: the headings; those of columns of numbers begin with ``#``.
        rows: the cells of each row.
        sources: for each row the source row that it is or derives from; empty if no row tells.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    sources: tuple[Source | None, ...] = ()


def newest_rows(run: Run, operator: str) -> TextTable:
    """The newest rows in and out of an operator; raises as ``run.rows``."""
    return text_table(run.rows(operator, ROWS, timeout=ASK_S))


def way_of(run: Run, source: Source) -> TextTable:
    """What became of a source row, operator by operator; raises as ``run.rows``."""
    return text_table(run.rows(source=source, timeout=ASK_S))


def newest_states(run: Run, operator: str) -> TextTable:
    """The states of an operator's newest keys; raises as ``run.state("FM")``."""
    return text_table(run.state(operator, n=KEYS, timeout=ASK_S))


def state_sizes(run: Run) -> TextTable:
    """How much state each operator keeps; raises as ``run.state_sizes``."""
    return text_table(run.state_sizes(timeout=ASK_S))


def text_table(table: Any) -> TextTable:
    """A pandas DataFrame as it is shown here; see the module."""
    from fries_nb.running.shown_table import as_shown  # imports pandas, which takes long

    shown = as_shown(table)
    names = _columns(list(shown))
    headings = [_heading(name, shown[name].dtype.kind in "iuf") for name in names]
    rows = zip(*([text_of(value) for value in shown[name]] for name in names), strict=True)
    more = len(shown.columns) - len(names)
    cells = tuple((*row, "...") if more else row for row in rows)
    sources = tuple(one if isinstance(one, tuple) else None for one in table.get("_source", ()))
    return TextTable((*headings, f"{more} more columns") if more else tuple(headings), cells, sources)


def text_of(value: Any) -> str:
    """A value in at most about ``MOST_CHARS`` characters; empty if it is missing.

    >>> text_of(None), text_of("a" * 50), text_of(["x"] * 50), text_of(0.5), text_of(float("nan"))
    ('', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...', "['x', 'x', 'x', 'x', 'x', 'x', ...]", '0.5', '')
    """
    from pandas import isna

    if value is None or (not hasattr(value, "__len__") and isna(value) is True):
        return ""
    if isinstance(value, tuple) and all(isinstance(part, str | int) for part in value):
        text = ", ".join(map(str, value[:MOST_CHARS]))
    elif isinstance(value, str):
        text = value[: MOST_CHARS + 1]
    elif isinstance(value, list | tuple | dict | set | frozenset | bytes):
        return _SHORT.repr(value)
    else:
        text = exact if len(exact := _plain(value)) <= MOST_CHARS else _SHORT.repr(value)
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."


def _plain(value: Any) -> str:
    """Numbers and times as text; the ``str`` of others is users' code, and may be long."""
    known = isinstance(value, float) or hasattr(value, "isoformat") or hasattr(value, "dtype")
    return str(value) if known else _SHORT.repr(value)


def _columns(names: Sequence[Any]) -> list[Any]:
    """The columns that are shown, in order: the row's own ones, as many as fit, between those that say where it was."""
    own = [name for name in names if name not in _FIRST and name not in _LAST]
    first, last = ([name for name in said if name in names] for said in (_FIRST, _LAST))
    return [*first, *own[:MOST_COLUMNS], *last]


def _heading(name: Any, is_number: bool) -> str:
    """A heading; one more ``#`` says of a name that begins with it that it is meant."""
    text = text_of(str(name))
    return f"#{text}" if is_number or text.startswith("#") else text
