"""The inner loop: many tuples in one generated function, for chains of maps and filters of rows, and a split behind.

An executor processes the first tuples by the *common path*, the steps of ``kinds``. From one of them the inner
loop learns what each operator writes, and generates a function for just that (see ``source_of``): the columns that
the functions read are laid into one row, keys come straight from their column, and what is written is captured as
columns when the last function has returned. Whatever is unexpected in a tuple ends the function; its step then
continues on the common path with the result that the operator's function has returned, and the next tuple begins anew.
If that happens often, the loop is given up: the common path processes the rest of the slice, and also the next slices,
each time more of them. Then the loop learns anew.

The common path remains the definition of what a chain does: the inner loop only begins when the columns written so far
in the batch include all that it writes, and have settled (see ``column_types``).

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import WorkerId
>>> from fries_nb.operators.executors import InterruptFlag, RowExecutor
>>> def doubled(row):
...     row["double"] = 2 * row["amount"]
...     return row
>>> instance = Instance(WorkerId("M", 0), Operator("M", function=doubled), doubled, audit=False)
>>> executor, batch = RowExecutor([instance], InterruptFlag(), 1, ""), pa.RecordBatch.from_pydict({"amount": [3] * 100})
>>> for frame in range(2):
...     executor.load("S", batch)
...     taken = executor.advance(100)
...     loop = sum(len(part.indices) for _, part in executor._outputs[0].captured)
...     print(f"{taken} tuples, {loop} by the loop:", executor.results()[0][1].column("double")[99])
100 tuples, 0 by the loop: 6
100 tuples, 98 by the loop: 6

The source of an inner loop: one function that passes many tuples through a chain of maps, filters and a split.

It is generated for the columns that the chain reads and writes, since a general loop over columns and operators takes
longer than most functions do. It uses one laid row for all tuples. After each operator it checks that the row is as
expected: returned by the function, not kept, with the columns that were read unchanged and those written that always
are. On any other row it returns; :class:`~fries_nb.operators.inner_loop.InnerLoop` completes that
tuple. It ends when ``rows`` does, which is emptied to interrupt it (see ``InterruptFlag``).

>>> print(source_of(LoopShape((LoopStep(writes=("p",), state="list"),), laid=("amount",))))
def loop(row, rows, keep, put_0):
    entries, get, take = keys_of(row), get_of(row), take_of(row)
    lay, wipe = lay_of(row), wipe_of(row)
    held, kind = refs(row), type(row)
    back, index = held + 1, row.index
    try:
        for index, key_0, came_0 in rows:
            row.index = index
            lay('amount', came_0)
            try:
                try: state = find_0(key_0)
                except TypeError: state = None
                out = call_0(row, touch_0(key_0) if state is None else state)
            except FAILURES as error:
                raise failure(instance_0, error) from error
            if out is not row or refs(row) != back or type(row) is not kind:
                kept = refs(row) > held + (out is row)
                return 0, out, kept
            left_came_0 = take('amount', ABSENT)
            value_0 = take('p', ABSENT)
            if left_came_0 is not came_0 or value_0 is ABSENT or len(entries) != 1:
                if left_came_0 is not ABSENT: row['amount'] = left_came_0
                if value_0 is not ABSENT: row['p'] = value_0
                return 0, out, False
            put_0(value_0)
    finally:
        row.index = index
    return None

Of a function that uses its row by names only, which its code shows, less is checked: it cannot remove a column, nor
write another than those that it names.

>>> step = LoopStep(writes=("p",), stores=frozenset({"p"}))
>>> shape = LoopShape((step,), laid=("amount",), by_name=True, looks_up=False)
>>> for line in source_of(shape).splitlines()[6:-3]:
...     print(line)
        for index, came_0 in rows:
            row['amount'] = came_0
            try:
                out = call_0(row)
            except FAILURES as error:
                raise failure(instance_0, error) from error
            if out is not row or refs(row) != back:
                kept = refs(row) > held + (out is row)
                return 0, out, kept
            value_0 = take('p', ABSENT)
            if value_0 is ABSENT:
                return 0, out, False
            put_0(value_0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from sys import getrefcount
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.operators import Shape, is_generator, shape_of, takes_state
from fries_nb.dataflow.traits import Returns
from fries_nb.operators.conversion import PLAIN
from fries_nb.operators.dry_run import Noted, noting
from fries_nb.operators.error_policy import is_watched
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.kinds import CALLS, compile_chain, resumed_steps
from fries_nb.operators.row_versions import side_by_side, versions_of
from fries_nb.operators.rows import (
    SETTLED,
    UNREAD,
    Columns,
    ItemRow,
    ItemUse,
    LaidRow,
    Row,
    can_be_laid,
    detach,
    item_use,
    laid_row,
)
from fries_nb.operators.state import key_reader
from fries_nb.operators.steps import Captured, Output, Step

Stopped = tuple[int, Any, bool]
"""Where a loop has stopped: the operator's position, its result, and whether its function has kept the row."""

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One operator of a loop."""

    writes: tuple[str, ...] = ()  # the columns that it writes to every row, and no earlier operator does
    state: str = ""  # where the key of its state comes from: a ``list``, its ``row``, or empty if it keeps no state
    is_filter: bool = False  # whether its result decides if the row goes on
    branches: int = 0  # the number of branches of which its result is one; 0 if it is no split
    has_versions: bool = False  # whether several functions run side by side, of which each row has one
    stores: frozenset[str] | None = None  # the columns that its functions may write, if their code shows them all


@dataclass(frozen=True, slots=True)
class LoopShape:
    """What a loop is generated for."""

    steps: tuple[LoopStep, ...]  # the operators
    laid: tuple[str, ...]  # the columns that are laid into the row
    # whether all functions use the row by names only (``rows.item_use``): it is an ``ItemRow``, in which what is laid
    # is replaced instead of taken out
    by_name: bool = False
    looks_up: bool = True  # whether a function may read a column that is not laid

    def may_store(self, name: str, at: int) -> bool:
        """Whether one of the first operators, up to this position, may write a column."""
        return any(step.stores is None or name in step.stores for step in self.steps[: at + 1])

    def may_store_others(self, at: int) -> bool:
        """Whether they may write a column that is neither laid nor written to every row."""
        known = {*self.laid, *(name for step in self.steps[: at + 1] for name in step.writes)}
        return not all(step.stores is not None and step.stores <= known for step in self.steps[: at + 1])

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
    """The source of the loop: a function ``loop`` of the row, the tuples, and what takes indices and values."""
    # With a split, these take them for each branch.
    keys = [f"key_{at}" for at, step in enumerate(shape.steps) if step.state == "list"]
    came = [f"came_{at}" for at in range(len(shape.laid))]
    puts = [f"put_{at}" for at in range(len(shape.writes))]
    body = ["row.index = index"] if shape.looks_up else []
    body += [_laid(shape, name, f"came_{at}") for at, name in enumerate(shape.laid)]
    for at in range(len(shape.steps)):
        body += _call_names(at, shape)
        if at < len(shape.steps) - 1:
            body += _crossed(at, shape)
    came_in = ", ".join(["index", *keys, *came]) if keys or came else "(index,)"
    lines = [
        f"def loop({', '.join(['row', 'rows', 'keep', *puts])}):",
        "    entries, get, take = keys_of(row), get_of(row), take_of(row)",
        "    lay, wipe = lay_of(row), wipe_of(row)",
        "    held, kind = refs(row), type(row)",
        "    back, index = held + 1, row.index",
        "    try:",
        f"        for {came_in} in rows:",
        *[f"            {line}" for line in (*body, *_captured(shape))],
        "    finally:",
        "        row.index = index",
        "    return None",
    ]
    return "\n".join(lines)


def _laid(shape: LoopShape, name: str, value: str) -> str:
    return f"row[{name!r}] = {value}" if shape.by_name else f"lay({name!r}, {value})"


_OF_VERSIONS = ("call", "find", "touch")
"""What differs between the versions of an operator."""


def _call_names(at: int, shape: LoopShape) -> Iterator[str]:
    """The call of the function, and the checks that need not look into the row."""
    step = shape.steps[at]
    function, find, touch = (
        f"each_{name}_{at}[versions_{at}[index]]" if step.has_versions else f"{name}_{at}" for name in _OF_VERSIONS
    )
    yield "try:"
    if step.state:
        key = f"key_{at}"
        if step.state == "row":
            yield f"    {key} = read_{at}(row)"
        yield f"    try: state = {find}({key})"
        yield "    except TypeError: state = None"
    call = f"{function}(row, {touch}({key}) if state is None else state)" if step.state else f"{function}(row)"
    yield f"    out = {'not not ' if step.is_filter else ''}{f'int({call})' if step.branches else call}"
    yield "except FAILURES as error:"
    yield f"    raise failure(instance_{at}, error) from error"
    is_answer = step.is_filter or step.branches
    same, references = ("", "held") if is_answer else ("out is not row or ", "back")
    kind = "" if shape.by_name else " or type(row) is not kind"
    beyond = " or out not in known" if step.branches else ""
    yield f"if {same}refs(row) != {references}{kind}{beyond}:"
    yield "    kept = refs(row) > held + (out is row)"
    yield f"    return {at}, out, kept"


def _crossed(at: int, shape: LoopShape) -> Iterator[str]:
    """The checks of the row between two operators: only canonical values pass."""
    written = [name for step in shape.steps[: at + 1] for name in step.writes]
    unwritten = [(number, name) for number, name in enumerate(shape.laid) if name not in written]
    checks = [f"len(entries) != {1 + len({*shape.laid, *written})}"] if shape.may_store_others(at) else []
    checks += [f"row[{name!r}] is not came_{number}" for number, name in unwritten if shape.may_store(name, at)]
    checks += [f"type(get({name!r}, ABSENT)) not in PLAIN" for name in written]
    if checks:
        yield f"if {' or '.join(checks)}:"
        yield f"    return {at}, out, False"
    if shape.steps[at].is_filter:
        yield from _dropped("wipe()", "lay(UNREAD, None)")
    yield f"instance_{at + 1}.processed += 1"


def _dropped(*reset: str) -> Iterator[str]:
    """A filter's row goes no further."""
    yield "if not out:"
    yield from (f"    {line}" for line in reset)
    yield "    continue"


