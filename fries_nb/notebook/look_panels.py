"""The panels that look into operators: the newest rows in and out, and the states of keys.

Workers are asked only while a page says that it shows the panel (see ``TableView``): twice a second at most, one
question at a time, in a thread of its own, with a short time limit. So neither the kernel nor the thread that updates
the view waits, and a hidden tab, a closed page or a closed view asks nothing. Of a run that is over, what its hosts
have left is asked for once. What cannot be shown says so in place of its table.

What a page shows of a run's rows and states: tables of texts, without widgets.

Columns that the run hides are masked, as in the HTML of the DataFrames of which the tables are made. Long values are
cut, and so are wide rows: what a table says of each row or key stays, of the user's own columns the first ones do.
The questions wait for workers, at most ``ASK_S``; they raise what the methods of the run raise.

>>> from fries_nb.dataflow.shown_table import shown_table
>>> seen = shown_table({"CARD_NO": [4000], "n": [7], "_side": ["in"], "_source": [("numbers", 0, 2506)]}, {"CARD_NO"})
>>> found = text_table(seen)
>>> found.columns, found.rows
(('_side', 'CARD_NO', '#n', '_source'), (('in', '•••', '7', 'numbers, 0, 2506'),))
>>> found.sources
(('numbers', 0, 2506),)
"""

from __future__ import annotations

import html
import reprlib
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from fries_nb.errors import FriesError, exception_text
from fries_nb.notebook.known import OVER
from fries_nb.notebook.panels import RunMoment, TableView
from fries_nb.notebook.widgets import words_html
from fries_nb.run import Run

BEAT_MS = 500
"""Milliseconds between two questions while a panel is looked at."""
SIZES_S = 2.0
"""Seconds between two questions for the sizes of all states, each of which measures a sample at every worker."""

NOT_YET = "The workers are asked ..."
NONE_CHOSEN = "Click an operator in the picture."


class LookThread:
    """Asks one question at a time, each in a thread, and the next one no sooner than half a second after the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._due_s = clock, 0.0
        self._asks = threading.Lock()  # held while a question is asked, released by its thread
        self._closed = False

    def ask(self, question: Callable[[], None], at_once: bool = False) -> bool:
        """Ask unless another question is under way, or was asked less than half a second ago and not ``at_once``."""
        if self._closed or not self._asks.acquire(blocking=False):
            return False
        now_s = self._clock()
        if now_s < self._due_s and not at_once:
            self._asks.release()
            return False
        self._due_s = now_s + BEAT_MS / 1_000 - 0.1  # beats are not quite regular
        threading.Thread(target=self._ask, args=[question], name="fries-look", daemon=True).start()
        return True

    def _ask(self, question: Callable[[], None]) -> None:
        try:
            question()
        finally:
            self._asks.release()

    def close(self) -> None:
        """Ask nothing any more; a question that is under way ends by itself."""
        self._closed = True


class LookPanel(ipywidgets.VBox):
    """A panel of one operator, ``operator``, that asks while it is looked at; empty if none was chosen.

    A subclass has the tables, and the question. All methods may be called from any thread.
    """

    def __init__(self, run: Run, looks: LookThread, children: Sequence[ipywidgets.Widget]) -> None:
        self._run, self._looks = run, looks
        self._last_of = ""  # the operator of which a run that is over was asked
        self.operator = ""
        super().__init__(children)

    def choose(self, operators: Sequence[str]) -> None:
        """Follow the selection in the picture, of which the last operator counts; without any nothing changes."""
        if operators and operators[-1] != self.operator:
            self.operator, self._last_of = operators[-1], ""
            self._clear(NOT_YET)

    def update(self, moment: RunMoment) -> None:
        """Follow a change of the dataflow's shape; asks nothing."""
        if self.operator and self.operator not in moment.run.graph:
            self.operator = ""
            self._clear(NONE_CHOSEN)

    def seen(self) -> None:
        """A page shows the panel now: ask what it shows, if that is due."""
        self._ask_if_due()

    def _ask_if_due(self, at_once: bool = False) -> None:
        operator = self.operator
        is_over = self._run.state in OVER
        if not operator or (is_over and self._last_of == operator and not at_once):
            return
        if self._looks.ask(lambda: self._look(operator), at_once) and is_over:
            self._last_of = operator

    @abstractmethod
    def _clear(self, words: str) -> None:
        """Say something in place of what was shown of another operator."""

    @abstractmethod
    def _look(self, operator: str) -> None:
        """Ask, and show the answer; called in a thread of its own."""


def answered(question: Callable[[], TextTable], nothing: str) -> tuple[TextTable, str]:
    """The answer to a question, and what to say in place of a table: ``nothing``, or why there is no answer."""
    try:
        found = question()
    except BaseException as error:  # noqa: BLE001 (values are users' code, and the thread ends here)
        return TextTable(), str(error) if isinstance(error, FriesError | TimeoutError) else exception_text(error)
    return found, "" if found.rows else nothing


def show(table: TableView, found: TextTable, words: str, selectable: bool = False) -> None:
    """Fill a table with an answer, or with words in its place."""
    if words:
        table.say(words)
    else:
        table.fill_anew(found.columns, dict(zip(_keys(found), found.rows, strict=True)), selectable)


