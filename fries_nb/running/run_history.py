"""What a run was like over time: ``run.history``. Each part is a tuple, oldest first, with ``to_pandas()``.

All of it is bounded: of a long run the oldest points are dropped, or merged.
"""

from __future__ import annotations

from fries_nb.constraints.judgements import BufferSize, ConstraintPoint
from fries_nb.controller.topology_status import HostCount
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.telemetry.history import PlotMark, Point, QueuePoint
from fries_nb.telemetry.recorded import Recorded
from fries_nb.telemetry.telemetry import Telemetry


class RunHistory:
    """The measurements and events of a run over time; each property is as of now.

    Args:
        telemetry: the telemetry of the run.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def __repr__(self) -> str:
        parts = ("latency", "queues", "hosts", "buffers", "constraints", "chains", "marks")
        return f"RunHistory({', '.join(f'{part}: {len(getattr(self, part)):,}' for part in parts)})"

    @property
    def latency(self) -> Recorded[Point]:
        """Latency and throughput at the sinks, about four points a second: ``p50_ms``, ``p99_ms`` and ``rate``."""
        return Recorded.of(Point, self._telemetry.points())

    @property
    def queues(self) -> Recorded[QueuePoint]:
        """The input queues and the rate of each operator: ``queued`` (tuples), ``queued_bytes`` and ``rate``.

        The points of the last minute are a quarter of a second apart, older ones up to a sixtieth of their age: 24
        hours have less than 1,000 for each operator. A point of a longer interval has its longest queue and mean rate.
        """
        return Recorded.of(QueuePoint, self._telemetry.queue_points())

    @property
    def hosts(self) -> Recorded[HostCount]:
        """The number of hosts before the first rescale and after each one; empty without a rescale.

        The ``topology`` of each is where the workers were from then on.
        """
        return Recorded.of(HostCount, self._telemetry.topologies)

    @property
    def buffers(self) -> Recorded[BufferSize]:
        """The sizes of output buffers of the constrained edges, whenever those of an edge have changed."""
        return Recorded.of(BufferSize, self._telemetry.constraints.sizes())

    @property
    def constraints(self) -> Recorded[ConstraintPoint]:
        """Mean and worst latency of the constrained sequences, about one point a second of each constraint."""
        return Recorded.of(ConstraintPoint, self._telemetry.constraints.points())

    @property
    def chains(self) -> Recorded[ChainChange]:
        """When chains were made or split, with the chains of at least two operators from then on."""
        return Recorded.of(ChainChange, self._telemetry.chain_changes)

    @property
    def marks(self) -> Recorded[PlotMark]:
        """When changes and rescales were requested and ended, checkpoints were kept, and hosts recovered, for plots."""
        return Recorded.of(PlotMark, self._telemetry.marks())
