"""Restoration of a worker from its snapshot; see ``saving`` for how that is taken.

A restored operator runs the function of the last decided change that targets it. States are in the form of the last
change that the snapshot had ``applied``; the transformations of later ones are added, in order, and take effect key by
key as at any switch.

Invariants: a restored worker behaves as the original would have, had the changes decided since arrived right after the
marker. Restoring is idempotent.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.worker.saving import saved
>>> one, other = (Instance(WorkerId("FD", 0), Operator("FD", key=("c",)), dict, audit=False) for _ in range(2))
>>> one.state.touch("c7")["seen"] = 3
>>> restore(other, saved(one), ())
>>> other.state.touch("c7")
{'seen': 3}

Redistribution of a checkpoint's snapshots when a run is resumed with another number of workers.

A checkpoint holds a snapshot of every worker of every operator. If an operator's workers and its routing table are
unchanged, each worker is restored from its own snapshot. Otherwise the state is redistributed: a worker takes the bins
that the new routing table assigns to it from the snapshots of all workers of its operator; a source's worker gets the
positions of all splits and uses those of its own splits (see ``connectors.worker_reader``); frames on feedback channels
are divided among the workers of a loop's head, since any of them may take any row. Invariants: every bin of the
checkpoint is restored by exactly one worker, and that worker receives the rows of the bin's keys; so is every logged
frame.

>>> from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
>>> from fries_nb.dataflow.graph import Operator
>>> record = Checkpoint("r", 3, 1, {"FM[0]": "a", "FM[1]": "b"}, workers={"FM": 2})
>>> parts = Snapshot("FM", 0, 20, bins={5: (b"x",)}), Snapshot("FM", 1, 30, bins={900: (b"y",)})
>>> held = {WorkerId("FM", part.index): part for part in parts}
>>> shrunk = Redistribution(record, Graph("w1", (Operator("FM"),), ()))
>>> [str(worker) for worker in shrunk.read_from(WorkerId("FM", 0))]
['FM[0]', 'FM[1]']
>>> shrunk.snapshot(WorkerId("FM", 0), held).bins
{5: (b'x',), 900: (b'y',)}
>>> grown = Redistribution(record, Graph("w1", (Operator("FM", workers=3),), ()))
>>> [list(grown.snapshot(WorkerId("FM", index), held).bins) for index in range(3)]
[[5], [], [900]]
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.updates import Update
from fries_nb.errors import CheckpointError, FriesError, OperatorError, ProtocolError, exception_text
from fries_nb.operators.dry_run import loaded_update, new_function, open_function
from fries_nb.operators.instance import FAILURES, Instance, Ready, user_traceback
from fries_nb.operators.pickled_states import (
    Definitions,
    Recipe,
    definitions_of,
    entries_of,
    gathered,
    loaded_states,
    loads,
    part_of_states,
    renewed,
)
from fries_nb.operators.row_versions import is_declared
from fries_nb.operators.state import UnreadableState
from fries_nb.protocol.checkpoints import EVERY_BIN, Checkpoint, CommittedChange, Restoration, Snapshot, open_by_row
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import Bins, bins_of_keys, owners_by
from fries_nb.protocol.rollout import Reach, highest
from fries_nb.protocol.trace import Counts

NOTHING_UNREAD: Mapping[int, Callable[[], Sequence[bytes]]] = {}


def _restore_times(instance: Instance, before: Snapshot, definitions: Definitions) -> None:
    """Restore agenda and tokens; see ``Agenda.held`` for their counts."""
    if instance.agenda is None or instance.tokens is None or instance.brought_out is None:
        return
    last = dict(before.brought_out)
    instance.brought_out.jump(last.pop(EVERY_BIN, -1))
    instance.brought_out.receive(last)
    every = {bin: {(*rounds,): t for t, *rounds in of} for bin, of in before.fired.items()}
    held = {bin: loads(both, definitions) for bin, both in before.agenda.items()}
    entries = [(time, canonical_key(key)) for some, _ in held.values() for time, key in some]
    instance.agenda.load(entries, every.pop(EVERY_BIN, {}), every)
    instance.tokens.load(before.tokens)
    for bin, (_, keepers) in held.items():
        if instance.agenda.keepers is not None:
            instance.agenda.keepers.load(bin, [(canonical_key(key), number) for key, number in keepers])
    instance.came = pa.ipc.read_schema(pa.py_buffer(before.came)) if before.came else None
    instance.rewindowed = bool(before.applied)


def _all_names(parts: Iterable[Snapshot]) -> dict[str, dict[str, str]]:
    """The names of columns that any of a join's workers knows; those of all workers agree."""
    found: dict[str, dict[str, str]] = {}
    for part in parts:
        for side, names in part.names.items():
            found[side] = {**found.get(side, {}), **names}
    return found


