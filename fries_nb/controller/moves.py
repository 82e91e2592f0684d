"""Moves of bins: keyed operators hand their state to other workers, some bins in each step, while rows flow.

    phase     requested   nothing else in flight   installed at all new owners   no bins left, or impossible   lost
    IDLE      WAITING     -                        -                             -                             -
    WAITING   error       MOVING                   -                             IDLE                          IDLE
    MOVING    error       -                        WAITING                       -                             IDLE

A step is one marker (see ``worker.bin_transfer``) of one operator. Its scope:

    senders     the operators that send to it by key; they get the FCMs
    it          where the marker blocks no channel
    receivers   operators downstream of it, up to the first ones that rows reach from several of its workers

The receivers align the marker, so the order of a key's rows holds downstream too: what the old owner made precedes what
the new one makes.

A step excludes changes, commits and changes of the topology, from its FCMs until the state is installed; but all of
them together do not: what waits comes between two steps, and a step between two commits. The marker of an operator that
is paused on a tuple waits for the operator's fix. The next step also waits for the ends of guards, since a rollback
must find states where the change left them.

A step moves at most ``at_once`` bins. By default the first one moves ``FIRST_BINS``, and each later one at most twice
as many as the one before, and as many as are pickled and unpickled in ``STEP_MS``. Where rows wait longer by themselves
the marker does, too, however few bins it moves: a step may then take ``SHARE`` of the time of the one before, and is
not limited by its size, so that an operator that cannot keep up is relieved in a few steps.

If hosts are lost, the next incarnation starts with the requested tables, and so completes the moves. An operator of
which a worker has ended keeps its bins: the worker could not ship them.

>>> from fries_nb.controller.coordinator import alone
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.protocol.messages import Installed
>>> edges = Edge("S", "K", Partitioning.HASH, ("k",)), Edge("K", "Z")
>>> workers = Workers(Graph("keyed", (Operator("S"), Operator("K", key=("k",), workers=2), Operator("Z")), edges))
>>> lane = MarkerCoordinator(workers)
>>> moves = BinMoves(workers, lane, alone)
>>> moves.request(BinsRequested({"K": RoutingTable.even(1)}, at_once=300))
>>> [fcm] = moves.advance(now_ns=0, is_tick=False)
>>> str(fcm.worker), sorted(fcm.control.marker.scope), len(fcm.control.marker.action.bins)
('S[0]', ['K', 'S', 'Z'], 300)
>>> for worker in workers.live():
...     _ = lane.acknowledge(1, worker)
>>> lane.busy, lane.installed(Installed(1, WorkerId("K", 0))), lane.busy
(True, None, False)
>>> [[fcm]] = [moves.advance(now_ns=1_000_000, is_tick=False)]
>>> len(fcm.control.marker.action.bins)
212

Moves of splits: the workers of a source hand splits over to each other, while rows flow.

    phase      requested   nothing else in flight   all have given up   all have adopted   none left, or lost
    IDLE       WAITING     -                        -                   -                  -
    WAITING    error       YIELDING                 -                   -                  IDLE
    YIELDING   error       -                        ADOPTING            -                  IDLE (lost)
    ADOPTING   error       -                        -                   WAITING            IDLE (lost)

The splits of a source are always dealt to some number of its first workers in turn: split i of n to worker ``i % n``,
as when the run began. A move goes from one such number to another, with one marker:

    1   FCMs go to all workers of the source; each one gives up splits between two batches, marks its output behind the
        rows that it has read, and reports the positions (``Done``)
    2   the worker that is to read them opens them there (``AdoptSplits``), and says so (``Installed``)

The marker stays in flight until 2 is over, so no checkpoint begins in between: the splits would be in no snapshot.
Neither does a worker end: the lane is the source's. The receivers align the marker, so they process what the old worker
read before what the new one reads, and the order of a split's rows holds (see above for its scope).

If hosts are lost, the next incarnation deals the splits to all workers, from the positions of the checkpoint. A source
that is about to end keeps its splits.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> workers = Workers(Graph("pair", (Operator("S", kind=Kind.SOURCE, workers=2), Operator("A")), (Edge("S", "A"),)))
>>> lane = MarkerCoordinator(workers)
>>> moves = SplitMoves(workers, lane, Sources(workers), alone, {"S": range(4)})
>>> moves.request(SplitsRequested({"S": 1}))
>>> first, second = moves.advance(now_ns=0, is_tick=False)
>>> str(second.worker), sorted(second.control.marker.scope), second.control.marker.action.splits
('S[1]', ['A', 'S'], {1: (1, 0), 3: (1, 0)})
>>> action = second.control.marker.action
>>> moves.acknowledged(action, WorkerId("S", 0), Done(1, WorkerId("S", 0)), now_ns=1)
[]
>>> done = Done(1, WorkerId("S", 1), positions={1: Position(7), 3: None})
>>> moves.acknowledged(action, WorkerId("S", 1), done, now_ns=2)
[Tell(worker=WorkerId(operator='S', index=0),
      control=AdoptSplits(marker=1, positions={1: Position(row=7, at=None), 3: None}, rate=None))]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from fries_nb.controller.coordinator import Coordinator, MayBegin
from fries_nb.controller.events import (
    STEP_MS,
    BinsMoved,
    BinsRequested,
    Instruction,
    SplitsMoved,
    SplitsRequested,
    Tell,
)
from fries_nb.controller.intake import Sources
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import BIN_MOVES, SPLIT_MOVES, BinPhase, SplitPhase
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.errors import DataflowError, ProtocolError
from fries_nb.planning.schedulers import Send
from fries_nb.protocol.checkpoints import Position
from fries_nb.protocol.messages import Action, AdoptSplits, Done, Move, MoveSplits, WorkerId
from fries_nb.protocol.partitioning import Moves, RoutingTable
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.transitions import moved

FIRST_BINS = 8
"""Number of bins of the first step, if it is adapted."""
SHARE = 0.25
"""The time in which a step pickles and unpickles, as a part of the duration of the one before."""


class BinMoves(Coordinator):
    """The moves that are requested or under way, if any.

    Attributes:
        phase: see the table.
    """

    actions = (Move,)

    def __init__(self, workers: Workers, lane: MarkerCoordinator, may_begin: MayBegin) -> None:
        self.phase = BinPhase.IDLE
        self._may_begin = may_begin
        self._workers = workers
        self._lane = lane
        self._targets: dict[str, RoutingTable] = {}
        self._left: dict[str, Moves] = {}  # without those of the step in flight
        self._at_once = 0
        self._adapted = FIRST_BINS
        self._moving = 0  # number of bins of the step in flight
        self._began_ns = 0  # when it began
        self._why_not = ""
        self._installed_bytes = 0  # before the moves

    @property
    def tables(self) -> Mapping[str, RoutingTable]:
        """Keyed operator to its routing table, if its bins are not dealt evenly to its routed workers."""
        return self._workers.tables

    @property
    def left(self) -> int:
        """The number of bins that are still to be moved, apart from those of the step in flight."""
        return sum(map(len, tuple(self._left.values())))

    @property
    def moved_bytes(self) -> int:
        """The size in bytes of the state that the requested moves, or the last ones, have moved so far."""
        return self._lane.installed_bytes - self._installed_bytes

    @property
    def under_way(self) -> bool:
        """Whether moves are requested and not over."""
        return self.phase is not BinPhase.IDLE

    def request(self, request: BinsRequested) -> None:
        """Request moves; the first step begins as soon as nothing else is in flight."""
        if self.under_way:
            raise ProtocolError(f"moves of bins were requested while others are {self.phase}; expected them to be over")
        for operator, table in request.targets.items():
            self._check(operator, table)
        self._move(BinPhase.WAITING)
        self._targets, self._at_once, self._why_not = dict(request.targets), request.at_once, ""
        moves = {name: self._workers.table(name).moves_to(table) for name, table in self._targets.items()}
        self._left = {name: bins for name, bins in moves.items() if bins}
        self._adapted, self._installed_bytes = FIRST_BINS, self._lane.installed_bytes

    def _check(self, operator: str, table: RoutingTable) -> None:
        graph, routed = self._workers.graph, self._workers.routed
        if operator not in routed or not senders_of(graph, operator):
            raise DataflowError(f"{operator} gets no rows by key, so it has no bins; expected a keyed operator")
        if any(each.within.level for each in graph.operators):
            raise DataflowError(f"bins of {operator} cannot be moved: the dataflow has a loop; not supported yet")
        if table.width > routed[operator]:
            owner, last = WorkerId(operator, table.width - 1), routed[operator] - 1
            raise DataflowError(f"bins were to be moved to {owner}; expected a worker up to {operator}[{last}]")

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Begin the next step, or end the moves, if that is possible now."""
        if self.phase is BinPhase.MOVING and not isinstance(self._lane.action, Move):
            self._move(BinPhase.WAITING)
            self._adapted = adapted(self._moving, self._lane.installed_ns / 1e6, (now_ns - self._began_ns) / 1e6)
        if self.phase is not BinPhase.WAITING:
            return []
        self._leave_ended()
        if not self._left:
            return self._over(self._why_not)
        return self._begin(next(iter(self._left)), now_ns) if self._may_begin(now_ns) else []

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """End the moves, since the hosts are lost; the next incarnation starts with the requested tables."""
        if not self.under_way:
            return []
        self._workers.tables.update(self._targets)
        return self._over("")

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """End the moves, since the run has ended."""
        return self._over(why) if self.under_way else []

    def _leave_ended(self) -> None:
        """Leave the bins of operators of which a worker has ended where they are."""
        for operator in list(self._left) if self._workers.ended else ():
            if ended := self._workers.ended.intersection(self._workers.of({operator})):
                self._why_not = f"{min(ended)} has ended, so {operator} keeps its bins"
                del self._targets[operator], self._left[operator]

    def _begin(self, operator: str, now_ns: int) -> list[Instruction]:
        self._move(BinPhase.MOVING)
        self._began_ns = now_ns
        graph, workers, left = self._workers.graph, self._workers, self._left[operator]
        bins = dict(islice(left.items(), self._at_once or self._adapted))
        self._moving = len(bins)
        for bin_ in bins:
            del left[bin_]
        if not left:
            del self._left[operator]
        workers.tables[operator] = workers.table(operator).moved(bins)
        scope = scope_of(graph, operator)
        sends = [Send(sender, scope) for sender in senders_of(graph, operator)]
        owners = {WorkerId(operator, after) for _, after in bins.values()}
        return [*self._lane.start(sends, Move(operator, bins), owners)]

    def _over(self, reason: str) -> list[Instruction]:
        self._move(BinPhase.IDLE)
        self._targets, self._left = {}, {}
        tables: Mapping[str, RoutingTable] = dict(self._workers.tables)
        return [BinsMoved(tables, reason)]

    def _move(self, to: BinPhase) -> None:
        self.phase = moved(BIN_MOVES, self.phase, to, "moves of bins")


