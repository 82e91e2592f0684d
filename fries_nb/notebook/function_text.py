r"""The text of a function: as the editor shows what an operator runs now, and the value of what is typed there.

A lambda is its expression, a ``def`` its text. An object is the call by which it was made, if that is known: from an
editor or a magic that has made it, from the cell that declared the operator, or by its attributes, where each parameter
of its class has one. A class of a cell stands before that call, so that it can be edited; one of a module has to be
imported, and is edited there.

What is typed runs as a cell would, in a copy of the user's namespace, which therefore stays as it is. Its value is that
of its last expression, or what its last ``def`` or ``class`` defines.

>>> found = value_of("FM", "def score(row):\n    return row | {'p': limit}", {"limit": 3})
>>> found({"n": 1}), text_of(Operator("FM", function=found), found, {}).text.splitlines()[0]
({'n': 1, 'p': 3}, 'def score(row):')
>>> try:
...     value_of("FM", "limit = 3\nlambda row: row +", {})
... except TextError as error:
...     print(error.line, str(error).splitlines()[0])
2 FM, line 2: invalid syntax
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from IPython.core.error import UsageError

from fries_nb.changes.function_versions import function_text
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.operators import BatchFunction
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update
from fries_nb.dataflow.windowing import ConfiguredFunction
from fries_nb.errors import DataflowError, FriesError, PlanError, close_match, exception_text
from fries_nb.notebook.options import marked, shortened
from fries_nb.report.change_rows import source_place, users_function
from fries_nb.run import Run

CELLS_SEARCHED = 500
"""Number of cells, the newest ones, in which the call is looked for by which an operator's object was made."""
_OPEN = "..."
"""Stands for arguments that are not known; a text that still has it is refused."""


@dataclass(frozen=True)
class FunctionText:
    """A text for the editor.

    Attributes:
        text: the text.
        note: why it is not the whole truth of what runs, in one sentence; empty if it is.
        cell: the part of it that is a ``def`` or a ``class`` of a cell; empty if none is.
    """

    text: str
    note: str = ""
    cell: str = ""


class TextError(UsageError):
    """The text is refused, or has raised.

    Attributes:
        line: the line of the text, from 1; 0 if it is of none.
        column: the column at which the error begins, from 0.
        reason: the error without its place.
    """

    def __init__(self, operator: str, reason: str, text: str, line: int = 0, column: int = 0) -> None:
        place = f", line {line}" if line else ""
        lines = text.splitlines()
        mark = marked(lines[line - 1], column) if column and line <= len(lines) else ""
        super().__init__(f"{operator}{place}: {reason}{mark}")
        self.line, self.column, self.reason = line, column, reason


def file_of(operator: str, text: str) -> str:
    """The file name of a text, by which tracebacks find its lines."""
    return f"<{operator} {zlib.crc32(text.encode('utf8', 'surrogatepass')):08x}>"


def value_of(operator: str, text: str, names: Mapping[str, Any]) -> Any:
    """The function that a text makes, or what else may be that of the operator.

    Args:
        operator: name of the operator, for messages.
        text: the text.
        names: the user's namespace; the text gets a copy.

    Raises:
        TextError: it is no Python, has no value, or raises; names its line.
        DataflowError: from ``fn.Update`` and the like, which do not know the operator.
        PlanError: as DataflowError.
    """
    file = file_of(operator, text)
    linecache.cache[file] = (len(text), None, [f"{line}\n" for line in text.splitlines()], file)  # for tracebacks
    space = dict(names)
    try:
        run, name, last = _parsed(operator, text, file)
        exec(run, space)
        value = eval(last, space) if last is not None else space[name]
    except (DataflowError, PlanError) as error:
        raise type(error)(f"operator {operator!r}: {error}") from error
    except (FriesError, TextError):
        raise
    except SyntaxError as error:
        column = max(0, (error.offset or 1) - 1)
        raise TextError(operator, error.msg, text, min(error.lineno or 1, 1 + text.count("\n")), column) from error
    except (Exception, SystemExit) as error:
        hint = _meant(error.name, names) if isinstance(error, NameError) and error.name else ""
        reason = str(error) if isinstance(error, NameError) else shortened(" ".join(exception_text(error).split()))
        raise TextError(operator, f"{reason}{hint}", text, _line_in(error, file)) from error
    if not text.isidentifier():  # what has a name of its own has a text of its own
        remember(value, text)
    return value


def _parsed(operator: str, text: str, file: str) -> tuple[CodeType, str, CodeType | None]:
    """The code of a text without its value; the name of the value, or its code."""
    tree = ast.parse(text, file)
    if not tree.body:
        raise TextError(operator, "the text is empty; expected a lambda, a def, or the call of a class", text)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        call = last.value
        given = [*call.args, *(one.value for one in call.keywords)] if isinstance(call, ast.Call) else []
        if any(isinstance(one, ast.Constant) and one.value is ... for one in given):
            words = f"put the arguments in place of {_OPEN}"
            raise TextError(operator, words, text, last.lineno, last.col_offset)
        value = compile(ast.Expression(last.value), file, "eval")
        return compile(ast.Module(tree.body[:-1], []), file, "exec"), "", value
    named = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    if not named:
        words = "the text has no value; expected that it ends with an expression, or has a def or a class"
        raise TextError(operator, words, text, last.lineno)
    return compile(tree, file, "exec"), named[-1], None