class RowsPanel(LookPanel):
    """The newest rows of an operator; if rows have identities, a click on one shows its way, in the table ``way``."""

    def __init__(self, run: Run, looks: LookThread) -> None:
        self._sources: dict[str, Source] = {}
        self._followed: Source | None = None
        self.table = TableView("Newest rows", (), empty=NONE_CHOSEN, beat_ms=BEAT_MS, seen=self.seen)
        self.table.observe(lambda change: self._follow(change["new"]), names="selected")
        self.way = TableView("Way of the row", ())
        self.frequent = ipywidgets.HTML()
        super().__init__(run, looks, [self.frequent, self.table, self.way])

    def _clear(self, words: str) -> None:
        self.table.selected = ""
        self.table.say(words)

    def _follow(self, key: str) -> None:
        """Ask for the way of a row that was clicked, now or with the next question."""
        self._followed = self._sources.get(key)
        self.way.say("")
        if self._followed is not None:
            self._last_of = ""
            self._ask_if_due(at_once=True)

    def _look(self, operator: str) -> None:
        if (source := self._followed) is not None:
            self._followed = None
            nothing = f"no worker keeps a row any more that is or derives from {', '.join(map(str, source))}"
            show(self.way, *answered(lambda: way_of(self._run, source), nothing))
            return
        found, words = answered(lambda: newest_rows(self._run, operator), f"no row has passed {operator} yet")
        if operator == self.operator:
            self.frequent.value = html.escape(frequent_key(found, self._run.graph.operator(operator).key))
            self._sources = {key: one for key, one in zip(_keys(found), found.sources, strict=False) if one}
            show(self.table, found, words, selectable=bool(self._sources))


class StatePanel(LookPanel):
    """The newest keys of an operator, in ``table``, and how much state each keeps, in ``sizes``.

    Below is how many dead letters each operator has made.
    """

    def __init__(self, run: Run, looks: LookThread, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._sizes_due_s = clock, 0.0
        self.table, self.sizes = (
            TableView(caption, (), empty=NONE_CHOSEN, beat_ms=BEAT_MS, seen=self.seen)
            for caption in ("Newest keys", "Sizes of states")
        )
        self.letters = ipywidgets.HTML()
        super().__init__(run, looks, [self.table, self.sizes, self.letters])

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run: the numbers of dead letters, which workers report anyway; asks nothing."""
        super().update(moment)
        failed = {name: one.failed for name, one in moment.last.operators.items() if one.failed}
        counts = ", ".join(f"{name} {count:,}" for name, count in failed.items())
        words = f'Dead letters so far: {counts}; run.dead_letters("{next(iter(failed))}") reads them.' if failed else ""
        self.letters.value = words_html(words) if words else ""

    def _clear(self, words: str) -> None:
        self._sizes_due_s = 0.0
        for table in (self.table, self.sizes):
            table.say(words)

    def _look(self, operator: str) -> None:
        found, words = answered(lambda: newest_states(self._run, operator), f"{operator} has no state of a key yet")
        if operator == self.operator:
            show(self.table, found, words)
        now_s = self._clock()
        if now_s >= self._sizes_due_s or self._run.state in OVER:
            self._sizes_due_s = now_s + SIZES_S
            show(self.sizes, *answered(lambda: state_sizes(self._run), "no operator keeps a state"))


def frequent_key(table: TextTable, key: Sequence[str]) -> str:
    """The key that most of the newest rows into an operator have, and its worker; empty if no key has half of them.

    >>> rows = [("in", "7", "1")] * 6 + [("in", "8", "0")] * 2
    >>> frequent_key(TextTable(("_side", "#merchant", "#_worker"), tuple(rows)), ["merchant"])
    '6 of the 8 newest rows have the key merchant 7, at worker 1'
    """
    names = [column.removeprefix("#") for column in table.columns]
    if not key or not {*key, "_side", "_worker"} <= set(names):
        return ""
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    keys = Counter((*(row[name] for name in key), row["_worker"]) for row in rows if row["_side"] == "in")
    (most, count), total = next(iter(keys.most_common(1)), ((), 0)), keys.total()
    if total < _FEW or 2 * count < total:
        return ""
    values = ", ".join(f"{name} {value}" for name, value in zip(key, most, strict=False))
    return f"{count} of the {total} newest rows have the key {values}, at worker {most[-1]}"


def _keys(table: TextTable) -> list[str]:
    """A key for each row, the same at each look for a row whose origin is known: so it stays selected."""
    side = table.columns.index("_side") if "_side" in table.columns else None
    before: Counter[Any] = Counter()
    keys = []
    for place, row in enumerate(table.rows):
        source = table.sources[place] if place < len(table.sources) else None
        name = f"{row[side] if side is not None else ''} {', '.join(map(str, source)) if source else ''}".strip()
        keys.append(f"{name} {before[name]}")
        before[name] += 1
    return keys


ASK_S = 2.0
"""Seconds that a question waits for the workers."""
ROWS, KEYS = 20, 100
"""Number of rows of each side, and of keys, that are shown at most."""
MOST_COLUMNS = 24
"""Number of the user's columns that are shown at most."""
_FEW = 5
"""Number of rows below which no key is called frequent."""
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
    from fries_nb.dataflow.shown_table import as_shown  # imports pandas, which takes long

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