def adapted(bins: int, pickled_ms: float, took_ms: float) -> int:
    """The number of bins of the next step; see the module.

    >>> adapted(8, pickled_ms=1, took_ms=5), adapted(64, pickled_ms=50, took_ms=90)
    (16, 32)
    >>> adapted(8, pickled_ms=1, took_ms=15_000)
    30000
    """
    budget_ms = max(STEP_MS, SHARE * took_ms)
    fitting = int(bins * budget_ms / max(pickled_ms, 0.1))
    return max(1, fitting if budget_ms > STEP_MS else min(2 * bins, fitting))


def senders_of(graph: Graph, operator: str) -> tuple[str, ...]:
    """The operators that send to an operator by key, in order of its in-edges."""
    keyed = [edge.source for edge in graph.in_edges(operator) if edge.partitioning is Partitioning.HASH]
    return tuple(dict.fromkeys(keyed))


def scope_of(graph: Graph, operator: str) -> frozenset[str]:
    """The scope of a move's marker; see the module."""
    scope, ahead = {operator, *senders_of(graph, operator)}, [operator]
    while ahead:
        for edge in graph.out_edges(ahead.pop()):
            if edge.partitioning is Partitioning.FORWARD and edge.to not in scope:
                ahead.append(edge.to)
            scope.add(edge.to)
    return frozenset(scope)


