"""Execution of cell bodies in the user's namespace: declarations of dataflows, and new functions.

Cell outputs that are updated after their cell has ended: what operators print, and the rollback of a guarded change.

Such text arrives from a thread, long after the cell has ended, and may be a lot. Each cell therefore has one output
that is updated in place: it stays short, and it stays with its cell in every front end, whereas text that a thread
writes to standard output appears in whichever cell is running. Without a kernel no output can be updated, and nothing
is shown; ``run.printed``, ``%fries_status`` and ``change.settled()`` have the same information.

>>> tail([Line("FM[0]", "opened"), Line("FM[1]", "opened"), Line("", "more")], 5, 2, "run").splitlines()
['... 3 more lines: run.printed', 'FM[1]: opened', 'more']
"""

from __future__ import annotations

import ast
import contextlib
import re
import symtable
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import fries_nb
from fries_nb.changes.change import Change
from fries_nb.dataflow.graph import check_runnable
from fries_nb.dataflow.streams import Stream
from fries_nb.errors import FriesError, close_match
from fries_nb.notebook.options import marked
from fries_nb.run import Dataflow, Run
from fries_nb.transport.envelopes import Line

_HOW = "begin with flow.source(name, fn.rate(1_000)) and end with stream.sink(name, fn.memory())"
_DECLARE = f"declare a dataflow in it: {_HOW}"
_ASSIGN = "give operators their new functions in it, as in FM = MerchantModel(window=10) or def FM(row): ..."


def declare(shell: InteractiveShell, body: str, name: str | None) -> Dataflow:
    """Execute a cell's body and return the dataflow that it declares."""
    # In the body, ``fn`` is fries_nb and ``flow`` an empty dataflow of the name in the magic's line; names that it
    # defines stay defined, as in any cell. It may also construct a dataflow of its own, and raise anything.
    if name == "":
        raise UsageError("a dataflow has a name; expected one behind %%fries_dataflow")
    names = shell.user_ns
    code = _compiled(shell, body, _DECLARE).code
    given = Dataflow(name or "flow")
    before = _flows(names)
    names.setdefault("fn", fries_nb)
    names["flow"] = given
    _execute(shell, code)
    made = [flow for flow in _flows(names) if flow not in before and (flow is not given or flow.graph().operators)]
    if not made:
        raise UsageError(f"the cell declares no dataflow: {_HOW}")
    if len(made) > 1:
        raise UsageError(f"one cell declares one dataflow; this one declares {', '.join(flow.name for flow in made)}")
    flow = made[0]
    if name is not None and flow.name != name:
        raise UsageError(f"the cell is headed {name!r}, and the dataflow in it is named {flow.name!r}; name both alike")
    check_runnable(flow.graph())
    return flow


@dataclass(frozen=True)
class DeclaringCell:
    """A cell that has declared a dataflow, whose streams and itself it calls by some names at its end.

    Attributes:
        flow: the dataflow.
        text: the body of the cell.
        flow_name: the variable that holds the dataflow.
        variables: stream to a variable that holds it, for those that have one: the same object, not a name.
    """

    flow: Dataflow
    text: str
    flow_name: str
    variables: Mapping[Stream, str]

    @staticmethod
    def of(flow: Dataflow, text: str, names: Mapping[str, Any]) -> DeclaringCell:
        """Of the body that was just executed in a namespace."""
        held = {name: value for name, value in names.items() if not name.startswith("_")}
        # The dataflow is new, so what holds a stream of it was assigned by the cell.
        variables = {value: name for name, value in held.items() if isinstance(value, Stream) and value.flow is flow}
        return DeclaringCell(flow, text, next(name for name, value in held.items() if value is flow), variables)


def assigned(shell: InteractiveShell, body: str, operators: Collection[str]) -> dict[str, Any]:
    """Execute a cell's body and return the values that it assigns to operators; names that it defines stay defined."""
    compiled = _compiled(shell, body, _ASSIGN)
    names = [name for name in operators if name in compiled.assigns]
    if not names:
        near = next(filter(None, (close_match(name, operators) for name in compiled.assigns)), "")
        raise UsageError(f"the cell assigns no operator; {_ASSIGN}; operators are {', '.join(operators)}{near}")
    _execute(shell, compiled.code)
    return {name: shell.user_ns[name] for name in names if name in shell.user_ns}