def refuse_another(snapshot: Snapshot, instance: Instance) -> None:
    """Check that a snapshot is of this operator at this worker."""
    theirs = WorkerId(snapshot.operator, snapshot.index)
    if theirs != instance.worker:
        raise ProtocolError(f"{instance.worker} was to be restored from a snapshot of {theirs}")


def given_states(operator: str, given: bytes) -> dict[Any, Any]:
    """The states that a change has given to an operator, by key.

    Raises:
        OperatorError: they cannot be unpickled here.
    """
    try:
        states: dict[Any, Any] = pickle.loads(given) if given else {}
    except FAILURES as error:
        words = f"the state given to {operator} cannot be unpickled here: {_reason(error)}"
        raise OperatorError(words, operator, user_traceback(error)) from error
    return states


def given_snapshot(worker: WorkerId, states: Mapping[Any, Any], owners: Bins) -> Snapshot:
    """What a worker begins with of the states that were given to its operator: those of its own keys."""
    bins = bins_of_keys([*states]).tolist() if states else []
    mine = {key: states[key] for key, bin in zip(states, bins, strict=True) if owners[bin] == worker.index}
    # By name, so that they are of the classes that came with the function.
    return Snapshot(*worker, processed=0, bins={EVERY_BIN: (part_of_states(mine)[0],)} if mine else {})


def check_given(instance: Instance, states: Mapping[Any, Any]) -> None:
    """Check that the states given to an operator are such as it makes itself, at all of its workers alike.

    If some could not be made and others could, the audit would see that change where it was, and was not.

    Raises:
        OperatorError: one is of another type.
    """
    name = instance.worker.operator
    try:
        own = type(instance.state.initial()) if states else object
    except FAILURES as error:
        words = f"initial_state() of {name} failed: {_reason(error)}"
        raise OperatorError(words, name, user_traceback(error)) from error
    named = (own.__module__, own.__qualname__)  # that of the function and that of a state are two with one name
    for key, state in states.items():
        if named not in {(one.__module__, one.__qualname__) for one in type(state).__mro__}:
            kind, expected = type(state).__name__, f"expected a {own.__name__}, as {name} makes for a new key"
            raise OperatorError(f"the state given to {name} for key {key!r} is a {kind}; {expected}", name)


def restore_ended(instance: Instance, checkpoint: Checkpoint) -> None:
    """Restore an instance whose worker had ended before the checkpoint's marker.

    It will process no tuple, so it needs neither state nor functions, not even those of changes decided since. Changes
    that the checkpoint includes count as applied, and its trace as complete.
    """
    instance.begin_at(0, checkpoint.decided)
    instance.log.spent = True


