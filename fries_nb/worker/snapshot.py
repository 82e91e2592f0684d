"""Snapshots of a worker, and their restoration.

At a checkpoint's marker a worker is between two tuples, and all output of earlier tuples has left it. So a snapshot
consists of the state of its operators, their positions, and the round-robin positions of its out-edges. Functions are
not included; they are in the graph and in the decided changes.

A restored operator runs the function of the last decided change that targets it. States are in the form of the last
change that the snapshot had ``applied``; the transformations of later ones are added, in order, and take effect key by
key as at any switch.

Invariants: a restored worker behaves as the original would have, had the changes decided since arrived right after the
marker. Restoring is idempotent, and taking a snapshot has no effect on the worker.

>>> from fries_nb.dataflow.graph import Operator
>>> one, other = (Instance(WorkerId("FD", 0), Operator("FD", key=("c",)), dict, audit=False) for _ in range(2))
>>> one.state.touch("c7")["seen"] = 3
>>> restore(other, saved(one), ())
>>> other.state.touch("c7")
{'seen': 3}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from fries_nb.checkpoints import EVERY_BIN, Checkpoint, CommittedChange, Snapshot
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.updates import Update
from fries_nb.errors import FriesError, OperatorError, ProtocolError, exception_text
from fries_nb.messages import Saved, WorkerId
from fries_nb.operators.definitions import (
    Definitions,
    Name,
    Recipe,
    definitions_of,
    dumps,
    gathered,
    loads,
    renewed,
)
from fries_nb.operators.dry_run import loaded_update, new_function, open_function
from fries_nb.operators.failures import FAILURES, user_traceback
from fries_nb.operators.instance import Instance
from fries_nb.trace import Counts
from fries_nb.worker.events import Save, TellController


def saved(instance: Instance) -> Snapshot:
    """Take a snapshot of one operator: all pending transformations are applied, and each bin of its state is pickled.

    Raises:
        OperatorError: a pending transformation failed.
        Unsaved: a state cannot be pickled.
    """
    name = instance.worker.operator
    try:
        with instance.bound():
            instance.state.settle()
    except FAILURES as error:
        words = f"the state transformation of {name} failed: {_reason(error)}"
        raise OperatorError(words, name, user_traceback(error)) from error
    try:
        bins, needs = _pickled(instance.state.bins())
        times = _saved_times(instance)
    except FAILURES as error:
        raise Unsaved(f"the state of {name} cannot be saved: {_reason(error)}", name, user_traceback(error)) from error
    traced, positions = instance.log.counts.as_tuple, dict(instance.positions)
    taken = Snapshot(
        name, instance.worker.index, instance.processed, instance.applied, bins, traced, positions, instance.bounds,
        needs=needs,
    )  # fmt: skip
    return replace(taken, **times)


def _pickled(bins: dict[int, dict[Any, Any]]) -> tuple[dict[int, bytes], tuple[Name, ...]]:
    """Each bin, pickled, and the names of the definitions that they need."""
    pickled = {number: dumps(states) for number, states in bins.items()}
    needs = set[Name]().union(*(names for _, names in pickled.values()))
    return {number: content for number, (content, _) in pickled.items()}, tuple(sorted(needs))


def _saved_times(instance: Instance) -> dict[str, Any]:
    """What the snapshot of a timed operator has in addition: agenda, tokens, and the columns of its firings."""
    if instance.agenda is None or instance.tokens is None:
        return {}
    entries, fired = instance.agenda.saved()
    keepers = instance.agenda.keepers.saved() if instance.agenda.keepers is not None else {}
    bins = {bin: (entries.get(bin, []), keepers.get(bin, [])) for bin in (*entries, *keepers)}
    return {
        "agenda": {bin: dumps(both)[0] for bin, both in bins.items()},
        "tokens": instance.tokens.saved(),
        "fired": {EVERY_BIN: tuple((t, *rounds) for rounds, t in fired.items())},
        "came": b"" if instance.came is None else instance.came.serialize().to_pybytes(),
    }


def _restore_times(instance: Instance, before: Snapshot, definitions: Definitions) -> None:
    """Restore agenda and tokens; see ``Agenda.held`` for their counts."""
    if instance.agenda is None or instance.tokens is None:
        return
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


class Unsaved(OperatorError):
    """A state cannot be pickled. The checkpoint is aborted; the worker continues."""


def kept(epoch: int, instances: Sequence[Instance], positions: dict[str, int], version: int) -> Save | TellController:
    """Take snapshots of all operators of a chain; if a state cannot be pickled, answer that the checkpoint fails.

    Args:
        epoch: the checkpoint's number.
        instances: the chain's operators, in order.
        positions: round-robin positions of the last operator's out-edges.
        version: number of tagged changes that the chain has applied.

    Raises:
        OperatorError: a pending transformation failed.
    """
    try:
        snapshots = [replace(saved(instance), version=version) for instance in instances]
    except Unsaved as error:
        return TellController(Saved(epoch, instances[0].worker, error=str(error)))
    return Save(epoch, (*snapshots[:-1], replace(snapshots[-1], round_robin_positions=positions)))


def refuse_another(snapshot: Snapshot, instance: Instance) -> None:
    """Check that a snapshot is of this operator at this worker.

    Raises:
        ProtocolError: it is of another operator or worker.
    """
    theirs = WorkerId(snapshot.operator, snapshot.index)
    if theirs != instance.worker:
        raise ProtocolError(f"{instance.worker} was to be restored from a snapshot of {theirs}")


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
) -> None:
    """Restore an instance from a snapshot, and apply the changes decided since. Must precede ``Worker(...)``.

    Args:
        instance: a new instance, with the initial function, opened.
        snapshot: the operator's snapshot; ``None`` for the initial state.
        decided: the decided changes of the run, in order, without forgotten ones; see ``checkpoints.in_effect``.
        deferred: ids of those that ``Instance.deferred`` is to apply; their functions are opened now.

    Raises:
        OperatorError: the user's code failed: a state or a function cannot be unpickled, or ``open()`` raised.
        ProtocolError: the snapshot is of another operator.
    """
    name = instance.worker.operator
    before = snapshot or Snapshot(name, instance.worker.index, 0)
    refuse_another(before, instance)
    first = instance.function
    changes = _DecidedChanges(instance, before.applied)
    definitions = changes.definitions_then(decided)
    _restore_times(instance, before, definitions)
    with instance.bound():
        instance.state.load(_states(name, before, definitions))
    instance.begin_at(before.processed, before.applied, Counts(*before.traced))
    instance.positions, instance.bounds = dict(before.positions), dict(before.bounds)
    for change in decided:
        if change.change not in deferred:
            changes.apply(change)
    if instance.function is not first:
        _open(name, instance.function)
    later = [change for change in decided if change.change in deferred and (name in change.payloads or change.undoes)]
    for change in later:
        if name in change.payloads:
            _open(name, changes.load(change).function)
    if later:
        instance.deferred = partial(changes.apply_all, later)


class _DecidedChanges:
    """Applies the functions of decided changes, in order, and the transformations that a snapshot has not applied.

    A guard's rollback restores the function that ran before its change, and contains none itself.
    """

    def __init__(self, instance: Instance, applied: Collection[str]) -> None:
        self._instance = instance
        self._applied = applied
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
            if change.change in self._applied:
                if self._instance.worker.operator in change.payloads:
                    ran[change.change], now = now, self._loaded(change)[1].definitions
                else:
                    now = ran.get(change.undoes, now)
        return now

    def apply_all(self, changes: Iterable[CommittedChange]) -> None:
        for change in changes:
            self.apply(change)

    def apply(self, change: CommittedChange) -> None:
        instance, name = self._instance, self._instance.worker.operator
        is_new = change.change not in self._applied
        if name in change.payloads:
            update, recipe = self._loaded(change)
            self._ran[change.change] = (instance.function, instance.recreate)
            instance.run_function(update.function, change.change)
            instance.recreate = recipe
            if is_new:
                instance.apply_change(change.change, update.state, change.before)
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


def _states(name: str, snapshot: Snapshot, definitions: Definitions) -> dict[Any, Any]:
    states: dict[Any, Any] = {}
    try:
        for pickled in snapshot.bins.values():
            states.update(loads(pickled, definitions))
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


def _open(name: str, function: Any) -> None:
    try:
        open_function(function)
    except Exception as error:
        raise OperatorError(f"{name} failed in open(): {_reason(error)}", name, user_traceback(error)) from error


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, FriesError) else exception_text(error)
