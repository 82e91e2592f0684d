"""What can be observed of a run's operators: measurements, queues over time, functions, chains."""

from __future__ import annotations

from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.running_chains import ChainChange, ChainedOperators
from fries_nb.running.function_versions import RunningFunction
from fries_nb.running.host_monitor import HostMonitor
from fries_nb.telemetry.history import QueuePoint
from fries_nb.telemetry.metrics import MetricsSnapshot
from fries_nb.telemetry.run_tables import queues_frame


class OperatorMonitor(HostMonitor):
    """The operators of a run; see ``fries_nb.running.handle.Run``."""

    graph: Graph

    def metrics(self) -> MetricsSnapshot:
        """The current latency, rates and queues, as last reported (about four times a second).

        Returns:
            A snapshot: latencies in milliseconds, rates in tuples per second, queues in tuples and bytes.
        """
        return self._telemetry.snapshot()

    def queue_history(self) -> tuple[QueuePoint, ...]:
        """The input queues and the rate of each operator over time.

        The points of the last minute are a quarter of a second apart, older ones up to a sixtieth of their age: 24
        hours have less than 1,000 for each operator. A point of a longer interval has its longest queue and mean rate.

        Returns:
            The points of all operators, oldest first; ``pandas.DataFrame`` accepts them.
        """
        return self._telemetry.queue_points()

    def queues_frame(self) -> Any:
        """The input queues and the rate of each operator over time, as ``queue_history()``.

        Returns:
            A pandas DataFrame with ``operator``, ``queued`` (tuples), ``queued_bytes`` and ``rate`` (tuples per
            second), by ``at`` in UTC.
        """
        return queues_frame(self.queue_history())

    def functions(self) -> dict[str, RunningFunction]:
        """What each operator runs now, by which change, and since when.

        A change counts from the moment at which the last of its workers has switched; one that was aborted, or that its
        guard has rolled back, does not.

        Returns:
            Operator to its function or table, for the operators that can be changed, in the order of declaration.
        """
        return self._runner.queue.running_functions()

    def reads(self, operator: str) -> tuple[str, ...]:
        """The input columns that an operator has read so far, as last reported.

        Args:
            operator: name of the operator.

        Returns:
            Names of columns.

        Raises:
            DataflowError: no such operator.
        """
        self.graph.operator(operator)
        return self._telemetry.reads(operator)

    def chains(self) -> tuple[ChainedOperators, ...]:
        """The operators that run as chains now, in one call for each tuple.

        Returns:
            The chains of at least two operators, each with the parallel instances that it has.
        """
        return self._telemetry.running_chains.chained

    def chain_history(self) -> tuple[ChainChange, ...]:
        """The times at which chains were made or split.

        Returns:
            The chains of at least two operators from each of these times on, oldest first; empty without any change.
        """
        return self._telemetry.chain_changes
