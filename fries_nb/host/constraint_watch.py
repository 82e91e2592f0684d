"""The part of a host in latency constraints: it has its workers measure, sends and receives reports, and judges.

Once an interval every worker on a constrained path tells its measurements. They are sent, one interval later at most,
to the hosts that judge a constraint on them (see ``constraint_setup``), which answer with other buffer sizes and tell
the controller their verdicts. Every host computes by itself which hosts judge what, from the topology and the
constraints. All methods but ``measured`` are called by the thread that polls the links.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from fries_nb.constraints.constraint_monitor import INTERVAL_S, ConstraintMonitor
from fries_nb.constraints.reactions import START_BYTES, ChainOperators, ConstraintVerdict, ResizeBuffer
from fries_nb.dataflow.constraints import LatencyConstraint, on_paths
from fries_nb.host.region_spec import RegionSpec
from fries_nb.planning.constraint_setup import Subscription, constraint_setup, subscriptions
from fries_nb.protocol.messages import ChainMeasured, Measured, Measurements, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transport.wire import LatencyNotice
from fries_nb.worker.events import Event, Measure, Observe, Resize
from fries_nb.worker.rota import LONGEST_NS

BUFFERED_SHARE = 0.5
"""Share of a limit that buffers of a busy host may take."""
VERSIONS = 1 << 20
"""Number of versions of a buffer's size that are reserved for each time that workers are told what to measure."""
PER_WINDOW = 5
"""Minimum number of measurements in a window."""


