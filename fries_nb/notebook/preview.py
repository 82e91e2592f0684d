"""What edited functions make of recent rows, beside what the present ones make of them, while they are being typed.

A question is asked when nothing was typed for a moment, and no other one is under way; of several texts that are typed
meanwhile the last one counts. The workers are asked by ``Run.examples``, which decides and changes nothing. A text that
is no function asks nothing: its error is told, and the operator runs what it runs.

>>> from fries_nb.changes.change_examples import Example
>>> same, other = (Example("FM", 0, {}, {"p": 1}, {"p": p}, what) for p, what in ((1, "same"), (2, "differs")))
>>> print(summary(Examples("", (*[same] * 17, other), took_ms={"FM": (1.0, 1.2)})))
FM: 1 of 18 rows differs; none dropped; as fast as before
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fries_nb.changes.change_examples import Example, Examples
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import FriesError, exception_text
from fries_nb.notebook.function_text import TextError, file_of
from fries_nb.notebook.widgets import words_html
from fries_nb.report.change_rows import example_parts, shown_value
from fries_nb.run import Run

PAUSE_S = 0.04
"""Seconds without a key after which the workers are asked."""
ROWS = 20
"""Number of rows at most that come to each operator."""
TIMEOUT_S = 5.0
"""Seconds for which an answer is waited for; a change that is under way, or a paused operator, delays it."""
_ALIKE = 1.25


@dataclass(frozen=True)
class PreviewShown:
    """What a page shows of a preview.

    Attributes:
        html: the words and the table.
        marks: operator to the errors in its text, as ``FunctionEditor.mark`` takes them.
        columns: operator to the names of the columns that come to it.
    """

    html: str
    marks: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    columns: Mapping[str, list[str]] = field(default_factory=dict)


def summary(examples: Examples) -> str:
    """How many rows differ, are dropped, added or fail at each operator, and how long they take, in one line."""
    told = list[str]()
    for name in dict.fromkeys(one.operator for one in examples.rows):
        count = Counter(one.result for one in examples.rows if one.operator == name)
        total = count.total()
        parts = [f"{_of(count['differs'], total)} differ{'s' if count['differs'] == 1 else ''}"]
        parts.append(f"{count['dropped'] or 'none'} dropped")
        parts += [f"{count[what]} {words}" for what, words in _ELSE.items() if count[what]]
        parts += [pace(*examples.took_ms[name])] if name in examples.took_ms else []
        told.append(f"{name}: {'; '.join(parts)}")
    return "\n".join(filter(None, [*told, examples.left_out])) or "no row has come yet"


_ELSE = {"added": "added", "failed": "fail", "mended": "fail no longer", "fails as before": "fail as before"}


def _of(some: int, total: int) -> str:
    return f"{some} of {total} row{'s' * (total != 1)}"


def pace(before_ms: float, after_ms: float) -> str:
    """How much longer a row takes, in words.

    >>> pace(1.0, 1.3), pace(4.0, 1.0), pace(0.5, 0.5), pace(0.001, 12.0)
    ('1.3 times as slow', '4 times as fast', 'as fast as before', '12,000 times as slow')
    """
    ratio = after_ms / before_ms
    if 1 / _ALIKE < ratio < _ALIKE:
        return "as fast as before"
    times = max(ratio, 1 / ratio)
    return f"{f'{times:.2g}' if times < 10 else f'{times:,.0f}'} times as {'slow' if ratio > 1 else 'fast'}"


class Preview:
    """Asks what edited functions make of recent rows; may be called by any thread.

    Args:
        run: the run.
        functions: makes the functions of texts, as in ``FunctionSource.functions``; runs the user's code.
        show: called with each answer to the last question, in the thread that asks; must not call the preview.
        pause_s: seconds without a key after which a question is asked.
        clock: returns seconds.
    """

    def __init__(
        self,
        run: Run,
        functions: Callable[[Mapping[str, str]], dict[str, Any]],
        show: Callable[[PreviewShown], object],
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._functions, self._show = run, functions, show
        self._pause_s, self._clock = pause_s, clock
        self._told = threading.Condition()
        self._number = 0
        self._wanted: dict[str, str] = {}
        self._due_s = 0.0
        self._asking = False
        self._over = False

    def ask(self, texts: Mapping[str, str], at_once: bool = False) -> None:
        """Ask for what these texts of operators make of rows, in place of all that was asked for before."""
        with self._told:
            self._number += 1
            self._wanted = {} if self._over else dict(texts)
            self._due_s = self._clock() + (0.0 if at_once else self._pause_s)
            self._told.notify_all()
            if self._wanted and not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, name="fries-examples", daemon=True).start()

    def forget(self) -> None:
        """Ask for nothing any more, and show no answer that is still to come."""
        self.ask({})

    def end(self) -> None:
        """Ask nothing from now on."""
        with self._told:
            self._over = True
        self.forget()

    def _ask(self) -> None:
        """Ask what is wanted until nothing is."""
        while True:
            with self._told:
                while self._wanted and (left_s := self._due_s - self._clock()) > 0:
                    self._told.wait(left_s)
                if not self._wanted:
                    self._asking = False
                    return
                number, texts = self._number, self._wanted
                self._wanted = {}
            shown = self._answer(texts)
            with self._told:
                if number == self._number:
                    self._show(shown)

    def _answer(self, texts: Mapping[str, str]) -> PreviewShown:
        functions = dict[str, Any]()
        try:
            for name, text in texts.items():
                functions |= self._functions({name: text})
            check_updates(self._run.graph, as_updates(functions))
            return shown_examples(self._run.examples(functions, ROWS, timeout=TIMEOUT_S), texts)
        except TextError as error:
            wrong = next(name for name in texts if name not in functions)
            words = f"{str(error).partition(chr(10))[0]}. The present function goes on."
            return PreviewShown(words_html(words, failed=True), {wrong: [_mark(error)] if error.line else []})
        except (FriesError, TimeoutError) as error:
            return PreviewShown(words_html(f"No examples: {error}"))
        except BaseException as error:  # noqa: BLE001 (it runs the user's code, and the thread goes on)
            return PreviewShown(words_html(f"No examples: {exception_text(error)}"))


def _mark(error: TextError) -> dict[str, Any]:
    return {"line": error.line, "column": error.column, "words": error.reason}


def shown_examples(examples: Examples, texts: Mapping[str, str]) -> PreviewShown:
    """The words and the table of an answer, and where a text fails on a row."""
    shown, marks, lines = examples.shown, dict[str, list[dict[str, Any]]](), list[str]()
    for name, text in texts.items():
        failed = next((one for one in shown.rows if one.operator == name and one.result == "failed"), None)
        if failed is not None:
            line = next((line for file, line in reversed(failed.lines) if file == file_of(name, text)), 0)
            lines.append(f"{name}{f', line {line}' if line else ''}: {failed.error}, on {_row(failed)}")
            marks[name] = [{"line": line, "column": 0, "words": failed.error}] if line else []
    came = {name: [one.came for one in examples.rows if one.operator == name] for name in texts}
    columns = {name: list(dict.fromkeys(column for row in rows for column in row)) for name, rows in came.items()}
    words = words_html(summary(shown)) + "".join(words_html(line, failed=True) for line in lines)
    return PreviewShown(f'<div class="fries-preview">{words}{example_parts(examples, "")}</div>', marks, columns)


def _row(one: Example) -> str:
    """The row on which a function fails, cut; hidden values are masked before."""
    return ", ".join(f"{name}={shown_value(value)}" for name, value in one.came.items()) or "no row"