def _line_in(error: BaseException, file: str) -> int:
    """The line of a text in which an exception was raised, or from which what raised it was called."""
    lines = [line for frame, line in _walked(error) if frame == file]
    return lines[-1] if lines else 0


def _walked(error: BaseException) -> Iterator[tuple[str, int]]:
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame.f_code.co_filename, at.tb_lineno
        at = at.tb_next


def _meant(missing: str, names: Mapping[str, Any]) -> str:
    return close_match(missing, [name for name in names if not name.startswith("_")])


@dataclass(frozen=True)
class _Written:
    """By which text a value was made; ``is_call`` if without the class that it names."""

    made: weakref.ref[Any]
    text: str
    is_call: bool


_written: dict[int, _Written] = {}  # by the id of the value


def remember(value: Any, text: str, is_call: bool = False) -> None:
    """Remember by which text a value was made, as long as there is the value.

    Args:
        value: what was made.
        text: all that the editor had, or an expression elsewhere.
        is_call: whether it is that: the class of the value, if it is of a cell, is then shown as well.
    """
    made = value.function if isinstance(value, Update) else value
    key = id(made)
    try:
        _written[key] = _Written(weakref.ref(made, lambda _: _written.pop(key, None)), text, is_call)
    except TypeError:
        _written.pop(key, None)  # a number, or an object with slots: it is shown by its attributes


def _remembered(value: Any, is_call: bool) -> str:
    known = _written.get(id(value))
    return known.text if known is not None and known.is_call is is_call and known.made() is value else ""


def text_of(operator: Operator, function: Any, names: Mapping[str, Any]) -> FunctionText:
    """The text of what an operator runs.

    Args:
        operator: the operator.
        function: what it runs now; that of its declaration, or that of a change.
        names: the user's namespace, in whose cells the call is looked for by which an object was made.
    """
    function = function.data if isinstance(function, JoinTable) else function
    own = users_function(function) if not isinstance(function, BatchFunction) else function
    for one in (function, own):
        if text := _remembered(one, is_call=False):
            return FunctionText(text)
    if isinstance(function, str):
        return FunctionText(repr(function))
    if own is not function and not isinstance(function, ConfiguredFunction):
        return _new(operator, own, f"it is a {function_text(function)}, whose arguments are not known")
    if inspect.isroutine(own) or isinstance(own, BatchFunction):
        found = _source(own.function if isinstance(own, BatchFunction) else own)
        return found or _new(operator, own, f"the source of {function_text(own)} is not to be had")
    if isinstance(own, type):
        return FunctionText(own.__name__)
    return _object(operator, own, names)


def running_text(run: Run, operator: str, names: Mapping[str, Any]) -> FunctionText:
    """The text of what an operator of a run runs now; see ``text_of``."""
    declared, now = run.graph.operator(operator), run.functions()[operator]
    if not now.version:
        return text_of(declared, declared.function, names)
    change = next((one for one in run.changes if one.id == now.version), None)
    try:
        function = change.functions()[operator][1] if change is not None else None
    except Exception as error:  # noqa: BLE001 (what was replaced is unpickled, by the user's code)
        why = f"{now.function} by {now.version} cannot be loaded: {exception_text(error)}"
        return _new(declared, declared.function, why)
    if change is None:
        why = f"{now.function} runs by {now.version}, of which this run keeps nothing"
        return _new(declared, declared.function, why)
    return text_of(declared, function, names)


def _object(operator: Operator, own: Any, names: Mapping[str, Any]) -> FunctionText:
    kind, short = type(own), function_text(own)
    call = _remembered(own, is_call=True) or _declared(operator.name, own, names) or _whole(short, kind)
    note = "" if call else f"how this {kind.__name__} was made is not known; put its arguments in place of {_OPEN}"
    if not call and operator.traits.holds is Holds.TABLE:
        return _new(operator, own, f"how this {kind.__name__} was made is not known")
    call = call or f"{kind.__name__}({_OPEN})"
    if kind.__module__ != "__main__":
        return FunctionText(call, note)
    found = _source(kind)
    return replace(found, text=f"{found.text}\n\n{call}", note=note) if found else FunctionText(call, note)


def _whole(short: str, kind: type) -> str:
    """The call of a class, if the short text of an object says all that it needs; empty if not."""
    try:
        call = ast.parse(short, mode="eval").body
        needed = {*inspect.signature(kind).parameters}
        given = {one.arg for one in call.keywords} if isinstance(call, ast.Call) else set()
    except (SyntaxError, TypeError, ValueError):
        return ""
    if not needed:
        return f"{kind.__name__}()"
    return short if _OPEN not in short and needed <= given else ""