def _captured(shape: LoopShape) -> Iterator[str]:
    """At the end of the chain, what was written is taken out of the row and kept."""
    last, written = len(shape.steps) - 1, shape.writes
    unwritten = [(f"came_{at}", name) for at, name in enumerate(shape.laid) if name not in written]
    taken = [(f"value_{at}", name) for at, name in enumerate(written)]
    if shape.by_name:
        stored = [(variable, name) for variable, name in unwritten if shape.may_store(name, last)]
        checks, size = [f"row[{name!r}] is not {variable}" for variable, name in stored], 1 + len(unwritten)
    else:
        checks = [f"left_{variable} is not {variable}" for variable, _ in unwritten]
        taken, size = [*[(f"left_{variable}", name) for variable, name in unwritten], *taken], 1
    yield from (f"{variable} = take({name!r}, ABSENT)" for variable, name in taken)
    checks += [f"value_{at} is ABSENT" for at in range(len(written))]
    checks += [f"len(entries) != {size}"] if shape.may_store_others(last) else []
    if checks:
        yield f"if {' or '.join(checks)}:"
        for variable, name in taken if len(taken) > 1 or len(checks) > 1 else ():
            yield f"    if {variable} is not ABSENT: row[{name!r}] = {variable}"
        yield f"    return {last}, out, False"
    if shape.steps[last].is_filter:
        yield from _dropped()
    branch = "[out]" if shape.branches else ""
    yield from (f"put_{at}{branch}(value_{at})" for at in range(len(written)))
    if shape.picks:
        yield f"keep{branch}(index)"


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
    """The loop of this shape; it returns where it has stopped, ``None`` after the last tuple or if interrupted."""
    scope = {**GLOBALS, **names}
    exec(_code_of(shape), scope)
    return scope.pop("loop")  # type: ignore[no-any-return]  # no cycle, so that replaced functions are released


