"""The editor of an operator's function in the form of a run: CodeMirror, with the text of what the operator runs now.

Each key is a message of its own, as in ``EntryField``, so a click never overtakes what was typed before it. CodeMirror
is part of this package; it is made by ``make editor``, and is sent to the browser once a kernel.
"""

from __future__ import annotations

import ast
import builtins
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from fries_nb.notebook.function_text import FunctionText

_HERE = Path(__file__).parent
_BUNDLE = (_HERE / "codemirror.js").read_text("utf8")
VERSIONS = _BUNDLE.partition("\n")[0].strip("/* ")
"""The packages in the bundle, with their versions."""
MOST_NAMES = 2_000
"""Names that are offered for completion."""
RESET, WRITE_BACK = "What runs now", "Write it back into the cell"
_PUT = "The cell has the new text; run it to define it there."
_NEXT = (
    "No cell in sight has the former text. The new one comes in a new cell, below the cell that you run next: so is it "
    "with text that a kernel gives."
)


class _CodeMirror(anywidget.AnyWidget):
    """Carries CodeMirror to the browser."""

    _esm = "export default { render() {} }"
    code = traitlets.Unicode(_BUNDLE).tag(sync=True)


_loading = threading.Lock()
_loaders: list[_CodeMirror] = []


def _loader() -> _CodeMirror:
    """The kernel's carrier; created again if all widgets were closed."""
    with _loading:
        if not _loaders or _loaders[0].comm is None:
            _loaders[:] = [_CodeMirror()]
        return _loaders[0]


class CellWriter(anywidget.AnyWidget):
    """A widget whose script has CodeMirror, and changes texts of cells in the page."""

    shared = (_HERE / "cell_text.js").read_text("utf8")
    loader = traitlets.Unicode().tag(sync=True)
    version = traitlets.Unicode(VERSIONS).tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(loader=_loader().model_id, **state)


class FunctionEditor(CellWriter):
    """An editor of several lines; ``value`` is the text in it.

    Ctrl+Enter (or Cmd) sends the message ``{"event": "submit"}``. ``marks`` has the errors, each with its ``line``
    (from 1), ``column`` (from 0) and ``words``; ``actions`` the buttons beside the name.

    Args:
        operator: name of the operator.
        running: the text of what it runs now.
        names: returns the names that are completed; called when the editor gets the focus.
        put_next: puts a text into a new cell.
    """

    _esm = CellWriter.shared + (_HERE / "editor.js").read_text("utf8")
    _css = (_HERE / "editor.css").read_text("utf8")
    description = traitlets.Unicode().tag(sync=True)
    placeholder = traitlets.Unicode().tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)
    given = traitlets.Dict().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    marks: traitlets.List[dict[str, Any]] = traitlets.List(traitlets.Dict()).tag(sync=True)
    names: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    columns: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    actions: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    cell: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)  # the text of a cell, and that for its place
    read_only = traitlets.Bool().tag(sync=True)

    def __init__(
        self, operator: str, running: FunctionText, names: Callable[[], Sequence[str]] = tuple, placeholder: str = "",
        put_next: Callable[[str], object] = lambda text: None,
    ) -> None:  # fmt: skip
        self._running, self._known, self._put_next, self._number = running, names, put_next, 0
        super().__init__(
            description=operator,
            placeholder=placeholder,
            value=running.text,
            given={"text": running.text, "number": 0},
            note=running.note,
        )
        self.observe(lambda _: self._offer(), names="value")
        self.on_msg(self._receive)

    @property
    def is_changed(self) -> bool:
        """Whether the text is another one than that of what runs now; lines that end in blanks do not count."""
        return _plain(self.value) != _plain(self._running.text)

    def show_running(self, running: FunctionText, by: str = "") -> None:
        """Another function runs now, by a change ``by``; an edited text stays, and says so.

        The text of a cell from which the former one came is that of this one too, if it does not come from another one.
        """
        is_kept = self.is_changed and _plain(self.value) != _plain(running.text)
        self._running = FunctionText(running.text, running.note, running.cell or self._running.cell)
        if is_kept:
            self.note = f"{self.description} runs another function{f' by {by}' if by else ''} now; your text is kept"
            self._offer()
        else:
            self.note = running.note
            self._put(running.text)

    def applied(self, text: str) -> None:
        """The operator runs this text now."""
        self.show_running(FunctionText(text))

    def mark(self, errors: Sequence[Mapping[str, Any]]) -> None:
        """Underline these errors in place of all others."""
        self.marks = [dict(one) for one in errors]

    def end(self, why: str) -> None:
        """Take no text any more."""
        self.read_only, self.note, self.actions = True, why, []

    def _put(self, text: str) -> None:
        """Show a text in place of what is there; what was typed before and comes late is of an older number."""
        self._number += 1
        self.value, self.marks = text, []
        self.given = {"text": text, "number": self._number}
        self._offer()

    def _offer(self) -> None:
        """Show the buttons for what there is to do."""
        former, new = self._running.cell, definitions(self.value)
        can_write = bool(former and new) and _plain(former) != _plain(new)
        self.cell = {"former": former, "new": new} if can_write else {}
        self.actions = [*([RESET] if self.is_changed else []), *([WRITE_BACK] if can_write else [])]

    def _receive(self, _: object, content: Any, __: object) -> None:
        if self.read_only:
            return
        match content:
            case {"event": "entered", "text": str(text), "number": int(number)} if number == self._number:
                self.value = text
            case {"event": "focused"}:
                self.names = sorted({name for name in self._known() if not name.startswith("_")})[:MOST_NAMES]
            case {"event": "action", "name": "What runs now"}:
                self.note = self._running.note
                self._put(self._running.text)
            case {"event": "action", "name": "Write it back into the cell", "put": bool(is_put)} if self.cell:
                if not is_put:
                    self._put_next(self.cell["new"])
                self.note = _PUT if is_put else _NEXT


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def definitions(text: str) -> str:
    r"""A text without its last expression: what it defines; empty if it is no Python or defines nothing.

    >>> print(definitions("class A:\n    n = 1\n\nA()"))
    class A:
        n = 1
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return ""
    if not any(isinstance(one, ast.FunctionDef | ast.ClassDef) for one in body):
        return ""
    if not isinstance(body[-1], ast.Expr):
        return text.strip()
    return "\n".join(text.splitlines()[: body[-1].lineno - 1]).strip()


def names_of(space: Mapping[str, Any]) -> list[str]:
    """The names of a namespace that a user has made: those of IPython's history, and builtins, are none."""
    own = ("In", "Out", "exit", "quit", "get_ipython")
    return [name for name in list(space) if name not in own and not hasattr(builtins, name)]