def restore(
    instance: Instance,
    snapshot: Snapshot | None,
    decided: Sequence[CommittedChange],
    deferred: Collection[str] = (),
    reach: Reach | None = None,
    unread: Mapping[int, Callable[[], Sequence[bytes]]] = NOTHING_UNREAD,
) -> None:
    """Restore an instance from a snapshot, and apply the changes decided since. Must precede ``Worker(...)``.

    Args:
        instance: the instance.
        snapshot: its snapshot; ``None`` if it begins without one.
        decided: all changes in effect, in order.
        deferred: those that it begins without.
        reach: how far rows have come, by which changes that are decided row by row may not be over; ``None`` if none of
            them is open.
        unread: bin to what reads the parts of its states, if they are not in the snapshot.
    """
    name = instance.worker.operator
    before = snapshot or Snapshot(name, instance.worker.index, 0)
    refuse_another(before, instance)
    first = instance.function
    others = [change for change in decided if change.change not in deferred]
    changes = _DecidedChanges(instance, before, frozenset() if reach is None else open_by_row(others, reach))
    definitions = changes.definitions_then(decided)
    _restore_times(instance, before, definitions)
    with instance.bound():
        _load(instance, before, unread, definitions)
    instance.begin_at(before.processed, before.applied, Counts(*before.traced), before.rerouted)
    instance.positions, instance.bounds = dict(before.positions), dict(before.bounds)
    instance.names.load(before.names)
    for change in decided:
        if change in others:
            changes.apply(change)
        if name in change.rerouted and change.change not in before.applied:
            instance.reroute(change.change)
    for function in {id(one): one for one in (*(old.function for old in instance.earlier), instance.function)}.values():
        if function is not first:
            _open(instance, function)
    if instance.audit and any(one.steps and name in one.payloads for one in decided):
        gone = {one.change: one.steps for one in decided if one.is_withdrawn and name in one.payloads}
        instance.log.chooses(instance.earlier, instance.identity, gone)  # of which the trace may not know that
    later = [change for change in decided if change.change in deferred and (name in change.payloads or change.undoes)]
    for change in later:
        if name in change.payloads:
            _open(instance, changes.load(change).function)
    if later or (deferred and instance.earlier):
        left = frozenset() if reach is None else open_by_row(decided, reach.emptied)
        instance.deferred = partial(changes.apply_all, later, left)


class _DecidedChanges:
    """Applies the functions of decided changes, in order, and the transformations that a snapshot has not applied.

    A guard's rollback restores the function that ran before its change, and contains none itself.
    """

    def __init__(self, instance: Instance, before: Snapshot, opened: Collection[str]) -> None:
        self._opened = opened
        self._instance = instance
        self._applied, self._canaries = before.applied, before.canaries
        self._updates: dict[str, tuple[Update, Recipe]] = {}
        self._ran: dict[str, tuple[Any, Callable[[], Any] | None]] = {}
        self._superseded: set[str] = set()

    def load(self, change: CommittedChange) -> Update:
        """The update of the operator, unpickled once."""
        return self._loaded(change)[0]

    def _loaded(self, change: CommittedChange) -> tuple[Update, Recipe]:
        if change.change not in self._updates:
            operator = self._instance.operator
            with gathered() as definitions:
                update = _update(operator, change)
            recipe = Recipe(partial(new_function, change.payloads[operator.name], operator), definitions)
            self._updates[change.change] = (update, recipe)
        return self._updates[change.change]

    def definitions_then(self, decided: Iterable[CommittedChange]) -> Definitions:
        """The definitions of the function that ran at the snapshot, whose state is of its classes."""
        ran: dict[str, Definitions] = {}
        now = definitions_of(self._instance.recreate)
        for change in decided:
            if change.change in self._applied and not self._lacks(change):
                if self._instance.worker.operator in change.payloads:
                    ran[change.change], now = now, self._loaded(change)[1].definitions
                else:
                    now = ran.get(change.undoes, now)
        return now

    def _lacks(self, change: CommittedChange) -> bool:
        """Whether the snapshot has the states in the form before a change, although it was applied."""
        return change.change in self._canaries or bool(change.steps and not is_declared(change.steps))

    def apply_all(self, changes: Iterable[CommittedChange], opened: Collection[str]) -> None:
        """Apply deferred changes, before which only these remain that are decided row by row."""
        for earlier in self._instance.earlier:
            if earlier.change not in opened:
                self._instance.settle(earlier.change)
        self._opened = opened
        for change in changes:
            self.apply(change)

    def apply(self, change: CommittedChange) -> None:
        instance, name = self._instance, self._instance.worker.operator
        is_new = change.change not in self._applied
        if name in change.payloads:
            update, recipe = self._loaded(change)
            self._ran[change.change] = (instance.function, instance.recreate)
            is_open = change.change in self._opened
            if is_open:
                back = renewed(definitions_of(instance.recreate), update.back)
                ready = Ready(update.function, update.state, recipe, back=back)
                instance.run_beside(change.change, change.steps, ready, not is_new and not self._lacks(change))
            elif not change.is_withdrawn:
                instance.run_function(update.function, change.change)
                instance.recreate = recipe
            if is_new and (is_open or change.is_withdrawn):  # with its steps, by which the audit knows what it was
                instance.note_rows(change.change, change.steps)
            elif is_new:
                instance.apply_change(change.change, update.state, change.before)
            elif self._lacks(change) and not (is_open or change.is_withdrawn):
                instance.state.transform(update.state)
        elif change.undoes in self._ran:
            function, instance.recreate = self._ran[change.undoes]
            update, _ = self._updates[change.undoes]
            instance.run_function(function, change.change)
            if is_new:
                back = renewed(definitions_of(instance.recreate), update.back)
                instance.undo_change(change.change, update.state, back)
        elif name in change.superseded:
            self._superseded.add(change.change)
        elif change.undoes in self._superseded:  # the function that it undid is not shipped any more
            instance.run_function(instance.function, change.change)