@contextlib.contextmanager
def undone_on_error(names: dict[str, Any], name: str) -> Iterator[None]:
    """Restores the value of a variable if the block raises; removes it if it had none."""
    missing = object()
    old = names.get(name, missing)
    try:
        yield
    except BaseException:
        if old is missing:
            names.pop(name, None)
        else:
            names[name] = old
        raise


class Interrupted(KeyboardInterrupt):
    """A KeyboardInterrupt that IPython shows as one line, without the stack of the wait."""

    def _render_traceback_(self) -> list[str]:
        """Called by IPython in place of its own traceback."""
        return [f"KeyboardInterrupt: {self}"]


@contextlib.contextmanager
def told_when_interrupted(words: str) -> Iterator[None]:
    """Adds a message to a KeyboardInterrupt that is raised in the block.

    >>> try:
    ...     with told_when_interrupted("the change continues"):
    ...         raise KeyboardInterrupt
    ... except Interrupted as interrupt:
    ...     print(interrupt)
    the change continues
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(words) from None


def _execute(shell: InteractiveShell, code: CodeType) -> None:
    try:
        exec(code, shell.user_ns)
    except FriesError:
        raise
    except Exception as error:
        _show_from_own_frame(shell, error)
        raise


def _show_from_own_frame(shell: InteractiveShell, error: Exception) -> None:
    """Make IPython show the error from the user's first frame on, without the frames of the magic."""
    assert error.__traceback__ is not None
    own = error.__traceback__.tb_next

    def lines() -> Any:
        return shell.InteractiveTB.structured_traceback(type(error), error, own, tb_offset=0)

    error._render_traceback_ = lines  # type: ignore[attr-defined]  # IPython's hook


@dataclass(frozen=True)
class _Compiled:
    """A compiled body, and the names that it assigns, defines or imports at its top level."""

    code: CodeType
    assigns: tuple[str, ...]


def _compiled(shell: InteractiveShell, body: str, hint: str) -> _Compiled:
    """Compile a body under a file name by which tracebacks and ``inspect`` find its lines."""
    try:
        source = "\n" + shell.transform_cell(body)  # its first line is the cell's second
        file = shell.compile.cache(source, len(shell.user_ns.get("In", ())) - 1, raw_code=body)
        tree = ast.parse(source, file)
        code = compile(tree, file, "exec")
    except SyntaxError as error:
        where = f"line {error.lineno} of the cell: " if error.lineno else ""  # None if the source is not text
        text = (error.text or "").rstrip()
        skipped = len(text) - len(text.lstrip())
        place = marked(text.lstrip(), max(0, (error.offset or 1) - 1 - skipped)) if text else ""
        raise UsageError(f"{where}{error.msg}{place}") from error
    if not tree.body:
        raise UsageError(f"the cell is empty; {hint}")
    symbols = symtable.symtable(source, file, "exec").get_symbols()
    return _Compiled(code, tuple(symbol.get_name() for symbol in symbols if symbol.is_assigned()))


def _flows(names: dict[str, Any]) -> list[Dataflow]:
    """The dataflows held by variables, each once, without IPython's output history."""
    held = [value for name, value in names.items() if isinstance(value, Dataflow) and not name.startswith("_")]
    return list(dict.fromkeys(held))


DEFAULT_S = 5.0
"""Duration of a change's guard in seconds, unless the user specifies one."""
LONGEST = 300
"""Characters of a line that are shown; ``run.printed`` has the whole line."""
_CELL_FILE = re.compile(r'^  File "([^"]+)", (line \d+)', re.MULTILINE)