def _declared(operator: str, own: Any, names: Mapping[str, Any]) -> str:
    """The call in the newest cell that declares the operator, if it is one of the object's class with its values."""
    last = len(names.get("In", ()))
    for number in range(last, max(0, last - CELLS_SEARCHED), -1):
        cell = str(names.get(f"_i{number}", ""))  # as it was typed; IPython itself may have forgotten it
        if operator not in cell or type(own).__name__ not in cell:
            continue
        body = cell.partition("\n")[2] if cell.lstrip().startswith("%%") else cell
        try:
            tree = ast.parse(body)
        except SyntaxError:
            continue  # magics, or an attempt; the cell before may have it
        for call in _calls_of(tree, operator):
            if isinstance(call, ast.Call) and _made(call, own):
                return textwrap.dedent(ast.get_source_segment(body, call) or "")
    return ""


def _calls_of(tree: ast.AST, operator: str) -> Iterator[ast.expr]:
    """What a cell gives to an operator, as in ``stream.map("FM", Model())`` and ``FM = Model()``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
            if isinstance(node.args[0], ast.Constant) and node.args[0].value == operator:
                yield node.args[1]
        elif isinstance(node, ast.Assign) and operator in [to.id for to in node.targets if isinstance(to, ast.Name)]:
            yield node.value


def _made(call: ast.Call, own: Any) -> bool:
    """Whether an object may have been made by a call: its class has that name, its attributes the plain values."""
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if named != type(own).__name__:
        return False
    try:
        parameters = list(inspect.signature(type(own)).parameters)
    except (TypeError, ValueError):
        parameters = []
    given = [*zip(parameters, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
    held = getattr(own, "__dict__", {})
    return all(
        not (isinstance(value, ast.Constant) and name in held) or held[name] == value.value for name, value in given
    )


def _source(function: Any) -> FunctionText | None:
    """The text of a lambda, a ``def`` or a class, if the line cache has it."""
    place = source_place(function)
    if place is None or (inspect.ismethod(function)):
        return None
    file, first = place
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines), file)
    except SyntaxError:
        return None
    code = getattr(function, "__code__", None)
    if code is not None and code.co_name == "<lambda>":
        return _lambda(tree, lines, code, function)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function.__name__:
            begins = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first + 1 in (begins, node.lineno):
                text = textwrap.dedent("".join(lines[begins - 1 : node.end_lineno])).rstrip()
                return _closed(text, function)
    return None


def _lambda(tree: ast.AST, lines: Sequence[str], code: CodeType, function: Any) -> FunctionText | None:
    """The text of a lambda: the innermost one that holds all places of the code."""
    places = [one for one in code.co_positions() if None not in one and one[2:] != (0, 0)]
    begin = min(((line, column) for line, _, column, _ in places), default=None)
    end = max(((line, column) for _, line, _, column in places), default=None)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and begin and end and (node.body.lineno, node.body.col_offset) <= begin
        and end <= (node.body.end_lineno or 0, node.body.end_col_offset or 0)
    ]  # fmt: skip
    if not found:
        return None
    node = max(found, key=lambda one: (one.lineno, one.col_offset))
    text = ast.get_source_segment("".join(lines), node) or ""
    head, *rest = text.split("\n")
    text = "\n".join([head, *textwrap.dedent("\n".join(rest)).split("\n")]) if rest else head
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:  # it went on in the next line within brackets that are not its own
        text = f"(\n{textwrap.indent(text, '    ')}\n)"
    return replace(_closed(text, function), cell="")


def _closed(text: str, function: Any) -> FunctionText:
    """The text behind the plain values that the function took along from where it was made; the others are named."""
    of_cell = text if getattr(function, "__module__", "") == "__main__" else ""
    if isinstance(function, type) or not getattr(function, "__closure__", None):
        return FunctionText(text, cell=of_cell)
    known, unknown = list[str](), list[str]()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
        try:
            value = cell.cell_contents
            plain = ast.literal_eval(repr(value)) == value
        except (ValueError, SyntaxError, TypeError, MemoryError):
            plain = False
        (known if plain else unknown).append(f"{name} = {value!r}" if plain else name)
    note = f"{', '.join(unknown)}: known only where the function was made; define it here" if unknown else ""
    return FunctionText("\n".join([*known, text]), note)


def _new(operator: Operator, like: Any, why: str) -> FunctionText:
    """An empty function of the same parameters for the operator, and why there is no text of what it runs."""
    if operator.traits.holds is Holds.TABLE:
        return FunctionText("", f"{why}; type the new table, as in spark.table(...)")
    note = f"{why}; this is an empty new function"
    try:
        given = [*inspect.signature(users_function(like)).parameters] if callable(like) else []
    except (TypeError, ValueError):
        given = []
    names = [name for name in given if name.isidentifier()]
    arguments = ", ".join(names) if 1 <= len(names) <= 2 else "row"
    name = re.sub(r"\W", "_", operator.name)
    name = name if name.isidentifier() else "new_function"
    return FunctionText(f"def {name}({arguments}):\n    return {arguments.split(', ')[0]}", note)