def _load(
    instance: Instance, before: Snapshot, unread: Mapping[int, Callable[[], Sequence[bytes]]], definitions: Definitions
) -> None:
    """Load the states of a snapshot, or have them read later."""
    name = instance.worker.operator
    if not unread:
        instance.state.load(_states(name, before, definitions), before.since, before.needs)
        return
    bins = {bin: partial(_read_states, name, read, definitions) for bin, read in unread.items()}
    instance.state.load_later(bins, before.keys, before.since, before.needs)
    if before.tokens:  # which would count as lost, if nothing refers to them
        try:
            instance.state.read_all()
        except UnreadableState as unreadable:
            raise unreadable.error from None


def _read_states(
    name: str, read: Callable[[], Sequence[bytes]], definitions: Definitions
) -> Iterator[tuple[Any, Any]]:  # fmt: skip
    """Read the states of a bin, key by key; raises a CheckpointError if it is damaged."""
    last: dict[Any, bytes | None] = {}
    try:
        for part in read():
            last.update((canonical_key(pickle.loads(key)), state) for key, state in entries_of(part))
    except (msgspec.MsgspecError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"the state of {name} cannot be read: {_reason(error)}") from error
    for key, state in last.items():
        if state is not None:
            try:
                yield key, loads(state, definitions)
            except FAILURES as error:
                words = f"the state of {name} cannot be restored: {_reason(error)}, for key {key!r}"
                raise OperatorError(words, name, user_traceback(error)) from error


def _states(name: str, snapshot: Snapshot, definitions: Definitions) -> dict[Any, Any]:
    states: dict[Any, Any] = {}
    try:
        for parts in snapshot.bins.values():
            states.update(loaded_states(parts, definitions))
    except Exception as error:
        raise OperatorError(f"the state of {name} cannot be restored: {_reason(error)}", name) from error
    return states


def _update(operator: Operator, change: CommittedChange) -> Update:
    name = operator.name
    try:
        update = loaded_update(change.payloads[name], operator)
    except Exception as error:
        words = f"new {name} of change {change.change!r} cannot be unpickled here: {_reason(error)}"
        raise OperatorError(words, name, user_traceback(error)) from error
    return update


def _open(instance: Instance, function: Any) -> None:
    name = instance.worker.operator
    try:
        open_function(function, instance.calls)
    except Exception as error:
        raise OperatorError(f"{name} failed in open(): {_reason(error)}", name, user_traceback(error)) from error


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, FriesError) else exception_text(error)


NO_TABLES: Mapping[str, bytes] = {}


