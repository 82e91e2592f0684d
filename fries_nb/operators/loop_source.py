"""The source of an inner loop: one function that passes many tuples through a chain of maps, filters and a split.

It is generated for the columns that the chain reads and writes, since a general loop over columns and operators takes
longer than most functions do. It uses one laid row for all tuples. After each operator it checks that the row is as
expected: returned by the function, not kept, with the columns that were read unchanged and those written that always
are. On any other row it returns; :class:`~fries_nb.operators.inner_loop.InnerLoop` completes that tuple.

>>> print(source_of(LoopShape((LoopStep(writes=("p",), state="list"),), laid=("amount",))))
def loop(row, rows, keep, put_0):
    entries, get, take = keys_of(row), get_of(row), take_of(row)
    lay, wipe = lay_of(row), wipe_of(row)
    held, kind = refs(row), type(row)
    for index, key_0, came_0 in rows:
        row.index = index
        lay('amount', came_0)
        try:
            try: state = find_0(key_0)
            except TypeError: state = None
            out = call_0(row, touch_0(key_0) if state is None else state)
        except FAILURES as error:
            raise failure(instance_0, error) from error
        if out is not row or refs(row) != held + 1 or type(row) is not kind:
            kept = refs(row) > held + (out is row)
            return 0, out, kept
        left_came_0 = take('amount', ABSENT)
        value_0 = take('p', ABSENT)
        if left_came_0 is not came_0 or value_0 is ABSENT or len(entries) != 1:
            if left_came_0 is not ABSENT: row['amount'] = left_came_0
            if value_0 is not ABSENT: row['p'] = value_0
            return 0, out, False
        put_0(value_0)
        if interrupt.raised:
            return None
    return None
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from sys import getrefcount
from typing import Any

from fries_nb.operators.canonical import PLAIN
from fries_nb.operators.failures import FAILURES, failure
from fries_nb.operators.rows import UNREAD

Stopped = tuple[int, Any, bool]
"""Where a loop has stopped: the operator's position, its result, and whether its function has kept the row."""

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One operator of a loop.

    Attributes:
        writes: the columns that it writes to every row, and no earlier operator does.
        state: where the key of its state comes from: a ``list``, its ``row``, or empty if it keeps no state.
        is_filter: whether its result decides if the row goes on.
        branches: the number of branches of which its result is one; 0 if it is no split.
    """

    writes: tuple[str, ...] = ()
    state: str = ""
    is_filter: bool = False
    branches: int = 0


@dataclass(frozen=True, slots=True)
class LoopShape:
    """What a loop is generated for.

    Attributes:
        steps: the operators.
        laid: the columns that are laid into the row.
        by_name: whether all functions use the row by names only (see ``row_uses``). It is then an ``ItemRow``, in which
            what is laid is replaced instead of taken out.
    """

    steps: tuple[LoopStep, ...]
    laid: tuple[str, ...]
    by_name: bool = False

    @property
    def writes(self) -> tuple[str, ...]:
        """All columns that are written to every row, in order."""
        return tuple([name for step in self.steps for name in step.writes])

    @property
    def branches(self) -> int:
        """The number of branches among which rows are divided; 0 without a split, which is the last operator."""
        return self.steps[-1].branches if self.steps else 0

    @property
    def picks(self) -> bool:
        """Whether rows may be dropped, or are divided; the indices of those that an output gets are then recorded."""
        return bool(self.branches) or any(step.is_filter for step in self.steps)


def source_of(shape: LoopShape) -> str:
    """The source of the loop: a function ``loop`` of the row, the tuples, and what takes indices and values.

    With a split, these take them for each branch.
    """
    keys = [f"key_{at}" for at, step in enumerate(shape.steps) if step.state == "list"]
    came = [f"came_{at}" for at in range(len(shape.laid))]
    puts = [f"put_{at}" for at in range(len(shape.writes))]
    lines = [
        f"def loop({', '.join(['row', 'rows', 'keep', *puts])}):",
        "    entries, get, take = keys_of(row), get_of(row), take_of(row)",
        "    lay, wipe = lay_of(row), wipe_of(row)",
        "    held, kind = refs(row), type(row)",
        f"    for {', '.join(['index', *keys, *came])} in rows:" if keys or came else "    for (index,) in rows:",
        "        row.index = index",
        *[f"        {_laid(shape, name, f'came_{at}')}" for at, name in enumerate(shape.laid)],
    ]
    for at in range(len(shape.steps)):
        lines += _called(at, shape)
        if at < len(shape.steps) - 1:
            lines += _crossed(at, shape)
    lines += [*_captured(shape), "        if interrupt.raised:", "            return None", "    return None"]
    return "\n".join(lines)


def _laid(shape: LoopShape, name: str, value: str) -> str:
    return f"row[{name!r}] = {value}" if shape.by_name else f"lay({name!r}, {value})"


def _called(at: int, shape: LoopShape) -> Iterator[str]:
    """The call of the function, and the checks that need not look into the row."""
    step = shape.steps[at]
    yield "        try:"
    if step.state:
        key = f"key_{at}"
        if step.state == "row":
            yield f"            {key} = read_{at}(row)"
        yield f"            try: state = find_{at}({key})"
        yield "            except TypeError: state = None"
    call = f"call_{at}(row, touch_{at}({key}) if state is None else state)" if step.state else f"call_{at}(row)"
    yield f"            out = {'not not ' if step.is_filter else ''}{f'int({call})' if step.branches else call}"
    yield "        except FAILURES as error:"
    yield f"            raise failure(instance_{at}, error) from error"
    is_answer = step.is_filter or step.branches
    same, references = ("", "held") if is_answer else ("out is not row or ", "held + 1")
    kind = "" if shape.by_name else " or type(row) is not kind"
    beyond = " or out not in known" if step.branches else ""
    yield f"        if {same}refs(row) != {references}{kind}{beyond}:"
    yield "            kept = refs(row) > held + (out is row)"
    yield f"            return {at}, out, kept"


def _crossed(at: int, shape: LoopShape) -> Iterator[str]:
    """The checks of the row between two operators: only canonical values pass."""
    written = [name for step in shape.steps[: at + 1] for name in step.writes]
    unwritten = [(number, name) for number, name in enumerate(shape.laid) if name not in written]
    checks = [f"row[{name!r}] is not came_{number}" for number, name in unwritten]
    checks += [f"type(get({name!r}, ABSENT)) not in PLAIN" for name in written]
    yield f"        if {' or '.join([f'len(entries) != {1 + len({*shape.laid, *written})}', *checks])}:"
    yield f"            return {at}, out, False"
    if shape.steps[at].is_filter:
        yield from _dropped("wipe()", "lay(UNREAD, None)")
    yield f"        instance_{at + 1}.processed += 1"


def _dropped(*reset: str) -> Iterator[str]:
    """A filter's row goes no further."""
    yield "        if not out:"
    yield from (f"            {line}" for line in reset)
    yield from ("            if interrupt.raised:", "                return None", "            continue")


