"""The persistent values of a run: snapshots of workers, checkpoint records, decided changes.

A checkpoint is taken by a marker that passes through the whole dataflow, aligned at every worker (Carbone et al.;
Fries, section 7.3). Each worker saves its ``Snapshot`` when it applies the marker. When all snapshots are stored, one
``Checkpoint`` record lists them. The record is the commit point: without it the snapshots have no effect; with it the
rows that sinks had written before the marker are output, even after a failure.

A decided change is in effect even if no checkpoint follows: its ``CommittedChange`` is stored before the first fast
control message is sent, so a worker restored from an older checkpoint switches before its first tuple.

>>> import msgspec
>>> record = Checkpoint(run="a1", epoch=3, incarnation=1, snapshots={"FM[0]": "3/FM-0"}, ended=("payments[0]",),
...                     sinks={"scored": ("part-1",)}, decided=("u1",), workers={"FM": 1, "payments": 1})
>>> msgspec.json.decode(msgspec.json.encode(record), type=Checkpoint) == record
True
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from fries_nb.progress.tokens import SavedTokens
from fries_nb.protocol.frames import RequeuedRow
from fries_nb.protocol.rollout import Reach, RolloutStep, is_inside, is_over

PARKED = "parked-"
"""How directories with states of removed operators begin; others have the number of a checkpoint."""
EVERY_BIN = -1
"""Stands for all bins of a worker in some of ``Snapshot``, and in what it begins with if its states are given."""


class Position(msgspec.Struct, frozen=True):
    """A position in a source's split.

    Attributes:
        row: number of rows of the split before it, which is the number of the next row.
        at: what the source needs to find that row, if the number is not enough: an offset, or the name of a file; any
            value that msgpack can encode.
    """

    row: int = 0
    at: Any = None


class Reading(msgspec.Struct, frozen=True):
    """How far one worker of a source has read.

    Attributes:
        places: where the next rows of its splits are, as text; splits that were read to their end have none.
        behind: number of rows that are due, or known to be there, and have not been read; ``None`` if unknown.
        behind_ns: time in nanoseconds for which the oldest of them has waited; ``None`` if unknown.
        skipped: number of lines that it has left out, since they are no rows.
        last_skipped: the last of them, and why it is none.
        ended: whether it has read everything.
    """

    places: tuple[str, ...] = ()
    behind: int | None = None
    behind_ns: int | None = None
    skipped: int = 0
    last_skipped: str = ""
    ended: bool = False


class FeedbackCounts(msgspec.Struct, frozen=True):
    """The feedback of a loop, as a worker of its head has counted it since it was started.

    Attributes:
        round: the largest round that a row has begun.
        frames: number of frames that have come back.
        rows: number of rows that have come back.
        waiting: number of these rows that wait for the head.
        spilled: number of their bytes that were moved to disk so far.
    """

    round: int = 0
    frames: int = 0
    rows: int = 0
    waiting: int = 0
    spilled: int = 0


class LoggedFrame(msgspec.Struct, frozen=True):
    """A frame that was on a loop's feedback channel at a checkpoint's marker; the restored head takes it first.

    Attributes:
        sender: the operator that sent it.
        rows: its batch, as an Arrow IPC stream.
        timestamp: see ``frames.Data``.
        version: see ``frames.Data``.
    """

    sender: str
    rows: bytes
    timestamp: tuple[int, ...] = ()
    version: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """The state of one worker of one operator at a checkpoint's marker, independent of chaining.

    Attributes:
        operator: name of the operator.
        index: index of the parallel instance.
        processed: number of tuples that it has processed since the beginning of the run.
        applied: the changes that it has switched to, in order.
        rerouted: those of them that have added it, or replaced its out-edges only.
        bins: bin number to the parts of its states, the oldest first (see ``operators.pickled_states``), in the form of
            the last applied change but ``canaries``.
        keys: number of keys that have a state.
        since: in one that is taken, the number of the one before on which it builds: ``bins`` has only what has come
            since then; 0 if it has everything. In one that is read, the number on which the next may build, or 0.
        gone: the bins that have left since then; what was stored of them does not count.
        traced: under audit, the record counts so far (``fries_nb.protocol.trace.Counts``).
        positions: for a source, split number to position; ``None`` for a split that was read completely. Splits that
            have not been started are omitted.
        bounds: for a source whose rows have times, split number to the lower bound of the times of its unread rows.
        round_robin_positions: for each rebalancing out-edge, by receiver, the index of the next worker.
        version: number of tagged changes that have been applied (see ``messages.Data``).
        agenda: for a timed operator, bin number to the pickled entries of its keys.
        tokens: for a timed operator, bin number to its tokens.
        fired: for a timed operator, the bin, or ``EVERY_BIN``, to how far entries have fired: ``(t, *rounds)``.
        brought_out: for a timed operator, likewise to the position that its counter has reached; see ``rollout``.
        came: for a timed operator, the serialized Arrow schema of its input; empty if nothing came.
        feedback: for a loop's head, the frames on its feedback channels, in order of each.
        names: for a join, side to each of its columns and its name behind the join, as far as known.
        needs: the user's definitions that ``bins`` need to be unpickled: module and qualified name of each.
        canaries: the applied changes that were canaries, or withdrawn, and open, so that the states are not in their
            form, whatever has become of them since.
    """

    operator: str
    index: int
    processed: int
    applied: tuple[str, ...] = ()
    bins: dict[int, tuple[bytes, ...]] = {}
    traced: tuple[int, int, int] = (0, 0, 0)
    positions: dict[int, Position | None] = {}
    bounds: dict[int, int] = {}
    round_robin_positions: dict[str, int] = {}
    version: int = 0
    agenda: dict[int, bytes] = {}
    tokens: dict[int, SavedTokens] = {}
    fired: dict[int, tuple[tuple[int, ...], ...]] = {}
    came: bytes = b""
    feedback: tuple[LoggedFrame, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    rerouted: tuple[str, ...] = ()
    keys: int = 0
    since: int = 0
    gone: tuple[int, ...] = ()
    canaries: tuple[str, ...] = ()
    brought_out: dict[int, int] = {}
    names: dict[str, dict[str, str]] = {}


class Configuration(msgspec.Struct, frozen=True):
    """The configuration of an operator in a running dataflow, for a worker that is added.

    Attributes:
        applied: the changes that its workers have switched to, in order.
        rerouted: those of them that have added it, or replaced its out-edges only.
        version: number of tagged changes that they have applied.
        function: the change that has installed the function that they run; empty for the initial one.
    """

    applied: tuple[str, ...] = ()
    version: int = 0
    rerouted: tuple[str, ...] = ()
    function: str = ""


class CommittedChange(msgspec.Struct, frozen=True):
    """A decided change, which is carried out even after failures.

    A second entry of a change, without payloads, revokes it: all of its workers ended before it reached them, so it had
    no effect, and must have none after a restart.

    Attributes:
        change: id of the change.
        scheduler: the scheduler that planned it.
        components: the operators of each component of its covering.
        payloads: target operator to the cloudpickled ``fries_nb.Update``.
        incarnation: the incarnation in which it was decided.
        before: id of an earlier change that is ordered after this one; empty if this one is the last so far.
        undoes: id of an earlier change that this one rolls back: its targets run their previous functions again, and no
            payload is sent. Empty if it is no automatic rollback.
        aside: whether it went to the workers of its operator only, as the fix of a paused operator.
        superseded: the targets whose payloads are kept no more; see ``without_superseded``.
        number: its place among the decisions of the run, from 1; 0 before it has one.
        shape: the fingerprint of the dataflow that it has made, if it changes the shape.
        rerouted: the operators that it has added, and those of which it has replaced the out-edges only.
        requeued: the rows of dead letters that it has given back to the operator of its component, if it is a requeue,
            which changes no function. A restart from a checkpoint that has not ``decided`` it gives them again.
        given: each operator that it has added anew to the states by key with which that begins, pickled; empty for
            none. It begins so again at a restart from a checkpoint that has not ``decided`` the change.
        steps: its steps, if it is decided row by row; see ``rollout``.
        step_of: id of the change of which it is a further step; its ``steps`` are all that this one has then.
        inherits: operator to the one with whose state at its marker it has begun, or gone on. At a restart from a
            checkpoint that has not ``decided`` the change, it begins with the state that this one has there.
    """

    change: str
    scheduler: str
    components: tuple[tuple[str, ...], ...]
    payloads: dict[str, bytes]
    incarnation: int = 1
    before: str = ""
    undoes: str = ""
    aside: bool = False
    superseded: tuple[str, ...] = ()
    number: int = 0
    shape: bytes = b""
    rerouted: tuple[str, ...] = ()
    requeued: tuple[RequeuedRow, ...] = ()
    given: dict[str, bytes] = {}
    steps: tuple[RolloutStep, ...] = ()
    step_of: str = ""
    inherits: dict[str, str] = {}

    @property
    def concerns(self) -> str:
        """The change as long as which it is kept: itself, or the one of which it is a further step."""
        return self.step_of or self.change

    @property
    def targets(self) -> frozenset[str]:
        """The operators whose function it has replaced; none for a rollback, which has those of what it undoes."""
        return frozenset((*self.payloads, *self.superseded))

    @property
    def is_revoked(self) -> bool:
        """Whether the entry revokes an earlier one of the change."""
        return not (self.targets or self.undoes or self.shape or self.requeued or self.step_of)

    @property
    def is_withdrawn(self) -> bool:
        """Whether its last step has taken it back, so that no later row is new."""
        return bool(self.steps) and not self.steps[-1].share

    def requeued_at(self, operator: str) -> tuple[RequeuedRow, ...]:
        """The rows that it has given back to an operator."""
        return self.requeued if (operator,) in self.components else ()


def in_effect(decided: Iterable[CommittedChange], since: Checkpoint | None = None) -> tuple[CommittedChange, ...]:
    """The changes that were decided and not revoked, in the order in which they take effect.

    >>> first = CommittedChange("u1", "fries", (), {"FM": b"code"})
    >>> second = CommittedChange("u2", "fries", (), {"FC": b"code"})
    >>> [change.change for change in in_effect((first, second, CommittedChange("u1", "fries", (), {})))]
    ['u2']
    >>> fix = CommittedChange("u3", "fries", (), {"FC": b"code"}, before="u2")
    >>> [change.change for change in in_effect((first, second, fix))]
    ['u1', 'u3', 'u2']
    """
    entries = tuple(
        one for one in decided if since is None or not since.has_forgotten(one.concerns, one.number)
    )
    taken_back = {entry.change for entry in entries if entry.is_revoked}
    ordered: list[CommittedChange] = []
    for entry in entries:
        if entry.step_of:
            ordered = [replace(one, steps=entry.steps) if one.change == entry.step_of else one for one in ordered]
        elif entry.change not in taken_back:
            insert_decided(ordered, entry)
    return tuple(ordered)


def open_by_row(decided: Iterable[CommittedChange], reach: Reach) -> frozenset[str]:
    """The changes that are decided row by row and not over, for how far rows had come.

    None is that comes before one of another kind, which all rows follow after a restart, and so all that is before it;
    except the fix of one operator, which rows inside a loop may meet that are old for what is before it.

    >>> cut = (RolloutStep({7: 4}),)
    >>> first = CommittedChange("u1", "cut", (), {"FM": b"code"}, steps=cut)
    >>> then, last = CommittedChange("u2", "fries", (), {"FC": b"code"}), replace(first, change="u3")
    >>> [sorted(open_by_row(decided, Reach({7: 3}))) for decided in ([first], [first, then], [first, then, last])]
    [['u1'], [], ['u3']]
    >>> open_by_row([first], Reach({7: 4})), open_by_row([first], Reach({7: 9}, {7: 4}))
    (frozenset(), frozenset({'u1'}))
    """
    found: dict[str, CommittedChange] = {}
    for one in decided:
        if not one.steps and not one.requeued:
            found = {name: other for name, other in found.items() if one.aside and is_inside(other.steps, reach)}
        elif one.steps and not is_over(one.steps, reach):
            found[one.change] = one
    return frozenset(found)


NOTHING_PASSED = Reach()


def insert_decided(ordered: list[CommittedChange], entry: CommittedChange) -> None:
    """Insert a decision before the change named in its ``before``, or append it."""
    behind = [place for place, other in enumerate(ordered) if other.change == entry.before]
    ordered.insert(behind[0] if behind else len(ordered), entry)


def without_superseded(
    ordered: Sequence[CommittedChange], applied: Collection[str], reach: Reach = NOTHING_PASSED
) -> list[CommittedChange]:
    """Remove the payloads that no worker will load after a restart, and forget changes without effect on one.

    A restarted worker runs the last function of its operator, and applies to its state the changes that are not
    ``applied`` in the checkpoint; and a guard may restore the function before the last change. So payloads are kept of
    the last two changes in effect of each operator, and of all changes that are not applied. A change that keeps none
    is forgotten, and so is the rollback of one; except the one with the largest number in its id, since ids are not
    reused, and the last rollback of an operator, by whose name its function is known. Of a change that is decided row
    by row, and not over for the ``reach`` of rows, the function before it is needed as well.

    >>> changes = [CommittedChange(f"u{number}", "fries", (), {"FM": b"code"}) for number in range(4)]
    >>> [(change.change, len(change.payloads)) for change in without_superseded(changes, {"u0", "u1", "u2", "u3"})]
    [('u2', 1), ('u3', 1)]
    >>> undone = [changes[1], CommittedChange("u1.back", "fries", (), {}, undoes="u1")]
    >>> other = CommittedChange("u2", "fries", (), {"FC": b"code"})
    >>> [change.change for change in without_superseded([*undone, other], {"u1", "u1.back", "u2"})]
    ['u1', 'u1.back', 'u2']
    """
    stacks: defaultdict[str, list[str]] = defaultdict(list)
    needed, opened = set[str](), {one.change for one in ordered if one.steps and not is_over(one.steps, reach)}
    for entry in ordered:
        is_open = entry.change in opened
        if entry.change not in applied or is_open:
            needed |= {entry.change, entry.undoes}
        for operator in entry.payloads:
            needed.update(stacks[operator][-1:] if is_open else ())
            if not entry.is_withdrawn or is_open:
                stacks[operator].append(entry.change)
        for stack in stacks.values():
            if entry.undoes in stack:  # a rollback also removes fixes after the change, and restores what ran before it
                del stack[stack.index(entry.undoes) :]
    kept: list[CommittedChange] = []
    for entry in ordered:
        payloads = {
            operator: payload
            for operator, payload in entry.payloads.items()
            if entry.change in needed or entry.change in stacks[operator][-2:]
        }
        gone = entry.payloads.keys() - payloads.keys()
        left = replace(entry, payloads=payloads, superseded=(*entry.superseded, *sorted(gone))) if gone else entry
        kept.append(replace(left, given={}) if left.given and left.change in applied else left)
    last = max((number_of(entry.change) for entry in kept), default=0)
    known = {
        entry.change
        for entry in kept
        if not entry.undoes and (entry.payloads or entry.change not in applied or number_of(entry.change) == last)
        if not entry.requeued or entry.change not in applied
    }
    known |= {undone for entry in _last_of_each(kept) if (undone := entry.undoes)}
    known |= {entry.change for entry in kept if entry.undoes and (entry.undoes in known or entry.change not in applied)}
    return [entry for entry in kept if entry.change in known]


def _last_of_each(ordered: Sequence[CommittedChange]) -> list[CommittedChange]:
    """The last change of each operator; a rollback changes the operators of the change that it undoes."""
    targets: dict[str, frozenset[str]] = {}
    last: dict[str, CommittedChange] = {}
    for entry in ordered:
        targets[entry.change] = entry.targets | targets.get(entry.undoes, frozenset())
        last |= dict.fromkeys(targets[entry.change], entry)
    return list(last.values())


def number_of(change: str) -> int:
    """The number in a change's id: that of ``u7``, and of ``u7.back``, its rollback by a guard; 0 if it has none.

    >>> number_of("u7"), number_of("u7.back"), number_of("first")
    (7, 7, 0)
    """
    digits = change.removeprefix("u").partition(".")[0]
    return int(digits) if digits.isdigit() else 0


class ParkedOperator(msgspec.Struct, frozen=True):
    """The state that an operator had when a change of the shape removed it; a rollback of the change brings it back.

    Attributes:
        snapshots: worker to the name of the file that holds its snapshot, for workers that have a state.
        workers: its number of workers.
        table: the owner of each bin, if they were not dealt evenly; see ``Checkpoint``.
        readers: of a source, the number of its workers that had splits, if not all.
        needs: the user's definitions that its state needs.
        error: why a part of it could not be stored; empty if all is.
        earlier: file to the earlier ones that it needs, if any.
    """

    snapshots: dict[str, str]
    workers: int
    table: bytes = b""
    readers: int = 0
    needs: tuple[tuple[str, str], ...] = ()
    error: str = ""
    earlier: dict[str, tuple[str, ...]] = {}


class Checkpoint(msgspec.Struct, frozen=True):
    """The record of a complete checkpoint: a consistent cut of the whole run.

    Attributes:
        run: the run's id, unchanged when it is resumed.
        epoch: number of the checkpoint, and of the sinks' commit.
        incarnation: the incarnation that took it.
        snapshots: worker (``FM[0]``) to the name of the file that holds its snapshot.
        ended: workers that had ended before the marker, and need no state.
        sinks: sink (or operator with dead letters) to the files of this commit.
        decided: the changes applied by then, in order, without those that were forgotten; see ``without_superseded``.
        decisions: number of the last decision by then.
        workers: operator to its number of workers; the run may be resumed with another one.
        tables: keyed operator to the owner of each bin (see ``protocol.partitioning``), if its bins were not dealt
            evenly to all of its workers.
        readers: source to the number of its workers to which its splits were dealt, the first ones, if not to all.
        logged: the heads of loops whose snapshots hold frames of feedback channels.
        needs: operator to the user's definitions that its state needs: module and qualified name of each.
        parked: files with states of removed operators, which must be kept as long as this record.
        reach: how far rows had come before it, if they have identities; see ``rollout``.
        earlier: file of ``snapshots`` or ``parked`` to those of earlier checkpoints whose parts it names.
    """

    run: str
    epoch: int
    incarnation: int
    snapshots: dict[str, str]
    ended: tuple[str, ...] = ()
    sinks: dict[str, tuple[str, ...]] = {}
    decided: tuple[str, ...] = ()
    workers: dict[str, int] = {}
    tables: dict[str, bytes] = {}
    readers: dict[str, int] = {}
    logged: tuple[str, ...] = ()
    decisions: int = 0
    needs: dict[str, tuple[tuple[str, str], ...]] = {}
    parked: tuple[str, ...] = ()
    reach: Reach = Reach()
    earlier: dict[str, tuple[str, ...]] = {}

    @property
    def files(self) -> list[str]:
        """All files that it needs, each once."""
        earlier = (name for names in self.earlier.values() for name in names)
        return list(dict.fromkeys((*self.snapshots.values(), *self.parked, *earlier)))

    def all_ended(self, operator: str) -> bool:
        """Whether all workers of an operator had ended."""
        return {f"{operator}[{index}]" for index in range(self.workers[operator])} <= {*self.ended}

    def of(self, operator: str) -> ParkedOperator:
        """What it holds of an operator that was removed since."""
        held = {f"{operator}[{index}]" for index in range(self.workers[operator])}
        snapshots = {worker: name for worker, name in self.snapshots.items() if worker in held}
        return ParkedOperator(
            snapshots,
            self.workers[operator],
            self.tables.get(operator, b""),
            self.readers.get(operator, 0),
            self.needs.get(operator, ()),
            earlier={name: self.earlier[name] for name in snapshots.values() if name in self.earlier},
        )

    def with_parked(self, parked: Mapping[str, ParkedOperator]) -> Checkpoint:
        """The same, with operators that it does not know in the states in which they were removed.

        >>> empty = Checkpoint("r", 1, 1, {"S[0]": "1-1/S-0"}, workers={"S": 1})
        >>> one = empty.with_parked({"X": ParkedOperator({"X[0]": "parked-3-1/X-0"}, 1), "T": ParkedOperator({}, 9)})
        >>> one.snapshots, one.workers, one.of("X").snapshots
        ({'S[0]': '1-1/S-0', 'X[0]': 'parked-3-1/X-0'}, {'S': 1, 'X': 1}, {'X[0]': 'parked-3-1/X-0'})
        """
        known = {name for name in self.workers if name not in parked or not self.all_ended(name)}
        unknown = {name: one for name, one in parked.items() if one.snapshots and name not in known}
        if not unknown:
            return self
        files = {worker: name for one in unknown.values() for worker, name in one.snapshots.items()}
        ended = {f"{name}[{index}]" for name in unknown for index in range(self.workers.get(name, 0))}
        return replace(
            self,
            ended=tuple(worker for worker in self.ended if worker not in ended),
            snapshots=self.snapshots | files,
            workers=self.workers | {name: one.workers for name, one in unknown.items()},
            tables=self.tables | {name: one.table for name, one in unknown.items() if one.table},
            readers=self.readers | {name: one.readers for name, one in unknown.items() if one.readers},
            needs=self.needs | {name: one.needs for name, one in unknown.items() if one.needs},
            earlier=self.earlier | {name: names for one in unknown.values() for name, names in one.earlier.items()},
        )

    def has_forgotten(self, change: str, number: int) -> bool:
        """Whether a change, by the number of its decision, was forgotten by then, so that a restart ignores it."""
        return number <= self.decisions and change not in self.decided

    def had_ended(self, operator: str, index: int, workers: int) -> bool:
        """Whether a worker is restored as ended: it had, or all of its operator had, if they were more or fewer."""
        then = self.workers.get(operator, workers)
        alike = [index] if then == workers else range(then)
        return all(f"{operator}[{each}]" in self.ended for each in alike)


class Restoration(msgspec.Struct, frozen=True):
    """The state from which a new incarnation starts: a checkpoint (or ``None``), and all decided changes.

    A worker loads its snapshot, then applies, in order, the changes that the snapshot has not ``applied``, before it
    processes its first tuple. Workers of ``closed`` operators start without the ``deferred`` ones.

    Attributes:
        checkpoint: the checkpoint; ``None`` for the initial state.
        decided: the decided changes, in order.
        columns: operator to the column types that its workers must write, as a serialized Arrow schema.
        last_epoch: highest number of a checkpoint record, even a damaged one; it is not reused.
        tables: keyed operator to the owner of each bin from now on, if its bins are not dealt evenly.
        deferred: the decided changes that closed operators apply when no row is left in them, in order.
        closed: the operators that no row enters before that; see ``BlockEntries``.
    """

    checkpoint: Checkpoint | None
    decided: tuple[CommittedChange, ...] = ()
    columns: dict[str, bytes] = {}
    last_epoch: int = 0
    tables: dict[str, bytes] = {}
    deferred: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()

    def given_to(self, operator: str) -> bytes | None:
        """The states with which an operator begins that the checkpoint does not include, pickled; ``None`` if it does.

        An operator may have been added, removed and added again since, and the checkpoint may have another one of its
        name: what the last change has given it counts.
        """
        known = () if self.checkpoint is None else self.checkpoint.decided
        since = [one.given[operator] for one in self.decided if operator in one.given and one.change not in known]
        return since[-1] if since else None

    def inherited_from(self, operator: str) -> str:
        """The operator of which the checkpoint has the state that one begins with: itself, if no change since tells.

        >>> begun, promoted = (CommittedChange(f"u{n}", "fries", (), {}, inherits=one)
        ...                    for n, one in enumerate(({"FM~shadow": "FM"}, {"FM": "FM~shadow"})))
        >>> Restoration(Checkpoint("r", 1, 1, {}), (begun, promoted)).inherited_from("FM")
        'FM'
        >>> Restoration(Checkpoint("r", 1, 1, {}, decided=("u0",)), (begun, promoted)).inherited_from("FM")
        'FM~shadow'
        """
        known = () if self.checkpoint is None else self.checkpoint.decided
        for one in reversed(self.decided):
            if one.change not in known:
                operator = one.inherits.get(operator, operator)
        return operator

    def begun_anew(self) -> Restoration:
        """The same without what the checkpoint has of other operators by the names of those that were added since.

        >>> added = CommittedChange("u1", "fries", (), {}, given={"X": b""})
        >>> then = Checkpoint("r", 1, 1, {}, workers={"X": 1, "S": 1}, ended=("X[0]",))
        >>> restored = Restoration(then, (added,)).begun_anew()
        >>> restored.checkpoint.workers, restored.checkpoint.ended
        ({'S': 1}, ())
        """
        then, given = self.checkpoint, {name for one in self.decided for name in one.given}
        names = {name for name in given if then and name in then.workers and self.given_to(name) is not None}
        if then is None or not names:
            return self
        theirs = {f"{name}[{index}]" for name in names for index in range(then.workers[name])}
        left = replace(
            then,
            ended=tuple(worker for worker in then.ended if worker not in theirs),
            snapshots={worker: file for worker, file in then.snapshots.items() if worker not in theirs},
            workers={name: count for name, count in then.workers.items() if name not in names},
            tables={name: table for name, table in then.tables.items() if name not in names},
            readers={name: count for name, count in then.readers.items() if name not in names},
        )
        return replace(self, checkpoint=left)