class Redistribution:
    """The snapshots of a checkpoint, divided among the workers of the resumed run.

    Args:
        checkpoint: the checkpoint; ``None`` if the run starts from the beginning.
        graph: the dataflow, with the current number of workers of each operator.
        tables: keyed operator to its packed routing table, if its bins are not dealt evenly now.
        inherited_from: operator to that of which it has the state; see ``Restoration.inherited_from``.

    Attributes:
        checkpoint: see the arguments.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, graph: Graph, tables: Mapping[str, bytes] = NO_TABLES,
        inherited_from: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._inherited_from = inherited_from
        self.checkpoint = checkpoint
        self._tables = dict(tables)
        then = {} if checkpoint is None else checkpoint.workers  # of operators that are not there any more
        self._workers = {**then, **{operator.name: operator.workers for operator in graph.operators}}
        self._receivers = {name: frozenset(graph.successors(name)) for name in graph}

    @classmethod
    def of(cls, restoration: Restoration, graph: Graph) -> Redistribution:
        """That of what a run is restored from, for the dataflow that goes on."""
        return cls(restoration.checkpoint, graph, restoration.tables, restoration.inherited_from)

    def is_added(self, operator: str) -> bool:
        """Whether the checkpoint is of a dataflow that did not have this operator, which begins with it."""
        return self.checkpoint is not None and operator not in self.checkpoint.workers

    def had_ended(self, worker: WorkerId) -> bool:
        """Whether the checkpoint records this worker as finished (if rescaled: all workers of its operator)."""
        if self.checkpoint is None:
            return False
        workers = self._workers.get(worker.operator, self.checkpoint.workers.get(worker.operator, 0))
        return self.checkpoint.had_ended(worker.operator, worker.index, workers)

    def read_from(self, worker: WorkerId) -> Sequence[WorkerId]:
        """The workers whose snapshots are needed to restore this worker."""
        own, giver = self._own(worker), self._giver_of(worker)
        return own if giver is None else [*own, *self._own(giver)]

    def _giver_of(self, worker: WorkerId) -> WorkerId | None:
        """The worker of which it has the state, if that is another one, which had one."""
        giver = self._inherited_from(worker.operator)
        has_one = giver != worker.operator and not self.is_added(giver)
        return WorkerId(giver, worker.index) if has_one else None

    def _own(self, worker: WorkerId) -> Sequence[WorkerId]:
        if self.checkpoint is None or self.had_ended(worker):
            return ()
        known = self.checkpoint.snapshots
        if self._is_unchanged(worker.operator):
            return [worker] if str(worker) in known else []
        return [each for each in self._workers_in_checkpoint(worker.operator) if str(each) in known]

    def snapshot(self, worker: WorkerId, snapshots: Mapping[WorkerId, Snapshot]) -> Snapshot | None:
        """The snapshot that the worker is restored from; ``None`` without a checkpoint, and if it had ended.

        An operator that the checkpoint does not know begins with an empty snapshot.
        """
        giver = self._giver_of(worker)
        if giver is None or self.checkpoint is None:
            return self._snapshot(worker, snapshots)
        own, theirs = self._snapshot(worker, snapshots), self._snapshot(giver, snapshots)
        return own if own is None or theirs is None else replace(
            own, bins=theirs.bins, keys=theirs.keys, canaries=theirs.canaries
        )

    def _snapshot(self, worker: WorkerId, snapshots: Mapping[WorkerId, Snapshot]) -> Snapshot | None:
        if self.checkpoint is None or self.had_ended(worker):
            return None
        if self.is_added(worker.operator):
            return Snapshot(worker.operator, worker.index, 0)
        found = self._found(worker, snapshots)
        # Of round-robin edges, some of which may have been removed.
        receivers = self._receivers.get(worker.operator, ())
        positions = {to: next_ for to, next_ in found.round_robin_positions.items() if to in receivers}
        is_same = len(positions) == len(found.round_robin_positions)
        return found if is_same else replace(found, round_robin_positions=positions)

    def _found(self, worker: WorkerId, snapshots: Mapping[WorkerId, Snapshot]) -> Snapshot:
        """The worker's own snapshot, or its share of those of all workers of its operator."""
        assert self.checkpoint is not None, "see snapshot"
        sources = self._own(worker)
        if not sources or any(each not in snapshots for each in sources):
            raise CheckpointError(f"checkpoint {self.checkpoint.epoch} lacks the snapshot of {worker}")
        if self._is_unchanged(worker.operator):
            return snapshots[worker]
        return self._divided(worker, [snapshots[each] for each in sources])

    def _divided(self, worker: WorkerId, parts: Sequence[Snapshot]) -> Snapshot:
        """The worker's bins of all snapshots, with the counts of the worker's own snapshot if there is one."""
        base = next((part for part in parts if part.index == worker.index), None)
        base = base or replace(parts[0], index=worker.index, processed=0, traced=(0, 0, 0), round_robin_positions={})
        owner = self._owners(worker.operator)
        bins = dict[int, tuple[bytes, ...]]()
        for part in parts:
            for number, state in part.bins.items():
                if owner[number] != worker.index:
                    continue
                if number in bins:
                    raise CheckpointError(
                        f"the state of {worker.operator} is not divided by a key: it can be restored at "
                        f"{len(self._workers_in_checkpoint(worker.operator))} workers only, as then"
                    )
                bins[number] = state
        timed = self._divided_times(worker, parts)
        positions = {split: position for part in parts for split, position in part.positions.items()}
        bounds = {split: bound for part in parts for split, bound in part.bounds.items()}
        logged = [frame for part in parts for frame in part.feedback][worker.index :: self._workers[worker.operator]]
        version, feedback = max(part.version for part in parts), tuple(logged)
        return replace(
            base, bins=bins, keys=0, version=version, positions=positions, bounds=bounds, feedback=feedback,
            names=_all_names(parts), **timed,
        )  # fmt: skip

    def _divided_times(self, worker: WorkerId, parts: Sequence[Snapshot]) -> dict[str, Any]:
        """The agenda and the tokens of the worker's bins."""
        mine = {bin for bin, owner in enumerate(self._owners(worker.operator)) if owner == worker.index}
        before = self._owners_then(worker.operator)
        fired = {part.index: part.fired for part in parts}
        then = {bin: fired.get(int(before[bin]), {}) for bin in mine}
        found = {bin: of.get(bin, of.get(EVERY_BIN, ())) for bin, of in then.items()}
        return {
            "agenda": {bin: held for part in parts for bin, held in part.agenda.items() if bin in mine},
            "tokens": {bin: held for part in parts for bin, held in part.tokens.items() if bin in mine},
            "fired": {bin: of for bin, of in found.items() if of},
            "brought_out": highest(
                {bin: last for bin, last in part.brought_out.items() if bin in mine or bin == EVERY_BIN}
                for part in parts
            ),
            "came": next((part.came for part in parts if part.came), b""),
        }

    def readers_then(self, source: str) -> int:
        """The number of a source's workers to which its splits were dealt in the checkpoint: the first ones."""
        then = self.workers_then(source)
        return then if self.checkpoint is None else self.checkpoint.readers.get(source, then)

    def workers_then(self, operator: str) -> int:
        """The operator's number of workers in the checkpoint; without a checkpoint, its current number."""
        now = self._workers[operator]
        return now if self.checkpoint is None else self.checkpoint.workers.get(operator, now)

    def ended(self, operator: str) -> list[int]:
        """The indices of the operator's workers that the checkpoint records as finished."""
        known = self.checkpoint.ended if self.checkpoint is not None else ()
        return [worker.index for worker in self._workers_in_checkpoint(operator) if str(worker) in known]

    def _is_unchanged(self, operator: str) -> bool:
        if self.workers_then(operator) != self._workers[operator]:
            return False
        if self.readers_then(operator) != self._workers[operator]:
            return False
        then = {} if self.checkpoint is None else self.checkpoint.tables
        unmoved = operator not in then and operator not in self._tables
        return unmoved or bool((self._owners_then(operator) == self._owners(operator)).all())

    def _owners(self, operator: str) -> Bins:
        return owners_by(self._tables.get(operator), self._workers[operator])

    def _owners_then(self, operator: str) -> Bins:
        then = {} if self.checkpoint is None else self.checkpoint.tables
        return owners_by(then.get(operator), self.workers_then(operator))

    def _workers_in_checkpoint(self, operator: str) -> list[WorkerId]:
        return [WorkerId(operator, index) for index in range(self.workers_then(operator))]