LEAST = 32
"""Number of tuples from which on preparing the loop for a slice is worth its cost."""
_FIRST = 16
"""Number of tuples of a slice that are given to the common path at most until the loop can begin."""
_STOPS, _RARE = 3, 64
"""How many tuples may be unexpected, and one more for so many tuples; then the loop is given up."""
_MANY = 4096
"""After so many tuples earlier failures, and unexpected tuples, are forgotten."""
_MOST_FAILURES = 9
"""After the n-th slice in a row in which the loop could not begin, or was given up, 2**n - 2 slices are not tried."""


class ReturnedResult:
    """Called in place of a function that has returned already: returns what that has returned."""

    def __init__(self) -> None:
        self._result: Any = None

    def put(self, result: Any) -> None:
        """Keep a result for the next call; the row itself is kept as the class, since references to rows count."""
        self._result = result

    def __call__(self, row: Row) -> Any:
        """Return the result, and keep it no longer."""
        result, self._result = self._result, None
        return row if result is ReturnedResult else result


def can_loop(instances: Sequence[Instance], outputs: Sequence[Output]) -> bool:
    """Whether an inner loop can process a chain: maps, filters, a split; none audited, awaited or guarded."""
    return (len(outputs) == 1 or instances[-1].operator.branches > 1) and not any(
        instance.audit
        or instance.agenda is not None
        or instance.operator.awaiting is not None
        or is_watched(instance)
        or not CALLS[instance.operator.kind].loops
        or is_generator(instance.function)
        or (instance.earlier and not _can_choose(instances[:position], instance))
        for position, instance in enumerate(instances)
    )


