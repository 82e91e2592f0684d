"""What can be observed of a run's hosts: where workers and bins are, how that came about, and a proposal."""

from __future__ import annotations

from typing import Any

from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.errors import RunError
from fries_nb.running.region_runner import RegionRunner
from fries_nb.running.remedies import HostProposal
from fries_nb.running.rescales import Rescale
from fries_nb.telemetry.run_tables import HostLoad, rates_by_host, worker_frame
from fries_nb.telemetry.telemetry import Telemetry


class HostMonitor:
    """The hosts of a run; see ``fries_nb.running.handle.Run``."""

    _telemetry: Telemetry
    _runner: RegionRunner

    def topology(self) -> TopologyStatus:
        """The hosts, the workers on them, and the owners of the bins of keyed operators; those of the last region.

        Returns:
            The topology now, and what a rescale that is under way does.

        Raises:
            RunError: the dataflow has not been launched yet.
        """
        if not self._runner.launched:
            raise RunError("the dataflow has not been launched, so it has no hosts yet")
        return self._runner.rescales.status

    def topology_frame(self) -> Any:
        """The workers and where they are.

        Returns:
            A pandas DataFrame with a row for each worker: its ``operator``, its index ``worker``, its ``host``, whether
            rows are ``routed`` to it, the number of ``bins`` that it owns (none without keys), and its ``rate``, the
            tuples per second that it takes in.
        """
        return worker_frame(self.topology(), self._telemetry.worker_rates())

    def topology_history(self) -> tuple[tuple[float, TopologyStatus], ...]:
        """The topologies before the first rescale and after each one.

        Returns:
            Times in seconds since the Unix epoch, oldest first, and the topology from then on; empty without a rescale.
        """
        return self._telemetry.topologies

    def host_history(self) -> tuple[HostCount, ...]:
        """The number of hosts over time.

        Returns:
            The number before the first rescale, and after each one; ``pandas.DataFrame`` accepts them.
        """
        return tuple(HostCount.of(at_s, status) for at_s, status in self._telemetry.topologies)

    def host_rates(self) -> dict[int, float]:
        """The load of each host.

        Returns:
            Host to the tuples per second that its workers take in, over the last three seconds.
        """
        return rates_by_host(self.topology(), self._telemetry.worker_rates())

    def host_loads(self) -> dict[int, HostLoad]:
        """What each host uses, and what waits there, as last told (about once a second).

        Returns:
            Host to the processor time per time and the memory of its process, and the bytes in the input queues of its
            workers; without hosts that have not told it yet.
        """
        return self._telemetry.loads(self.topology())

    def host_proposal(self) -> HostProposal | None:
        """Another number of hosts, if the operators' cost and the rates of the sources have asked for it three times.

        Nothing is rescaled by itself. There are no proposals while a source has no rate.

        Returns:
            The proposal, whose ``accept()`` requests the rescale; ``None`` without one.
        """
        return self._runner.rescales.advice.proposal

    @property
    def rescaling(self) -> Rescale | None:
        """The rescale that is under way, or else the last one; ``None`` if none was requested."""
        return self._runner.rescales.last