class ConstraintWatch:
    """Measures and judges constraints at one host.

    Args:
        region: the specification of the region.
        host: index of the host.
        post: posts an event to a local worker.
        send: sends a notice to another host.
        tell: sends verdicts to the controller.
        chain: requests that these operators become one chain, beginning with this local worker.
    """

    def __init__(
        self,
        region: RegionSpec,
        host: int,
        post: Callable[[WorkerId, Event], None],
        send: Callable[[int, LatencyNotice], None],
        tell: Callable[[tuple[ConstraintVerdict, ...]], None],
        chain: Callable[[WorkerId, tuple[str, ...]], None],
    ) -> None:
        self._region = region
        self._topology = region.topology
        self._host = host
        self._post = post
        self._send = send
        self._tell = tell
        self._chain = chain
        self._declared: tuple[LatencyConstraint, ...] = ()
        self._constraints: tuple[LatencyConstraint, ...] = ()
        self._observations = 0
        self._chains: tuple[tuple[WorkerId, ...], ...] = ()
        self._clock_error_ms = 0.0
        self._observed: tuple[WorkerId, ...] = ()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._monitors: tuple[ConstraintMonitor, ...] = ()
        self._measured: deque[Measured] = deque()
        self._interval_s = INTERVAL_S
        self._next_s = 0.0

    def begin(self, chains: Iterable[tuple[WorkerId, ...]], peers: Mapping[int, str]) -> None:
        """Begin with the constraints of the region.

        Args:
            chains: the operator workers of each local worker; the first one is addressed.
            peers: index of each host to its data address; the clocks of several machines may differ by any time.
        """
        self._chains = tuple(chains)
        machines = {address.rpartition(":")[0] for address in peers.values()}
        self._clock_error_ms = 0.0 if len(machines) <= 1 else float("inf")
        self.constrain(self._region.options.constraints)

    def constrain(self, constraints: tuple[LatencyConstraint, ...]) -> None:
        """Measure and judge these constraints from now on, and no others.

        Args:
            constraints: all constraints of the run; those whose paths are not there yet, or not any more, wait.
        """
        self._declared, topology = constraints, self._topology
        self._constraints = constraints = on_paths(topology.graph, constraints)
        setup = constraint_setup(topology, constraints)
        self._subscriptions = subscriptions(topology, setup, self._host)
        windows = [constraint.window_s / PER_WINDOW for constraint in constraints]
        self._interval_s = min([INTERVAL_S, *windows])
        judged = setup.get(self._host, ())
        adapts = self._region.options.adapt
        self._monitors = tuple(ConstraintMonitor(topology, one, self._interval_s, adapts) for one in judged)
        self._observe()
        self._next_s = time.monotonic() + self._interval_s * (1 + random.random())  # reports of hosts do not coincide
        self._tell_chains([chain for chain in self._chains if len(chain) > 1])

    def rewire(self, topology: Topology) -> None:
        """Measure and judge in another topology."""
        self._topology = topology
        self.constrain(self._declared)

    @property
    def deadline_ns(self) -> int:
        """The longest time for which a busy host may buffer tuples: half of the limits, if each edge took as long."""
        shares = [int(one.latency_ms * 1e6 * BUFFERED_SHARE / max(1, len(one.edges))) for one in self._constraints]
        return min(shares, default=LONGEST_NS)

    def rechain(self, chains: Iterable[tuple[WorkerId, ...]]) -> None:
        """Measure workers whose chains have changed; does nothing if none has, as after a refused request.

        Args:
            chains: the operator workers of each local worker.
        """
        before, self._chains = set(self._chains), tuple(chains)
        if set(self._chains) == before:
            return
        self._observe()
        self._tell_chains([chain for chain in self._chains if chain not in before])

    def _tell_chains(self, chains: Iterable[tuple[WorkerId, ...]]) -> None:
        for chain in chains:
            self._measured.append(ChainMeasured(tuple(one.operator for one in chain), chain[0].index))

    def _observe(self) -> None:
        """Tell local workers what to measure."""
        self._observations += 1
        version = self._observations * VERSIONS
        edges = {edge for constraint in self._constraints for edge in constraint.edges}
        tasks = frozenset(name for constraint in self._constraints for name in constraint.path)
        size, observed = self._region.options.buffer_bytes, list[WorkerId]()
        for chain in self._chains:
            first, last = chain[0].operator, chain[-1].operator
            senders = frozenset(edge.source for edge in edges if edge.to == first)
            receivers = frozenset(edge.to for edge in edges if edge.source == last)
            names = tasks.intersection(one.operator for one in chain)
            if size:
                receivers = frozenset(edge.to for edge in self._topology.graph.out_edges(last))
            if size or names or chain[0] in self._observed:
                begins = size or (START_BYTES if self._region.options.adapt else 0)  # measuring alone bounds none
                self._post(chain[0], Observe(senders, receivers, names, begins, version, fills_buffers=bool(size)))
            if names:
                observed.append(chain[0])
        self._observed = tuple(observed)

    def measured(self, measured: tuple[Measured, ...]) -> None:
        """Accept the measurements of a worker; from any thread."""
        self._measured.extend(measured)

    def receive(self, notice: LatencyNotice) -> None:
        """Process a notice of another host, or of this one.

        Args:
            notice: measurements for the constraints judged here, another size of a local output buffer, or a chain of
                local workers.
        """
        if isinstance(notice, Measurements):
            for monitor in self._monitors:
                monitor.receive(notice)
        elif isinstance(notice, ResizeBuffer):
            self._post(notice.channel.sender, Resize(notice.channel, notice.size, notice.version))
        else:
            self._chain(WorkerId(notice.operators[0], notice.index), notice.operators)

    def step(self, now_s: float) -> None:
        """Send reports, judge, and measure again, if the interval has passed."""
        if now_s < self._next_s or not (self._observed or self._monitors):
            return
        self._next_s = now_s + self._interval_s
        self._report()
        self._judge()
        for worker in self._observed:
            self._post(worker, Measure())

    def _report(self) -> None:
        measured = [self._measured.popleft() for _ in range(len(self._measured))]
        hosts = dict.fromkeys(subscription.allocation.host for subscription in self._subscriptions)
        for host in hosts:
            wanted = [one for one in self._subscriptions if one.allocation.host == host]
            needed = tuple(one for one in measured if any(subscription.needs(one) for subscription in wanted))
            if needed:
                self._notify(host, Measurements(time.time_ns(), needed, self._clock_error_ms))

    def _judge(self) -> None:
        verdicts = []
        for monitor in self._monitors:
            for reaction in monitor.judge(time.time_ns()):
                if isinstance(reaction, ConstraintVerdict):
                    verdicts.append(reaction)
                else:
                    self._notify(self._host_of(reaction), reaction)
        if verdicts:
            self._tell(tuple(verdicts))

    def _host_of(self, reaction: ResizeBuffer | ChainOperators) -> int:
        if isinstance(reaction, ResizeBuffer):
            return self._topology.host_of(reaction.channel.sender)
        return self._topology.host_of(WorkerId(reaction.operators[0], reaction.index))

    def _notify(self, host: int, notice: LatencyNotice) -> None:
        if host == self._host:
            self.receive(notice)
        else:
            self._send(host, notice)