def _can_choose(before: Sequence[Instance], instance: Instance) -> bool:
    """Whether the loop can call each version of an operator in the same way, and count its rows behind these."""
    functions = [one.function for one in side_by_side(instance)]
    alike = len({takes_state(function) for function in functions}) == 1 and not any(map(is_generator, functions))
    return alike and all(one.operator.traits.returns is not Returns.ANSWER for one in before)


class InnerLoop:
    """The inner loop of one executor's chain, until the chain is rebuilt."""

    def __init__(
        self, instances: Sequence[Instance], outputs: Sequence[Output], known: Collection[int], common: Step,
        interrupt: Any,
    ) -> None:  # fmt: skip
        self.reached = 0  # index of the row in hand, after an error
        self._instances = instances  # the operators, in the chain's order; ``can_loop`` holds of them
        self._outputs = outputs
        self._interrupt = interrupt  # the flag of the executor, an ``InterruptFlag``
        self._returned = ReturnedResult()
        self._resumed: Sequence[Step] = resumed_steps(instances, outputs, self._returned)
        self._noted: Noted = {}
        self._common = common  # the chain's first step on the common path
        self._writes: tuple[tuple[str, ...], ...] = ()
        self._written: frozenset[str] = frozenset()
        self._read: set[str] = set()
        self._failures = self._rest = self._looped = self._unexpected = 0
        self._converted: tuple[str, ...] = ()
        self._schema: pa.Schema | None = None
        self._listed: list[tuple[str, ...]] = []
        # ``known``: the branches in which columns have begun to settle; the first rows of the others take the common
        # path
        self._names = {"known": known, **_names_of(instances)}
        self._has_versions = any(instance.earlier for instance in instances)
        self._versions: dict[int, Sequence[int]] = {}  # operator's position to the version of each row of a batch
        self._versions_of: pa.RecordBatch | None = None
        self._shape = LoopShape((), ())
        self._loop: Callable[..., Stopped | None]

    # Only chains with long slices need what follows, and the workers of a change of the shape begin without.

    @cached_property
    def _uses(self) -> tuple[tuple[ItemUse | None, ...], ...]:
        return tuple([
            tuple([item_use(_called(one)) for one in side_by_side(instance)]) for instance in self._instances
        ])  # fmt: skip

    @cached_property
    def _by_name(self) -> bool:
        return all(use is not None for uses in self._uses for use in uses)

    @cached_property
    def _stores(self) -> tuple[frozenset[str] | None, ...]:
        shown = [[use for use in uses if use is not None and use.are_all] for uses in self._uses]
        return tuple([
            frozenset[str]().union(*(use.stores for use in known)) if len(known) == len(uses) else None
            for known, uses in zip(shown, self._uses, strict=True)
        ])  # fmt: skip

    @cached_property
    def _recording(self) -> Step:
        return compile_chain(self._instances, self._outputs, str, noting(self._noted))

    def is_due(self) -> bool:
        """Whether this slice is to be tried; called once for each that is long enough."""
        if self._rest:
            self._rest -= 1
            return False
        return True

    def run(self, columns: Columns, start: int, end: int) -> int:
        """Process rows; returns the position after the last one processed."""
        if self._writes and not self._crosses_as_learned(columns):
            self._writes = ()
        if not self._is_ready(columns):
            start = self._begin(columns, start, end)
        first = start
        while end - start >= LEAST and not self._interrupt.raised and self._is_ready(columns):
            start = self._run_once(columns, start, end)
            self._unexpected += start < end and not self._interrupt.raised
            if self._unexpected > _STOPS + (self._looped + start - first) // _RARE:
                self._writes = ()
        self._looped += start - first
        if self._looped >= _MANY:
            self._looped = self._unexpected = self._failures = 0
        if not self._is_ready(columns) and not self._interrupt.raised:
            self._looped = self._unexpected = 0
            self._failures = min(self._failures + 1, _MOST_FAILURES)
            self._rest = 2**self._failures - 2
        return start

    def _begin(self, columns: Columns, start: int, end: int) -> int:
        """Process rows by the common path until the loop is ready, but only a few: the first may have been dropped."""
        for row in islice(columns.rows(start), min(_FIRST, max(0, end - start - LEAST))):
            if self._interrupt.raised or columns.plain < SETTLED or self._is_ready(columns):
                break
            self.reached = start = row.index
            emitted = list(map(len, self._outputs))
            (self._common if self._writes else self._recording)(row)
            if not self._writes:
                for output, before in zip(self._outputs, emitted, strict=True):
                    if len(output) > before:
                        self._learn(start, output[-1])
            start += 1
        return start

    def _learn(self, index: int, emitted: Row) -> None:
        """Learn from a row that the common path has emitted what the operators write."""
        rows = [self._noted[one][-1] if one in self._noted else None for one in self._instances[1:]] + [emitted]
        seen: dict[str, None] = {}
        writes = []
        for row in rows:
            if type(row) is not Row or row.index != index:
                return
            new = [name for name in dict.keys(row) if name in row.columns.written and name not in seen]
            seen.update(dict.fromkeys(new))
            writes.append(tuple(new))
        self._writes = tuple(writes)
        self._written = frozenset(seen)
        self._converted = ()

    def _is_ready(self, columns: Columns) -> bool:
        """Whether the loop can process rows of this batch now."""
        is_learned = bool(self._writes) and self._crosses_as_learned(columns)
        return is_learned and columns.plain >= SETTLED and self._written <= columns.written.keys()

    def _crosses_as_learned(self, columns: Columns) -> bool:
        """Whether rows between two operators have no new columns, nulls if they were not written, but those learned."""
        written = set(columns.names)
        for instance, writes in zip(self._instances[:-1], self._writes, strict=False):
            written.update(writes)
            if not written.issuperset(instance.written.emitted):
                return False
        return True

    def _run_once(self, columns: Columns, start: int, end: int) -> int:
        """Process rows up to one that is unexpected, and complete that one."""
        self._prepare(columns)
        if self._has_versions:
            self._choose_versions(columns.batch)
        shape, row = self._shape, laid_row(columns, ItemRow if self._by_name else LaidRow)
        row.index = start - 1
        taken: list[list[list[Any]]] = [[[] for _ in ("", *shape.writes)] for _ in self._outputs]
        takes: list[Any] = [tuple([one.append for one in lists]) for lists in zip(*taken, strict=True)]
        stopped: Stopped | None = (0, None, False)
        try:
            takes = takes if shape.branches else [take for [take] in takes]
            stopped = self._loop(row, self._tuples(columns, start, end), *takes)
        finally:
            self.reached = index = row.index
            self._count_versions(start, index, len(self._instances) if stopped is None else stopped[0])
            for output, (kept, *values) in zip(self._outputs, taken, strict=True):
                indices = kept if shape.picks else range(start, index + (stopped is None))
                output.capture(Captured(columns, indices, dict(zip(shape.writes, values, strict=True))))
            if stopped is not None and isinstance(row, LaidRow):
                row.common()
        if stopped is not None:
            at, result, is_kept = stopped
            self._returned.put(ReturnedResult if result is row else result)
            del stopped, result  # references to a row that was returned show whether it is kept
            self._complete(row, at, is_kept)
        return index + 1

    def _complete(self, row: Row, at: int, is_kept: bool) -> None:
        """Complete a tuple on the common path, from the result of the operator at this position on."""
        self._resumed[at](detach(row) if is_kept else row)

    def _prepare(self, columns: Columns) -> None:
        """Generate the loop for the columns that are converted, unless that is the present one."""
        converted, schema = tuple(columns), columns.batch.schema
        if converted == self._converted and schema == self._schema and columns.unlaid <= self._read:
            return
        self._converted, self._schema = converted, schema
        self._read |= columns.unlaid
        self._listed = self._keys_listed(columns)
        keys = {name for names in self._listed for name in names} - self._read
        laid = tuple([name for name in converted if name not in keys and can_be_laid(schema.field(name).type)])
        steps = []
        of_each = zip(self._instances, self._writes, self._listed, self._stores, strict=True)
        for instance, writes, key, stores in of_each:
            state = "" if not takes_state(instance.function) else "list" if key else "row"
            branches = instance.operator.branches
            is_filter = branches == 1 and instance.operator.traits.returns is Returns.ANSWER
            has_versions = bool(instance.earlier)
            steps.append(LoopStep(writes, state, is_filter, branches if branches > 1 else 0, has_versions, stores))
        shape = LoopShape(tuple(steps), laid, self._by_name, self._looks_up(columns, laid, steps))
        if shape != self._shape:
            self._loop = loop_of(shape, self._names)
            self._shape = shape

    def _looks_up(self, columns: Columns, laid: Collection[str], steps: Sequence[LoopStep]) -> bool:
        """Whether a function may read a column that is not laid, from its row or for the key of its state."""
        reads = [use.reads if use is not None and use.are_all else None for uses in self._uses for use in uses]
        keys = [one.operator.key for one, step in zip(self._instances, steps, strict=True) if step.state == "row"]
        return any(
            names is None or not {*names}.intersection(columns.names) <= {*laid} for names in (*reads, *keys)
        )

    def _choose_versions(self, batch: pa.RecordBatch) -> None:
        """Determine the version of each row where several run side by side."""
        if batch is not self._versions_of:
            self._versions_of = batch
            self._versions = {
                at: versions_of(instance.earlier, batch).tolist()
                for at, instance in enumerate(self._instances) if instance.earlier
            }  # fmt: skip
        self._loop.__globals__.update({f"versions_{at}": chosen for at, chosen in self._versions.items()})

    def _count_versions(self, start: int, last: int, stopped: int) -> None:
        """Count the rows of each arm of a canary, from one to the last one, which has come to this operator."""
        for at, chosen in self._versions.items():
            if (arms := self._instances[at].arms) is not None:
                each = arms.each(len(self._instances[at].earlier))
                for version, count in Counter(chosen[start : last + (at <= stopped)]).items():
                    each[version].taken += count

    def _keys_listed(self, columns: Columns) -> list[tuple[str, ...]]:
        """For each operator the columns of its state's key, if they are as they came in; else empty."""
        found: list[tuple[str, ...]] = []
        written: set[str] = set()
        for instance, writes in zip(self._instances, self._writes, strict=True):
            key = instance.operator.key
            are_listed = takes_state(instance.function) and all(
                name in columns and name not in written for name in key
            )
            found.append(key if are_listed else ())
            written.update(writes)
        return found

    def _tuples(self, columns: Columns, start: int, end: int) -> Any:
        """For each row its index, its keys, and the values that are laid."""
        # The flag empties the indices, of which one is taken before anything else of a row: so no row is begun then.
        indices = list(range(start, end))
        self._interrupt.watch(indices)
        lists: list[Any] = [indices]
        for key in self._listed:
            if len(key) == 1:
                lists.append(columns[key[0]][start:end])
            elif key:
                lists.append(zip(*[columns[name][start:end] for name in key], strict=True))
        lists += [columns[name][start:end] for name in self._shape.laid]
        return zip(*lists)  # noqa: B905 (shorter if it is interrupted)


def _names_of(instances: Sequence[Instance]) -> dict[str, Any]:
    """The operators' functions and states, as the source of a loop names them."""
    names: dict[str, Any] = {}
    for at, instance in enumerate(instances):
        versions = side_by_side(instance)
        used = ([_called(one), one.state.find, one.state.touch] for one in versions)
        for name, each in zip(_OF_VERSIONS, zip(*used, strict=True), strict=True):
            names |= {f"{name}_{at}": each[-1], f"each_{name}_{at}": each}
        names |= {f"instance_{at}": instance, f"read_{at}": key_reader(instance.operator.key)}
    return names


def _called(instance: Instance) -> Callable[..., Any]:
    """The function that is called with the row."""
    function = instance.function
    return function.process if shape_of(function) is Shape.KEYED else function  # type: ignore[no-any-return]
