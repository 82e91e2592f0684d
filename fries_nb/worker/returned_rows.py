"""The rows of dead letters that come back to an operator, at the worker that runs it.

They precede everything in the worker's inbox. So no marker passes them: a checkpoint that has the requeue in its
decisions has the rows behind it, in output and state, and there is nothing of them to save. A marker that is in flight
excludes others until every worker of its scope has acknowledged it (see ``controller.markers``), so none is passed by
them either, no state of their keys is on its way between workers, and each row has one owner.

In a chain they enter at their operator and not at the first one. The chain from there on is compiled for them, and
forgotten with them; whenever the chain itself is composed anew, rows in hand are given back first.

>>> import pyarrow as pa
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.operators.dead_letters import ReturnedRows
>>> from fries_nb.operators.executors import InterruptFlag, executor_of
>>> from fries_nb.protocol.messages import WorkerId
>>> first, second = (Instance(WorkerId(name, 0), Operator(name), dict, audit=False) for name in "AB")
>>> compiled = lambda instances: executor_of(instances, InterruptFlag(), 1, "")
>>> second.failing.returned.append(ReturnedRows(pa.RecordBatch.from_pydict({"x": [1, 2]}), ("a", "b"), tries=1))
>>> returning = Returning([first, second], compiled, lambda: 0)
>>> executor = returning.begin(compiled([first, second]))
>>> executor.advance(1), second.processed, first.processed, second.failing.tries, returning.waits
(1, 1, 0, 1, False)
>>> returning.give_back(executor)
True
>>> second.failing.returned[0].rows.to_pydict(), second.failing.tries, returning.waits
({'x': [2]}, 0, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fries_nb.operators.dead_letters import ReturnedRows
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance


class Returning:
    """The rows that come back to the operators of a chain.

    Args:
        instances: the operators, in the chain's order.
        compiled: compiles a chain.
        clock: returns nanoseconds since the Unix epoch.

    Attributes:
        waits: whether there are rows that are not in hand.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        compiled: Callable[[Sequence[Instance]], ChainExecutor],
        clock: Callable[[], int],
    ) -> None:
        self.waits = False
        self._instances = tuple(instances)
        self._compiled = compiled
        self._clock = clock
        self._taken: tuple[Instance, ReturnedRows] | None = None
        self.look()

    def look(self) -> None:
        """Look for rows, after some may have come back."""
        self.waits = any(instance.failing.returned for instance in self._instances)

    def begin(self, chain: ChainExecutor) -> ChainExecutor:
        """Take the next rows in hand; returns what processes them, loaded: the chain, or what follows of it."""
        position, instance = next((at, one) for at, one in enumerate(self._instances) if one.failing.returned)
        rows = instance.failing.returned.popleft()
        self._taken = instance, rows
        instance.failing.tries = rows.tries
        self.look()
        executor = self._from(position, chain) if position else chain
        executor.load("", rows.with_hidden(self._clock(), instance.audit))
        return executor

    def _from(self, position: int, chain: ChainExecutor) -> ChainExecutor:
        """What processes the chain from a position on; what its operators have learnt of their columns is kept."""
        instances = self._instances[position:]
        learnt = [(one.written, one.written.mark(), dict(one.written.emitted)) for one in instances]
        executor = self._compiled(instances)
        for written, mark, emitted in learnt:
            written.rewind(mark)
            written.emitted.update(emitted)
        executor.keep_types(chain)
        return executor

    def end(self) -> None:
        """The rows in hand are processed."""
        if self._taken is not None:
            self._taken[0].failing.tries = 0
            self._taken = None

    def give_back(self, executor: ChainExecutor) -> bool:
        """Let what the executor has left of the rows in hand wait again, ahead of the others; false if none are."""
        if self._taken is None:
            return False
        (instance, rows), left = self._taken, executor.remaining
        if left:
            instance.failing.returned.appendleft(rows.behind(rows.rows.num_rows - left))
        self.end()
        self.look()
        return True
