"""The laws of loops are not empty: with any one of their rules broken, a seed of a small number fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops_played import (
    try_around,
    try_by_row,
    try_changed,
    try_changed_killed,
    try_loops,
    try_mended,
    try_small,
    try_small_killed,
)
from msgspec import structs
from soak import caught

from fries_nb.controller import known_changes, lifecycle
from fries_nb.controller.change_steps import Changes
from fries_nb.controller.cuts import Cuts
from fries_nb.controller.events import Tell
from fries_nb.controller.known_changes import DeferredChanges
from fries_nb.controller.loop_attempts import Loop, LoopAttempts, LoopDrain
from fries_nb.controller.states import LoopPhase
from fries_nb.controller.transactions import Transaction
from fries_nb.protocol import rollout
from fries_nb.protocol.messages import CloseCuts, Data, Done, Settle
from fries_nb.simulation import cluster
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.input_times import TrackedTimes
from fries_nb.worker.loop_head import FeedbackInbox, HeadAlignment, HeadWorker, Observation
from fries_nb.worker.reports import WorkerReports
from fries_nb.worker.snapshot import _DecidedChanges
from fries_nb.worker.worker import Worker

BOUND = 60
"""Seeds within which each broken build must be caught."""


def _observe_arrivals(inbox, channel, frame, put=FeedbackInbox.put):
    if isinstance(frame, Data) and inbox.is_feedback(channel):
        inbox.on_taken(channel, frame)
    put(inbox, channel, frame)


def _observe_no_takes(inbox, channel, frame, taken=FeedbackInbox._taken):
    observe, inbox.on_taken = inbox.on_taken, lambda channel, frame: None
    try:
        return taken(inbox, channel, frame)
    finally:
        inbox.on_taken = observe


def _forget_what_is_spilled(inbox, channel, frame, taken=FeedbackInbox._taken):
    return (_observe_no_takes if inbox._behind[channel] else taken)(inbox, channel, frame)


def _ask_one_head(loops, action, worker, done, now_ns, acknowledged=LoopAttempts.acknowledged):
    heads = {loop.name for loop in loops.loops.values() if loop.phase is LoopPhase.ASKING}
    is_inner = done is not None and worker.operator not in heads
    return acknowledged(loops, action, worker, _unobserved(done) if is_inner else done, now_ns)


def _unobserved(done):
    """The same acknowledgement, of a head that has observed nothing."""
    return Done(done.marker, done.worker, done.ended, busy=done.busy)


def _let_one_worker_decide(loops, action, worker, done, now_ns, acknowledged=LoopAttempts.acknowledged):
    acknowledged(loops, action, worker, done, now_ns)
    if worker.operator in loops.loops and done is not None and not done.observed:
        loops.loops[worker.operator].observed = -1_000
    return []


def _end_if_one_observed_nothing(loop):
    return LoopPhase.READY if loop.observed > 0 else LoopPhase.ENDING


def _start_with_the_first_end(loops, answer, answered=LoopAttempts.answered):
    loop = loops.loops.get(answer.worker.operator)
    if loop is not None and loop.phase is LoopPhase.FED and not hasattr(answer, "marker"):
        loop.fed = {answer.worker}
    elif loop is not None and not hasattr(answer, "marker"):
        return
    answered(loops, answer)


def _start_when_sources_have_ended(loops, judge=LoopAttempts._judge):
    for loop in loops.loops.values():
        if loop.phase is LoopPhase.FED and not loops._workers.live(loops._workers.graph.sources):
            loop.fed.clear()
            loop.move(LoopPhase.READY)
    return judge(loops)


def _ignore_early_ends(loops, answer):
    for loop in loops.loops.values():
        loop.fed.discard(answer.worker)


def _return_credit_on_use(worker, event, handle=Worker.handle):
    handle(worker, event)


def _keep_the_size(inbox, channel, frame, taken=FeedbackInbox._taken):
    after = taken(inbox, channel, frame)
    return replace(after, size=frame.size) if isinstance(frame, Data) else after


def _acknowledge_at_once(worker, marker, start, apply=Worker._apply):
    apply(worker, marker, start)
    worker._inbox.block_only(worker._alignment.blocked)


def _do_not_block(alignment, marker, channel):
    alignment._ahead.setdefault(marker.id, set()).add(channel)


def _await_what_came_ahead(alignment, marker_id):
    alignment._ahead.pop(marker_id, None)
    return set()


def _end_whatever_was_observed(loop):
    return LoopPhase.READY if loop.owed else LoopPhase.ENDING


def _log_nothing(observation, answer):
    return answer


def _report_the_trace(reports, *given, report=WorkerReports.report):
    reports.withholds_trace = False
    return report(reports, *given)


TERMINATION = {
    "nothing observed counts": ([(Loop, "verdict", _end_whatever_was_observed)], try_small),
    "inner heads omitted": ([(LoopAttempts, "acknowledged", _ask_one_head)], try_loops),
    "heads decide alone": (
        [
            (LoopAttempts, "acknowledged", _let_one_worker_decide),
            (Loop, "verdict", _end_if_one_observed_nothing),
        ],
        try_small,
    ),
    "start at the first end": ([(LoopAttempts, "answered", _start_with_the_first_end)], try_small),
    "start when the sources have ended": (
        [(LoopAttempts, "_judge", _start_when_sources_have_ended), (LoopAttempts, "answered", _ignore_early_ends)],
        try_small,
    ),
    "answers on passing on": ([(HeadWorker, "_apply", _acknowledge_at_once)], try_small),
    "credit on use": (
        [(HeadWorker, "handle", _return_credit_on_use), (FeedbackInbox, "_taken", _keep_the_size)],
        try_small,
    ),
    "frames that are merged are not taken": ([(FeedbackInbox, "merged", Inbox.merged)], try_small),
    "what came ahead is awaited": ([(HeadAlignment, "take_ahead", _await_what_came_ahead)], try_small),
}
CHECKPOINTS = {
    "observation at arrival": (
        [(FeedbackInbox, "put", _observe_arrivals), (FeedbackInbox, "_taken", _observe_no_takes)],
        try_small_killed,
    ),
    "spilled frames forgotten": ([(FeedbackInbox, "_taken", _forget_what_is_spilled)], try_small_killed),
    "answers on passing on": ([(HeadWorker, "_apply", _acknowledge_at_once)], try_small_killed),
    "what was observed is not logged": ([(Observation, "_completed", _log_nothing)], try_small_killed),
    "what came ahead is not blocked": ([(HeadAlignment, "came_ahead", _do_not_block)], try_small_killed),
    "the trace goes on": (
        [(WorkerReports, "report", _report_the_trace)],
        try_small_killed,
    ),
}


def _block_at_the_loop_only(alignment, operators, block=Alignment.block_entries):
    block(alignment, operators)
    inside = {channel for channel in alignment._live if channel.receiver.operator.startswith("L")}
    alignment._entries &= inside


def _keep_the_time(times, frames, version, take_frames=TrackedTimes.take_frames):
    take_frames(times, frames, min(frame.version for _, frame in frames))


def _switch_at_the_first_verdict(drain, advance=LoopDrain.advance):
    steps = advance(drain)
    drain.is_empty = drain.is_empty or (drain._loop.attempts > 0 and not drain._lane.busy)
    drain.is_empty = drain.is_empty or (drain._loop.attempts > 1)
    return drain._lane.cancel() if drain.is_empty and drain._lane.attempts else steps


CHANGES = {
    "no entry is blocked": ([(Alignment, "block_entries", lambda alignment, operators: None)], try_changed),
    "only the loop is blocked": ([(Alignment, "block_entries", _block_at_the_loop_only)], try_changed),
    "committed while quieting": ([(LoopDrain, "advance", _switch_at_the_first_verdict)], try_changed),
    "answers on passing on": ([(HeadWorker, "_apply", _acknowledge_at_once)], try_changed),
    "rows that come back keep their version": ([(HeadWorker, "_version_of", Worker._version_of)], try_around),
    "rows that come back keep their time": ([(TrackedTimes, "take_frames", _keep_the_time)], try_around),
}


def _install_at_restore(graph, restoration):
    return restoration


def _defer_the_first_only(decided, checkpoint, deferred=known_changes._deferred):
    return deferred(decided, checkpoint)[:1]


def _drain_nothing(drain, advance=LoopDrain.advance):
    drain.is_empty = True
    return advance(drain)


def _open_at_once(changes, deferred, now_ns, step=Changes._deferred_step):
    steps = step(changes, deferred, now_ns)
    return [*steps, *deferred.open()] if steps and deferred._has_switched else steps


DEFERRED = {
    "install at restore": (
        [(lifecycle, "with_deferred", _install_at_restore), (cluster, "with_deferred", _install_at_restore)],
        try_changed_killed,
    ),
    "restored workers are not closed": ([(Worker, "close", lambda worker, operators: None)], try_changed_killed),
    "later changes are installed": ([(known_changes, "_deferred", _defer_the_first_only)], try_changed_killed),
    "deferred without a drain": ([(LoopDrain, "advance", _drain_nothing)], try_changed_killed),
    "entries are opened before the switch": ([(Changes, "_deferred_step", _open_at_once)], try_changed_killed),
    "a fix is ordered behind deferred changes": (
        [(DeferredChanges, "first_of", lambda deferred, operator: "")], try_mended
    ),
}  # fmt: skip


def _close_whatever_is_read(cuts, action, worker, done, passed=Cuts.passed):
    return passed(cuts, action, worker, None if done is None else structs.replace(done, inside={}))


def _settle_at_the_first_look(cuts, action, worker, done, passed=Cuts.passed):
    told = passed(cuts, action, worker, done)
    if not isinstance(action, CloseCuts) or cuts._lane.busy:
        return told
    of = cuts._workers.of
    told += [Tell(each, Settle(change)) for change in cuts.open for each in of(cuts._open[change][0])]
    cuts.close(cuts.open)
    return told


def _apply_without_settling(changes, deferred, opened, apply_all=_DecidedChanges.apply_all):
    return apply_all(changes, deferred, [one.change for one in changes._instance.earlier])


BY_ROW = {
    "rows inside do not count": ([(Cuts, "passed", _close_whatever_is_read)], try_by_row),
    "one look is enough": ([(Cuts, "passed", _settle_at_the_first_look)], try_by_row),
    "a restart forgets the rows inside": ([(rollout, "is_inside", lambda steps, reach: False)], try_by_row),
    "others are applied at once": ([(known_changes, "_old_inside", lambda decided, checkpoint: set())], try_by_row),
    "earlier ones outlast deferred ones": ([(_DecidedChanges, "apply_all", _apply_without_settling)], try_by_row),
    "the cut is drained for": ([(Transaction, "freezes", property(lambda change: False))], try_by_row),
}
RARE = {
    "rows inside do not count": 8, "one look is enough": 66, "a restart forgets the rows inside": 8,
    "others are applied at once": 46, "earlier ones outlast deferred ones": 211, "the cut is drained for": 14,
    "start at the first end": 21, "credit on use": 31, "observation at arrival": 129, "the trace goes on": 61,
    "what came ahead is not blocked": 129, "no entry is blocked": 101, "only the loop is blocked": 833,
    "install at restore": 4, "restored workers are not closed": 4, "later changes are installed": 4,
    "deferred without a drain": 4, "entries are opened before the switch": 33,
    "a fix is ordered behind deferred changes": 11, "nothing observed counts": 3, "inner heads omitted": 3,
    "heads decide alone": 3, "start when the sources have ended": 4, "answers on passing on": 2,
    "committed while quieting": 2, "rows that come back keep their version": 18,
    "rows that come back keep their time": 18, "frames that are merged are not taken": 2,
}  # fmt: skip
"""First seeds of what not every seed shows."""


RULES = [*TERMINATION.items(), *CHECKPOINTS.items(), *CHANGES.items(), *DEFERRED.items(), *BY_ROW.items()]


@pytest.mark.parametrize("broken", RULES, ids=lambda one: one[0])
def test_a_broken_rule_is_caught(broken, monkeypatch):
    """Within the bound."""
    rule, (patches, attempt) = broken
    for where, name, instead in patches:
        monkeypatch.setattr(where, name, instead)
    first = RARE.get(rule, 0)
    assert caught(range(first, first + BOUND), attempt) is not None
