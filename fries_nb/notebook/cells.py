"""Execution of cell bodies in the user's namespace: declarations of dataflows, and new functions."""

from __future__ import annotations

import ast
import contextlib
import symtable
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import fries_nb
from fries_nb.dataflow.graph import check_runnable
from fries_nb.errors import FriesError, close_match
from fries_nb.notebook.options import marked
from fries_nb.run import Dataflow

_HOW = "begin with flow.source(name, fn.rate(1_000)) and end with stream.sink(name, fn.memory())"
_DECLARE = f"declare a dataflow in it: {_HOW}"
_ASSIGN = "give operators their new functions in it, as in FM = MerchantModel(window=10) or def FM(row): ..."


def declare(shell: InteractiveShell, body: str, name: str | None) -> Dataflow:
    """Execute a cell's body and return the dataflow that it declares.

    In the body, ``fn`` is fries_nb and ``flow`` an empty dataflow of the name in the magic's line; names that it
    defines stay defined, as in any cell. It may also construct a dataflow of its own, and raise anything.
    """
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
