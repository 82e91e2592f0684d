"""Moves of splits: the workers of a source hand splits over to each other, while rows flow.

    phase      requested   nothing else in flight   all have given up   all have adopted   none left, or lost
    IDLE       WAITING     -                        -                   -                  -
    WAITING    error       YIELDING                 -                   -                  IDLE
    YIELDING   error       -                        ADOPTING            -                  IDLE (lost)
    ADOPTING   error       -                        -                   WAITING            IDLE (lost)

The splits of a source are always dealt to some number of its first workers in turn: split i of n to worker ``i % n``,
as when the run began. A move goes from one such number to another, with one marker:

    1   FCMs go to all workers of the source; each one gives up splits between two batches, marks its output behind the
        rows that it has read, and tells the positions (``Done``)
    2   the worker that is to read them opens them there (``AdoptSplits``), and says so (``Installed``)

The marker stays in flight until 2 is over, so no checkpoint begins in between: the splits would be in no snapshot.
Neither does a worker end: the lane is the source's. The receivers align the marker, so they process what the old worker
read before what the new one reads, and the order of a split's rows holds (see ``bin_moves`` for its scope).

If hosts are lost, the next incarnation deals the splits to all workers, from the positions of the checkpoint. A source
that is about to end keeps its splits.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> workers = Workers(Graph("pair", (Operator("S", kind=Kind.SOURCE, workers=2), Operator("A")), (Edge("S", "A"),)))
>>> lane = MarkerCoordinator(workers)
>>> moves = SplitMoves(workers, lane, Sources(workers), {"S": range(4)})
>>> moves.request(SplitsRequested({"S": 1}))
>>> first, second = moves.advance(is_free=True)
>>> str(second.worker), sorted(second.control.marker.scope), second.control.marker.action.splits
('S[1]', ['A', 'S'], {1: (1, 0), 3: (1, 0)})
>>> moves.acknowledged(WorkerId("S", 0), Done(1, WorkerId("S", 0)))
[]
>>> moves.acknowledged(WorkerId("S", 1), Done(1, WorkerId("S", 1), positions={1: Position(7), 3: None}))
[Tell(worker=WorkerId(operator='S', index=0),
      control=AdoptSplits(marker=1, positions={1: Position(row=7, at=None), 3: None}, rate=None))]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fries_nb.checkpoints import Position
from fries_nb.controller.bin_moves import scope_of
from fries_nb.controller.events import Instruction, SplitsMoved, SplitsRequested, Tell
from fries_nb.controller.intake import Sources
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import SPLIT_MOVES, SplitPhase
from fries_nb.errors import DataflowError, ProtocolError
from fries_nb.messages import AdoptSplits, Done, MoveSplits, WorkerId
from fries_nb.scheduling.stages import Send
from fries_nb.topology.progress_locations import is_tracked
from fries_nb.transitions import moved

NO_SPLITS: Mapping[str, Sequence[int]] = {}


class SplitMoves:
    """The moves that are requested or under way, if any.

    Args:
        workers: the workers of the run, with the numbers of those that read.
        lane: the markers in flight.
        sources: the ends and rates of the sources.
        splits: source to the numbers of its splits, in the order in which they are dealt to workers.
        had_ended: whether a worker was restored as ended, so that no checkpoint has its positions.

    Attributes:
        phase: see the table.
    """

    def __init__(
        self,
        workers: Workers,
        lane: MarkerCoordinator,
        sources: Sources,
        splits: Mapping[str, Sequence[int]] = NO_SPLITS,
        had_ended: Callable[[WorkerId], bool] = lambda worker: False,
    ) -> None:
        self.phase = SplitPhase.IDLE
        self._workers = workers
        self._lane = lane
        self._sources = sources
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

    @property
    def is_moving(self) -> bool:
        """Whether splits are being handed over, so that no source worker may end."""
        return self.phase in (SplitPhase.YIELDING, SplitPhase.ADOPTING)

    def request(self, request: SplitsRequested) -> None:
        """Request moves; they begin as soon as nothing else is in flight.

        Raises:
            DataflowError: the dataflow, or one of the numbers, does not allow it.
            ProtocolError: others are under way.
        """
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
        """Check that splits of these operators can move.

        Raises:
            DataflowError: one is no source, or the dataflow has times or a loop.
        """
        for name in operators:
            if name not in self._workers.graph.sources:
                raise DataflowError(f"{name} has no splits; expected a source")
            if is_tracked(self._workers.graph):
                raise DataflowError(
                    f"splits of {name} cannot be moved: the dataflow has times or a loop; not supported yet"
                )

    def advance(self, is_free: bool) -> list[Instruction]:
        """Begin to move the splits of the next source, or end the moves, if that is possible now.

        Args:
            is_free: whether nothing that excludes a move is in flight, or due before it.
        """
        if self.phase is SplitPhase.ADOPTING and not isinstance(self._lane.action, MoveSplits):
            self._move(SplitPhase.WAITING)
        if self.phase is not SplitPhase.WAITING:
            return []
        while self._targets:
            source, count = next(iter(self._targets.items()))
            is_there = self._workers.reading(source) == count
            why_not = "" if is_there else self._why_kept(source)
            if not (is_there or why_not):
                if not is_free:
                    return []
                if fcms := self._begin(source, count):
                    return fcms
            self._why_not = self._why_not or why_not
            del self._targets[source]
        return self._over(self._why_not)

    def acknowledged(self, worker: WorkerId, done: Done | None) -> list[Instruction]:
        """Record that a worker has applied the marker, or has ended; pass the splits on when all have given up.

        Args:
            worker: the worker.
            done: its acknowledgement; ``None`` if it has ended.
        """
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

    def lost(self) -> list[Instruction]:
        """End the moves, since the hosts are lost; the next incarnation deals the splits to all workers."""
        return self._over("") if self.under_way else []

    def close(self, why: str) -> list[Instruction]:
        """End the moves, since the run has ended."""
        return self._over(why) if self.under_way else []

    def _why_kept(self, source: str) -> str:
        """Why the splits of a source stay where they are; empty if they do not."""
        workers = self._workers.of({source})
        gone = [one for one in workers if one in self._workers.ended or self._had_ended(one)]
        if not gone and not self._sources.is_over(source):
            return ""
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