NO_SPLITS: Mapping[str, Sequence[int]] = {}


class SplitMoves(Coordinator):
    """The moves that are requested or under way, if any.

    Args:
        workers, lane, sources: the workers, the markers in flight, and the ends and rates of the sources.
        may_begin: see ``coordinator``.
        splits: source to the numbers of its splits, in the order in which they are dealt to workers.
        had_ended: whether a worker was restored as ended, so that no checkpoint has its positions.

    Attributes:
        phase: see the table.
    """

    actions = (MoveSplits,)

    def __init__(
        self,
        workers: Workers,
        lane: MarkerCoordinator,
        sources: Sources,
        may_begin: MayBegin,
        splits: Mapping[str, Sequence[int]] = NO_SPLITS,
        had_ended: Callable[[WorkerId], bool] = lambda worker: False,
    ) -> None:
        self.phase = SplitPhase.IDLE
        self._workers = workers
        self._lane = lane
        self._sources = sources
        self._may_begin = may_begin
        self._splits = splits
        self._had_ended = had_ended
        self._targets: dict[str, int] = {}
        self._source = ""
        self._marker = 0
        self._owners: dict[int, int] = {}  # split that moves to the index of the worker that is to read it
        self._yielding: set[WorkerId] = set()
        self._positions: dict[int, Position | None] = {}
        self._why_not = ""

    @property
    def under_way(self) -> bool:
        """Whether moves are requested and not over."""
        return self.phase is not SplitPhase.IDLE

    def request(self, request: SplitsRequested) -> None:
        """Request moves; they begin as soon as nothing else is in flight."""
        if self.under_way:
            raise ProtocolError(f"moves of splits were requested while others are {self.phase}; expected their end")
        self.check(request.targets)
        for source, count in request.targets.items():
            if not 1 <= count <= self._workers.routed[source]:
                last = self._workers.routed[source] - 1
                raise DataflowError(f"splits were to be dealt to {count} workers; expected 1 up to {source}[{last}]")
        self._move(SplitPhase.WAITING)
        self._targets, self._why_not = dict(request.targets), ""

    def check(self, operators: Iterable[str]) -> None:
        """Check that splits of these operators can move."""
        for name in operators:
            if name not in self._workers.graph.sources:
                raise DataflowError(f"{name} has no splits; expected a source")
            if is_tracked(self._workers.graph):
                raise DataflowError(
                    f"splits of {name} cannot be moved: the dataflow has times or a loop; not supported yet"
                )

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Begin to move the splits of the next source, or end the moves, if that is possible now."""
        if self.phase is SplitPhase.ADOPTING and not isinstance(self._lane.action, MoveSplits):
            self._move(SplitPhase.WAITING)
        if self.phase is not SplitPhase.WAITING:
            return []
        while self._targets:
            source, count = next(iter(self._targets.items()))
            is_there = self._workers.reading(source) == count
            why_not = None if is_there else self._why_kept(source)
            if not (is_there or why_not):
                if not self._may_begin(now_ns):
                    return []
                if fcms := self._begin(source, count):
                    return fcms
            self._why_not = self._why_not or why_not or ""
            del self._targets[source]
        return self._over(self._why_not)

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """Record that a worker has applied the marker, or has ended; pass the splits on when all have given up."""
        if self.phase is not SplitPhase.YIELDING:
            return []
        self._positions |= done.positions if done is not None else {}
        self._yielding.discard(worker)
        if self._yielding:
            return []
        self._move(SplitPhase.ADOPTING)
        adopted: dict[int, dict[int, Position | None]] = {owner: {} for owner in sorted(set(self._owners.values()))}
        for split, position in sorted(self._positions.items()):
            adopted[self._owners[split]][split] = position
        rate = self._sources.rate_of(self._source)
        return [
            Tell(WorkerId(self._source, owner), AdoptSplits(self._marker, positions, rate))
            for owner, positions in adopted.items()
        ]

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """End the moves, since the hosts are lost; the next incarnation deals the splits to all workers."""
        return self._over("") if self.under_way else []

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """End the moves, since the run has ended."""
        return self._over(why) if self.under_way else []

    def _why_kept(self, source: str) -> str | None:
        """Why the splits of a source stay where they are; ``None`` if they do not."""
        workers = self._workers.of({source})
        gone = [worker for worker in workers if worker in self._workers.ended or self._had_ended(worker)]
        if not gone and not self._sources.is_over(source):
            return None
        return f"{gone[0] if gone else source} has ended, so {source} keeps its splits"

    def _begin(self, source: str, count: int) -> list[Instruction]:
        """Begin to move the splits of a source; returns the FCMs, none if no split changes hands."""
        before, splits = self._workers.reading(source), self._splits.get(source, ())
        dealt = {split: (place % before, place % count) for place, split in enumerate(splits)}
        moves = {split: (old, new) for split, (old, new) in dealt.items() if old != new}
        self._workers.read_by(source, count)
        if not moves:
            return []
        self._move(SplitPhase.YIELDING)
        self._source, self._owners, self._positions = source, {split: new for split, (_, new) in moves.items()}, {}
        self._yielding = set(self._workers.live({source}))
        owners = {WorkerId(source, new) for new in self._owners.values()}
        sends = [Send(source, scope_of(self._workers.graph, source))]
        fcms = self._lane.start(sends, MoveSplits(source, moves), owners)
        self._marker = self._lane.issued
        return [*fcms]

    def _over(self, reason: str) -> list[Instruction]:
        self._move(SplitPhase.IDLE)
        self._targets = {}
        return [SplitsMoved(reason)]

    def _move(self, to: SplitPhase) -> None:
        self.phase = moved(SPLIT_MOVES, self.phase, to, "moves of splits")
        self._sources.hands_over = self.phase in (SplitPhase.YIELDING, SplitPhase.ADOPTING)
