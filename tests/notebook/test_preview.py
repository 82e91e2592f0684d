"""What edited functions make of recent rows: what is asked, when, and what is shown of the answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told
from patience import PATIENCE_S

from fries_nb.changes.change_examples import Example, Examples
from fries_nb.errors import PlanError
from fries_nb.notebook.function_text import file_of, value_of
from fries_nb.notebook.preview import Preview, PreviewShown, shown_examples, summary

SAME = Example("FM", 0, {"n": 1}, {"p": 1}, {"p": 1}, "same")
OTHER = Example("FM", 0, {"n": 2}, {"p": 1}, {"p": 2}, "differs", ("p",))
GONE = Example("FM", 0, {"n": 3}, {"p": 1}, None, "dropped")
FAILED = Example("FM", 0, {"n": 4, "CARD": 4000}, {"p": 1}, None, "failed", error="KeyError: 'x'")
MENDED = Example("FM", 0, {"n": 5}, None, {"p": 1}, "mended")


class Asked:
    """A preview of a stand-in whose answers wait until they are let go, and what it has shown."""

    def __init__(self, run: StandIn) -> None:
        self.questions: list[str] = []
        self.shown: list[PreviewShown] = []
        self.begun, self.answers = threading.Semaphore(0), threading.Semaphore(0)
        self._run, self._ask = run, run.examples
        run.examples = self._examples  # type: ignore[method-assign]
        self.now_s = 0.0
        self.preview = Preview(run, self._functions, self.shown.append, 0.0)  # type: ignore[arg-type]

    def _functions(self, texts: Mapping[str, str]) -> dict[str, Any]:
        return {name: value_of(name, text, {}) for name, text in texts.items()}

    def _examples(self, change: Any, n: int, *, timeout: float) -> Examples:
        self.questions.append(change["FM"]({}))
        self.begun.release()
        assert self.answers.acquire(timeout=PATIENCE_S)
        return self._ask(change, n)

    def ask(self, text: str) -> None:
        """Ask what a text makes of rows."""
        self.preview.ask({"FM": text})

    def until_begun(self) -> None:
        """Wait until a question is asked."""
        assert self.begun.acquire(timeout=PATIENCE_S)

    def join(self) -> None:
        """Let all answers go, and wait until nothing is asked any more."""
        self.answers.release(100)
        for thread in threading.enumerate():
            if thread.name == "fries-examples":
                thread.join(PATIENCE_S)


@pytest.fixture
def asked(shell: InteractiveShell, with_fraud: None, stand_ins: list[StandIn]) -> Iterator[Asked]:
    """A preview of a run."""
    told(shell, "%fries_run")
    asked = Asked(stand_ins[0])
    yield asked
    asked.join()


def test_the_last_text_counts_and_one_question_is_under_way(asked: Asked) -> None:
    """What is typed while workers answer is asked for afterwards; what came before it is not, and is not shown."""
    asked.ask("lambda row: 'one'")
    asked.until_begun()
    for text in ("two", "three", "four"):
        asked.ask(f"lambda row: {text!r}")
    assert asked.questions == ["one"]
    asked.answers.release()
    asked.until_begun()
    assert asked.shown == []
    asked.join()
    assert asked.questions == ["one", "four"]
    assert len(asked.shown) == 1


@pytest.mark.parametrize("ends", ["forget", "end"])
def test_what_is_not_looked_at_is_not_asked_for_nor_shown(asked: Asked, ends: str) -> None:
    """An answer that comes later is dropped; after the end of the run nothing is asked."""
    asked.ask("lambda row: 'one'")
    asked.until_begun()
    asked.ask("lambda row: 'two'")
    getattr(asked.preview, ends)()
    asked.join()
    assert asked.questions == ["one"]
    assert asked.shown == []
    asked.ask("lambda row: 'three'")
    asked.join()
    assert asked.questions == (["one"] if ends == "end" else ["one", "three"])


def test_nothing_is_asked_before_a_pause(asked: Asked) -> None:
    """Unless it is asked for at once; the clock is that of the preview."""
    asked.preview = Preview(asked._run, asked._functions, asked.shown.append, 1e6, lambda: 0.0)  # type: ignore[arg-type]
    asked.answers.release(100)
    asked.ask("lambda row: 'one'")
    asked.preview.ask({"FM": "lambda row: 'two'"}, at_once=True)
    asked.until_begun()
    asked.preview.forget()
    assert asked.questions == ["two"]


@pytest.mark.parametrize(
    ("text", "said", "marks"),
    [
        ("lambda row: row +", "FM, line 1: invalid syntax. The present function goes on.", [(1, 17)]),
        ("x = 1\n1 / 0", "FM, line 2: ZeroDivisionError: division by zero. The present", [(2, 0)]),
        ("lambda a, b, c: a", "takes 3 parameters", []),
        ("lambda row: 'fine'", "1 of 1 row differs; none dropped", []),
        ("lambda row: {}['x']", "No examples: KeyError: &#x27;x&#x27;", []),
    ],
)
def test_a_text_that_is_no_function_asks_nothing(
    asked: Asked, text: str, said: str, marks: list[tuple[int, int]]
) -> None:
    """Its error is said, and underlined at its line; so is why there are no examples."""
    asked.answers.release(100)
    asked.ask(text)
    asked.join()
    [shown] = asked.shown
    assert said in shown.html
    assert [(one["line"], one["column"]) for one in shown.marks.get("FM", [])] == marks
    assert asked.questions == (["fine"] if "fine" in text else [])


@pytest.mark.parametrize("error", [PlanError("no"), TimeoutError("no"), KeyboardInterrupt("no")])
def test_whatever_a_question_raises_is_said(asked: Asked, error: BaseException) -> None:
    """And the next one is asked."""

    def broken(change: Any, n: int, *, timeout: float) -> Examples:
        raise error

    asked._run.examples, asks = broken, asked._run.examples  # type: ignore[method-assign]
    asked.ask("lambda row: 'one'")
    asked.join()
    assert "No examples: " in asked.shown.pop().html
    asked._run.examples = asks  # type: ignore[method-assign]
    asked.ask("lambda row: 'two'")
    asked.join()
    assert "1 of 1 row differs" in asked.shown.pop().html


@pytest.mark.parametrize(
    ("rows", "took_ms", "words"),
    [
        ([SAME] * 17 + [OTHER] * 3, (1.0, 1.3), "FM: 3 of 20 rows differ; none dropped; 1.3 times as slow"),
        ([SAME, OTHER], (3.0, 1.0), "FM: 1 of 2 rows differs; none dropped; 3 times as fast"),
        ([SAME, GONE, GONE], (1.0, 1.0), "FM: 0 of 3 rows differ; 2 dropped; as fast as before"),
        ([FAILED, MENDED], None, "FM: 0 of 2 rows differ; none dropped; 1 fail; 1 fail no longer"),
        ([], None, "no row has come yet"),
    ],
)
def test_one_line_says_what_becomes_of_the_rows(
    rows: list[Example], took_ms: tuple[float, float] | None, words: str
) -> None:
    """The times are said where both sides have some."""
    assert summary(Examples("", tuple(rows), took_ms={"FM": took_ms} if took_ms else {})) == words


def test_an_error_on_a_row_is_at_its_line_with_the_row() -> None:
    """The innermost line of the text counts; hidden values are masked, long ones cut."""
    text = "def f(row):\n    return row['x']\n"
    file = file_of("FM", text)
    lines = (("/own/module.py", 3), (file, 1), (file, 2), ("/own/other.py", 9))
    wide = Example("FM", 0, {"n": "a" * 10_000_000, "CARD": 4000}, None, None, "failed", (), "KeyError: 'x'", lines)
    shown = shown_examples(Examples("", (wide, SAME), hide=frozenset({"CARD"})), {"FM": text})
    assert shown.marks == {"FM": [{"line": 2, "column": 0, "words": "KeyError: 'x'"}]}
    assert "FM, line 2: KeyError: &#x27;x&#x27;, on n=aaaa" in shown.html
    assert "CARD=•••" in shown.html
    assert "4000" not in shown.html
    assert len(shown.html) < 10_000
    assert shown.columns == {"FM": ["n", "CARD"]}
    assert shown_examples(Examples("", (FAILED,)), {"FM": text}).marks == {"FM": []}
