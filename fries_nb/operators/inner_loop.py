"""The inner loop: many tuples in one generated function, for chains of maps and filters of rows.

An executor processes the first tuples by the *common path*, the steps of ``chain_compiler``. From one of them the inner
loop learns what each operator writes, and generates a function for just that (see ``loop_source``): the columns that
the functions read are laid into one row, keys come straight from their column, and what is written is captured as
columns when the last function has returned. Whatever is unexpected in a tuple ends the function; its step then
continues on the common path with the result that the operator's function has returned, and the next tuple begins anew.
If that happens often, the common path processes the rest, and after the second time all further tuples until the chain
is rebuilt.

The common path remains the definition of what a chain does: the inner loop only begins when the columns written so far
in the batch include all that it writes, and have settled (see ``values``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fries_nb.dataflow.operators import Shape, is_generator, shape_of, takes_state
from fries_nb.dataflow.traits import Returns
from fries_nb.operators.chain_compiler import resumed_steps
from fries_nb.operators.error_policy import is_watched
from fries_nb.operators.instance import Instance
from fries_nb.operators.kinds import CALLS
from fries_nb.operators.laid_rows import ItemRow, LaidRow, can_be_laid, laid_row
from fries_nb.operators.loop_source import LoopShape, LoopStep, Stopped, loop_of
from fries_nb.operators.outputs import Captured, Output
from fries_nb.operators.recent import Noted
from fries_nb.operators.row_uses import is_by_name
from fries_nb.operators.rows import SETTLED, Columns, Row, detach, key_reader
from fries_nb.operators.steps import Step

LEAST = 8
"""Number of tuples from which on preparing the loop for a slice is worth its cost."""
_UNEXPECTED = 4
"""Number of unexpected tuples in one slice after which the rest of it is left to the common path."""
_ATTEMPTS = 2
"""Number of such slices after which the loop is not tried again."""


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
    """Whether an inner loop can process a chain: maps and filters, none audited, guarded or with an error policy."""
    return len(outputs) == 1 and not any(
        instance.audit
        or is_watched(instance)
        or not CALLS[instance.operator.kind].loops
        or is_generator(instance.function)
        for instance in instances
    )


class InnerLoop:
    """The inner loop of one executor's chain, until the chain is rebuilt.

    Args:
        instances: the operators, in the chain's order; ``can_loop`` holds of them.
        output: receives the rows.
        interrupt: the flag of the executor, an object with the attribute ``raised``.

    Attributes:
        reached: index of the row in hand, after an error.
    """

    def __init__(self, instances: Sequence[Instance], output: Output, interrupt: Any) -> None:
        self.reached = 0
        self._instances = instances
        self._output = output
        self._interrupt = interrupt
        self._returned = ReturnedResult()
        self._resumed: Sequence[Step] = resumed_steps(instances, output, self._returned)
        self._writes: tuple[tuple[str, ...], ...] = ()
        self._read: set[str] = set()
        self._failed_attempts = 0
        self._kind = ItemRow if all(is_by_name(_called(instance)) for instance in instances) else LaidRow
        self._shape = LoopShape((), ())
        self._loop: Callable[..., Stopped | None]

    def learn(self, noted: Noted, index: int) -> None:
        """Learn from a row what the operators write, unless that is known or the loop is not tried any more.

        Args:
            noted: copies of the input rows of all operators but the first.
            index: the row's index; it has been processed by the common path.
        """
        if self._writes or self._failed_attempts >= _ATTEMPTS or not self._output:
            return
        rows = [noted.get(instance) for instance in self._instances[1:]] + [self._output[-1]]
        seen: dict[str, None] = {}
        writes = []
        for row in rows:
            if type(row) is not Row or row.index != index:
                return
            new = [name for name in dict.keys(row) if name in row.columns.written and name not in seen]
            seen.update(dict.fromkeys(new))
            writes.append(tuple(new))
        self._writes = tuple(writes)

    def is_ready(self, columns: Columns) -> bool:
        """Whether the loop can process rows of this batch now."""
        return (
            bool(self._writes)
            and columns.plain >= SETTLED
            and not columns.nested
            and all(name in columns.written for names in self._writes for name in names)
        )

    def run(self, columns: Columns, start: int, end: int) -> int:
        """Process rows; returns the position after the last one processed.

        Args:
            columns: the batch.
            start: index of the first row.
            end: index after the last row.

        Raises:
            OperatorError: a function failed on the row ``reached``.
        """
        unexpected = 0
        while end - start >= LEAST and self.is_ready(columns):
            start = self._run_once(columns, start, end)
            if start == end or self._interrupt.raised:
                break
            unexpected += 1
            if unexpected == _UNEXPECTED:
                self._writes = ()
                self._failed_attempts += 1
        return start

    def _run_once(self, columns: Columns, start: int, end: int) -> int:
        """Process rows up to one that is unexpected, and complete that one."""
        self._prepare(columns)
        shape, row = self._shape, laid_row(columns, self._kind)
        row.index = start - 1
        kept: list[int] = []
        values: list[list[Any]] = [[] for _ in shape.writes]
        stopped: Stopped | None = (0, None, False)
        try:
            stopped = self._loop(row, self._tuples(columns, start, end), kept.append, *[one.append for one in values])
        finally:
            self.reached = index = row.index
            indices = kept if shape.drops else range(start, index + (stopped is None))
            self._output.capture(Captured(columns, indices, dict(zip(shape.writes, values, strict=True))))
            if isinstance(row, LaidRow):
                row.common()
        if stopped is not None:
            at, result, is_kept = stopped
            del stopped
            self._complete(row, at, ReturnedResult if result is row else result, is_kept)
        return index + 1

    def _complete(self, row: Row, at: int, result: Any, is_kept: bool) -> None:
        """Complete a tuple on the common path, from the result of an operator's function on."""
        if is_kept:
            row = detach(row)
        self._returned.put(result)
        del result
        self._resumed[at](row)

    def _prepare(self, columns: Columns) -> None:
        """Generate the loop for the columns that are converted, unless that is the present one."""
        self._read |= columns.unlaid
        listed = self._listed(columns)
        keys = {name for names in listed for name in names} - self._read
        schema = columns.batch.schema
        laid = tuple([name for name in columns if name not in keys and can_be_laid(schema.field(name).type)])
        steps = []
        for instance, writes, key in zip(self._instances, self._writes, listed, strict=True):
            state = "" if not _keeps_state(instance) else "list" if key else "row"
            steps.append(LoopStep(writes, state, instance.operator.traits.returns is Returns.ANSWER))
        shape = LoopShape(tuple(steps), laid)
        if shape != self._shape:
            self._loop = loop_of(shape, self._names())
            self._shape = shape

    def _listed(self, columns: Columns) -> list[tuple[str, ...]]:
        """For each operator the columns of its state's key, if they are as they came in; else empty."""
        found: list[tuple[str, ...]] = []
        written: set[str] = set()
        for instance, writes in zip(self._instances, self._writes, strict=True):
            key = instance.operator.key
            are_listed = _keeps_state(instance) and all(name in columns and name not in written for name in key)
            found.append(key if are_listed else ())
            written.update(writes)
        return found

    def _names(self) -> dict[str, Any]:
        """What the source of the loop uses."""
        names: dict[str, Any] = {"interrupt": self._interrupt}
        for at, instance in enumerate(self._instances):
            names[f"instance_{at}"] = instance
            names[f"call_{at}"] = _called(instance)
            names[f"read_{at}"] = key_reader(instance.operator.key)
            names[f"live_{at}"], names[f"touch_{at}"] = instance.state.live.get, instance.state.touch
        return names

    def _tuples(self, columns: Columns, start: int, end: int) -> Any:
        """For each row its index, its keys, and the values that are laid."""
        lists: list[Any] = []
        for key in self._listed(columns):
            if key:
                parts = [columns[name][start:end] for name in key]
                lists.append(parts[0] if len(parts) == 1 else zip(*parts, strict=True))
        lists += [columns[name][start:end] for name in self._shape.laid]
        return zip(range(start, end), *lists, strict=True)


def _called(instance: Instance) -> Callable[..., Any]:
    """The function that is called with the row."""
    function = instance.function
    return function.process if shape_of(function) is Shape.KEYED else function  # type: ignore[no-any-return]


def _keeps_state(instance: Instance) -> bool:
    return takes_state(instance.function)
