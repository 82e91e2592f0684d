"""The checks of runs with trouble are not empty: each broken build fails them for some seed, within a bounded number.

The seeds are among those for which `test_interleavings_trouble` finds that the whole runtime keeps every promise in
the small dataflow whose keyed state is changed in mid-stream.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from interleaving_checks import try_focused, try_seed
from soak import caught, first_tried

from fries_nb.controller.commits import Checkpoints, CommitNumbers, Recovery
from fries_nb.controller.controller import Controller
from fries_nb.controller.events import Answered, CheckpointEnded
from fries_nb.controller.states import CommitPhase
from fries_nb.errors import OperatorError
from fries_nb.host import host_workers as assembled
from fries_nb.operators import error_policy as guarding
from fries_nb.operators import kinds
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import KeyedState, _Unread, transformed
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Commit, Hold
from fries_nb.simulation.rescaling_cluster import draw_reshaped
from fries_nb.simulation.scenarios import draw_focused
from fries_nb.worker import snapshot
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.outbox import SendFrame as Frames
from fries_nb.worker.saving import OperatorSaving
from fries_nb.worker.snapshot import Redistribution
from fries_nb.worker.versions import Versions
from fries_nb.worker.worker import Worker

BOUND = 250
"""Seeds within which each broken build must be caught."""


def _mark_checkpoints_in_front_of_the_buffer(outbox, marker, mark=Outbox.mark):
    if not isinstance(marker.action, Commit):
        mark(outbox, marker)
        return
    for edge in outbox._edges:
        for channel in edge.channels:
            outbox._channels[channel].pump(outbox._sends)
            if outbox._channels[channel].queue:
                outbox._channels[channel].queue.append(marker)
            else:
                outbox._sends.append(Frames((channel,), marker))


def _align_no_checkpoint(alignment, marker, channel, holds=True, arrived=Alignment.arrived):
    if not isinstance(marker.action, Commit):
        return arrived(alignment, marker, channel, holds)
    if marker.id in alignment._passed:
        return None
    alignment._pass(marker.id)
    return marker


def _off_by_one(saving, number, end=OperatorSaving.end):
    part = end(saving, number)
    moved = {split: at and msgspec.structs.replace(at, row=at.row + 1) for split, at in part.positions.items()}
    return msgspec.structs.replace(part, processed=part.processed + 1, positions=moved)


def _await_no_snapshot(checkpoints, settle=Checkpoints.settle):
    checkpoints._attempt.owing.clear()
    return settle(checkpoints)


def _forget_the_decided(recovery, reason, hosts, again=Recovery.again):
    recover = again(recovery, reason, hosts)
    record = recover.restoration.checkpoint
    known = record.decided if record is not None else ()
    kept = tuple(decided for decided in recover.restoration.decided if decided.change in known)
    return replace(recover, restoration=Restoration(record, kept))


def _transform_again(instance, part, decided, deferred, read, unread, restore=assembled.restore):
    restore(instance, part, decided, deferred, read, unread)
    for change in decided:
        if part is not None and change.change in part.applied and instance.worker.operator in change.payloads:
            instance.state.transform(snapshot._update(instance.operator, change).state)


def _apply_changes_again(instance, part, decided, deferred, read, unread, restore=assembled.restore):
    restore(instance, part and msgspec.structs.replace(part, applied=()), decided, deferred, read, unread)


def _count_old_answers(controller, event, now_ns, received=Controller._received):
    if isinstance(event, Answered):
        event = replace(event, incarnation=0)
    return received(controller, event, now_ns)


def _keep_no_record(checkpoints):
    checkpoints.move(CommitPhase.KEEPING)
    checkpoints.move(CommitPhase.IDLE)
    checkpoints.over = checkpoints._attempt.last
    return [*checkpoints._commit(), CheckpointEnded(checkpoints._attempt.epoch, checkpoints._attempt.requests)]


def _release_at_once(worker, marker, start, apply=Worker._apply):
    apply(worker, marker, start)
    if isinstance(marker.action, Hold):
        worker._held = False


def _digest_twice(*rule, guarded=kinds.guarded):
    instance, step = rule[0], guarded(*rule)
    failed = instance.__dict__.setdefault("once_failed", set())

    def twice(row):
        try:
            step(row)
        except OperatorError:
            failed.add(row["number"])
            raise
        if row["number"] in failed:
            failed.discard(row["number"])
            step(row)

    return twice


def _commit_again(epochs):
    epochs._waiting, epochs._behind_cut = list(epochs._closed), []


def _hand_in_after_the_loss(epochs):
    epochs._behind_cut = []


def _forget_a_fork(instance, fork):
    instance.processed += fork.processed
    fork.records()


def _keep_only_its_own_bins(redistribution, worker, parts, divided=Redistribution._divided):
    own = [part for part in parts if part.index == worker.index] or parts[:1]
    return divided(redistribution, worker, own)


def _apply_again(redistribution, worker, parts, divided=Redistribution._divided):
    return msgspec.structs.replace(divided(redistribution, worker, parts), applied=())


def _pickle_when_all_else_is(state, key, form, to):
    found = form.states[key]
    for following, transform in form.way_to(to) or ():
        found = found if transform is None else transformed(found, (transform,), key)
        following.states[key] = found
        del form.states[key]
        form = following
    return found


def _read_twice(unread, bin, count=None, read=_Unread.read):
    again = None if bin in unread.__dict__.setdefault("twice", set()) else unread.left[bin]
    keys = read(unread, bin, count)
    if again is not None and bin not in unread.left:
        unread.twice.add(bin)
        unread.left[bin] = again
    return keys


BROKEN = {
    "a state is saved after it was touched": (KeyedState, "_bring", _pickle_when_all_else_is),
    "a bin is read twice": (_Unread, "read", _read_twice),
    "a checkpoint's marker overtakes the buffer": (Outbox, "mark", _mark_checkpoints_in_front_of_the_buffer),
    "a checkpoint is not aligned": (Alignment, "arrived", _align_no_checkpoint),
    "a position is one too far": (OperatorSaving, "end", _off_by_one),
    "snapshots are not awaited": (Checkpoints, "settle", _await_no_snapshot),
    "a decided change is forgotten": (Recovery, "again", _forget_the_decided),
    "a restored state is transformed again": (assembled, "restore", _transform_again),
    "a change is applied again": (assembled, "restore", _apply_changes_again),
    "an older incarnation's answer counts": (Controller, "_received", _count_old_answers),
    "files are committed without a record": (Checkpoints, "_keep", _keep_no_record),
    "new tuples meet old state": (Versions, "waits", property(lambda versions: False), "multiversion"),
    "sources are not held": (Worker, "_apply", _release_at_once, "minibatch"),
    "a failed tuple leaves its state": (guarding, "remembering", lambda instance: lambda row: guarding._no_state),
    "a poisonous tuple is taken twice": (kinds, "guarded", _digest_twice),
    "files are committed again": (CommitNumbers, "forget", _commit_again),
    "files of the lost are committed": (CommitNumbers, "forget", _hand_in_after_the_loss),
    "what a fork did is not traced": (Instance, "merge", _forget_a_fork, "multiversion"),
}


SHOWN = {
    "a checkpoint's marker overtakes the buffer": 9, "new tuples meet old state": 28, "sources are not held": 30,
    "a poisonous tuple is taken twice": 20, "what a fork did is not traced": 241, "files are committed again": 1,
    "a decided change is forgotten": 1, "an older incarnation's answer counts": 2,
}  # fmt: skip


def seeds(first, scheduler):
    """Those in whose runs this scheduler is asked for, or all."""
    drawn = ((seed, draw_focused(seed)) for seed in first_tried(first, BOUND))
    return (seed for seed, scenario in drawn if scheduler in {"", *(wish.scheduler for wish in scenario.wishes)})


RESHAPED = {
    "other workers' bins are left behind": _keep_only_its_own_bins,
    "what was applied is applied again": _apply_again,
}


@pytest.mark.parametrize(("divide", "shown"), [*zip(RESHAPED.values(), (1, 59), strict=True)], ids=RESHAPED)
def test_a_run_that_is_resumed_wrongly_at_other_numbers_of_workers_is_caught(monkeypatch, divide, shown):
    """Without this rule, some run that is resumed in another shape breaks a promise."""
    monkeypatch.setattr(Redistribution, "_divided", divide)
    assert caught(first_tried(shown, BOUND), lambda seed: try_seed(seed, draw_reshaped)) is not None


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_caught(monkeypatch, broken):
    """Without this rule, some run with trouble breaks a promise."""
    room, name, replacement, *scheduler = BROKEN[broken]
    monkeypatch.setattr(room, name, replacement)
    assert caught(seeds(SHOWN.get(broken, 5), *scheduler or [""]), try_focused) is not None