class CellOutput:
    """An output of the cell that is being executed, which can be replaced after the cell has ended."""

    def __init__(self, shell: InteractiveShell) -> None:
        # whether the shell has a kernel, without which outputs cannot be updated
        self.updatable = getattr(shell, "kernel", None) is not None
        self._shell = shell
        self._id = f"fries-{uuid.uuid4().hex}"
        self._data: Mapping[str, Any] = {}

    def create(self, data: Mapping[str, Any]) -> None:
        """Add the output, content by MIME type, to the cell that is being executed."""
        self._publish(data, update=False)

    def replace(self, data: Mapping[str, Any]) -> None:
        """Replace the output's content; may be called from any thread."""
        # It is published twice: now, and when the cell that is executed next has ended, since programs that execute
        # notebooks (nbconvert, papermill) drop what arrives between two cells.
        self._data = data
        self._shell.events.register("post_run_cell", self._publish_again)
        self._publish(data, update=True)

    def _publish_again(self, _: object) -> None:
        self._shell.events.unregister("post_run_cell", self._publish_again)
        self._publish(self._data, update=True)

    def _publish(self, data: Mapping[str, Any], update: bool) -> None:
        self._shell.display_pub.publish(data, transient={"display_id": self._id}, update=update)


class CellEcho:
    """Shows the last ``lines`` that a run's operators printed, in the output of the cell that started the run.

    They are the last output of the cell, so that a live view in the same cell stays where it is however much is
    printed. ``period_s`` is called after each update.
    """

    def __init__(self, shell: InteractiveShell, lines: int, period_s: Callable[[], float]) -> None:
        self._shell = shell
        self._output = CellOutput(shell)
        self._name_of = shell.compile.format_code_name
        self._lines = lines if self._output.updatable else 0
        self._period_s = period_s
        self._shown = ""
        self._begun = False
        self._one_at_a_time = threading.Lock()
        if self._lines:
            shell.events.register("post_run_cell", self._begin)

    def follow(self, run: Run, variable: str) -> None:
        """Show what the operators of a run print until it ends, then its error if it failed; returns at once."""
        if self._lines:
            threading.Thread(target=self._follow, args=[run, variable], name="fries-echo", daemon=True).start()

    def _begin(self, _: object) -> None:
        """Add the output, behind all others of the cell."""
        self._shell.events.unregister("post_run_cell", self._begin)
        with self._one_at_a_time:
            self._begun = True
            self._output.create({"text/plain": self._shown})

    def _follow(self, run: Run, variable: str) -> None:
        over = False
        while not over:
            try:
                run.wait(self._period_s())
                over = True
            except TimeoutError:
                pass
            self._show(run, variable, over)

    def _show(self, run: Run, variable: str, over: bool) -> None:
        text = tail(run.printed, run.lines_printed, self._lines, variable)
        if run.error:
            failure = f"{run.graph.name!r} {'has' if over else 'is'} {run.state}: {run.error}"
            text = "\n".join(filter(None, [text, failure, in_cells(run.details, self._name_of)]))
        with self._one_at_a_time:
            if text != self._shown:
                self._shown = text
                if self._begun:
                    self._output.replace({"text/plain": text})


class GuardNotice:
    """Reports in the cell that requested a guarded change that the guard rolled the change back."""

    def __init__(self, shell: InteractiveShell, change: Change) -> None:
        self._change = change
        self._output = CellOutput(shell)
        if change.guard and self._output.updatable:
            self._output.create({"text/plain": ""})
            threading.Thread(target=self._follow, name="fries-guard", daemon=True).start()

    def _follow(self) -> None:
        result = self._change.settled()
        if result.outcome == "rolled_back":
            self._output.replace({"text/plain": f"{self._change.label}: {result.error}"})


def tail(lines: Sequence[Line], printed: int, most: int, variable: str) -> str:
    """The last lines, each prefixed with its worker, and where further ones are."""
    last = [f"{line.worker}: {line.text}" if line.worker else line.text for line in lines[-most:]]
    shown = [line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in last]
    more = [f"... {printed - len(last):,} more lines: {variable}.printed"] if printed > len(last) else []
    return "\n".join([*more, *shown])


def in_cells(traceback: str, name_of: Callable[[str], tuple[str, str] | None]) -> str:
    """A traceback in which the files of cells have the names that the notebook shows, by ``name_of``.

    >>> print(in_cells('  File "/tmp/1.py", line 2, in process', {"/tmp/1.py": ("Cell", "In[7]")}.get))
      Cell In[7], line 2, in process
    """

    def named(found: re.Match[str]) -> str:
        name = name_of(found[1])
        return f"  {' '.join(name)}, {found[2]}" if name else found[0]

    return _CELL_FILE.sub(named, traceback.rstrip())
