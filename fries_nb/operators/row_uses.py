"""Whether a function uses its row by the names of columns only: ``row[name]``, ``row[name] = value``, ``return row``.

Such a function cannot remove a column, and does not pass its row to other code that might. Python has one slot for
assigning and deleting items, so only a row from which nothing is removed can have the fast assignment of ``dict`` (see
``laid_rows``). The answer is found in the function's instructions; what is not recognised counts as another use.

>>> def scored(row):
...     row["p"] = row["amount"] * 2
...     return row
>>> def renamed(row):
...     row["p"] = row.pop("amount")
...     return row
>>> is_by_name(scored), is_by_name(renamed), is_by_name(dict)
(True, False, False)
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"})
_NAMES = _LOADS | {"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF"}
"""Instructions that load a column's name."""
_ITEM = frozenset({"BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_OP []"})
_SHOWS_VARIABLES = frozenset({"locals", "vars", "eval", "exec", "_getframe", "currentframe"})
"""Names of functions that may return, or use, the caller's variables."""

_Instruction = tuple[str, Any]


def is_by_name(function: Any) -> bool:
    """Whether a function uses its row, the first argument, by the names of columns only."""
    position = 0
    if isinstance(function, MethodType):
        function, position = function.__func__, 1
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    if code.co_argcount <= position or not _SHOWS_VARIABLES.isdisjoint(code.co_names):
        return False
    row = code.co_varnames[position]
    instructions = [*_instructions(code), ("", None), ("", None)]
    return all(
        name in _LOADS and _is_item_or_result(instructions[at + 1], instructions[at + 2])
        for at, (name, argument) in enumerate(instructions[:-2])
        if argument == row and name != "LOAD_CONST"
    )


def _is_item_or_result(first: _Instruction, second: _Instruction) -> bool:
    """Whether these two instructions, after the row was loaded, use an item of it, or return it."""
    return first[0] == "RETURN_VALUE" or (first[0] in _NAMES and second[0] in _ITEM)


def _instructions(code: CodeType) -> Iterator[_Instruction]:
    """The names of the instructions with their arguments; those that load two variables count as two."""
    for one in dis.get_instructions(code):
        if one.opname in _PAIRS:
            yield from (("LOAD_FAST", name) for name in one.argval)
        elif isinstance(one.argval, tuple):
            yield from ((one.opname, name) for name in one.argval)
        elif one.opname != "EXTENDED_ARG":
            yield one.opname if one.opname != "BINARY_OP" else f"BINARY_OP {one.argrepr}", one.argval