def _captured(shape: LoopShape) -> Iterator[str]:
    """At the end of the chain, what was written is taken out of the row and kept."""
    last, written = len(shape.steps) - 1, shape.writes
    unwritten = [(f"came_{at}", name) for at, name in enumerate(shape.laid) if name not in written]
    taken = [(f"value_{at}", name) for at, name in enumerate(written)]
    if shape.by_name:
        checks = [f"row[{name!r}] is not {variable}" for variable, name in unwritten]
        size = 1 + len(unwritten)
    else:
        checks = [f"left_{variable} is not {variable}" for variable, _ in unwritten]
        taken, size = [*[(f"left_{variable}", name) for variable, name in unwritten], *taken], 1
    yield from (f"        {variable} = take({name!r}, ABSENT)" for variable, name in taken)
    checks += [f"value_{at} is ABSENT" for at in range(len(written))]
    yield f"        if {' or '.join([*checks, f'len(entries) != {size}'])}:"
    for variable, name in taken:
        yield f"            if {variable} is not ABSENT: row[{name!r}] = {variable}"
    yield f"            return {last}, out, False"
    if shape.steps[last].is_filter:
        yield from _dropped()
    branch = "[out]" if shape.branches else ""
    yield from (f"        put_{at}{branch}(value_{at})" for at in range(len(written)))
    if shape.picks:
        yield f"        keep{branch}(index)"


def _bound(method: Any) -> Callable[[dict[str, Any]], Any]:
    """A function that binds this method of ``dict`` to a row, whose class may have a method of its own."""
    return method.__get__  # type: ignore[no-any-return]


GLOBALS = {
    "ABSENT": _ABSENT, "PLAIN": PLAIN, "FAILURES": FAILURES, "UNREAD": UNREAD,
    "failure": failure, "refs": getrefcount, "keys_of": dict.keys, "get_of": _bound(dict.get),
    "take_of": _bound(dict.pop), "lay_of": _bound(dict.setdefault), "wipe_of": _bound(dict.clear),
}  # fmt: skip
"""What every loop uses, by its name in the source."""


@lru_cache(maxsize=64)
def _code_of(shape: LoopShape) -> Any:
    return compile(source_of(shape), __file__, "exec")


def loop_of(shape: LoopShape, names: dict[str, Any]) -> Callable[..., Stopped | None]:
    """The loop of this shape.

    Args:
        shape: what it is generated for.
        names: what its source uses besides ``GLOBALS``: the interrupt flag, the branches that are known, and each
            operator's instance and functions.

    Returns:
        The function, which returns where it has stopped; ``None`` after the last tuple, or if it was interrupted.
    """
    scope = {**GLOBALS, **names}
    exec(_code_of(shape), scope)
    return scope.pop("loop")  # type: ignore[no-any-return]  # no cycle, so that replaced functions are released
