"""The state of a run at one moment, as all panels of the live view see it.

Each part is read once, when the first panel asks for it: panels of one update agree with each other, and a part that
cannot be read is the trouble of those panels only that show it.

>>> from types import SimpleNamespace
>>> asked = []
>>> run = SimpleNamespace(state="running", loops=lambda: asked.append("loops") or ())
>>> moment = RunMoment(run)
>>> moment.loops, moment.loops, asked, moment.over
((), (), ['loops'], False)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from fries_nb.changes.change import Change
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.notebook.known import OVER
from fries_nb.run import Run
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier
from fries_nb.telemetry.metrics import HostLoad, MetricsSnapshot

_MEASURED = ("last", "flowing", "topology", "host_rates", "host_loads")
"""Parts that hosts report, and that take long to read for hundreds of workers."""


class RunMoment:
    """A run at one moment; it takes over measurements of a moment before that are still new enough.

    Attributes:
        run: the same, for parts that one panel shows.
        over: whether the run has ended; read first, so that an update after the end shows the end.
    """

    def __init__(self, run: Run, before: RunMoment | None = None) -> None:
        self.run = run
        self.over = run.state in OVER
        if before is not None:
            vars(self).update({name: vars(before)[name] for name in _MEASURED if name in vars(before)})

    @cached_property
    def last(self) -> MetricsSnapshot:
        """The measurements, the last ones of a run that has ended."""
        return self.run.metrics()

    @cached_property
    def flowing(self) -> MetricsSnapshot:
        """The measurements of what flows; of a run that has ended none."""
        return MetricsSnapshot() if self.over else self.last

    @cached_property
    def changes(self) -> Sequence[Change]:
        """All changes, in order of request."""
        return self.run.changes

    @cached_property
    def loops(self) -> Sequence[LoopState]:
        """The loops."""
        return self.run.loops()

    @cached_property
    def frontiers(self) -> Sequence[OperatorFrontier]:
        """The frontiers."""
        return self.run.frontiers()

    @cached_property
    def host_loads(self) -> Mapping[int, HostLoad]:
        """Host to what its process uses; empty once the run has ended."""
        return {} if self.over else self.run.host_loads()

    @cached_property
    def topology(self) -> TopologyStatus:
        """The hosts and their workers."""
        return self.run.topology()

    @cached_property
    def host_rates(self) -> Mapping[int, float]:
        """Host to tuples per second; empty once the run has ended."""
        return {} if self.over else self.run.host_rates()
