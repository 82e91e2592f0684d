"""The checks are not empty: a runtime with one rule broken fails them for some seed, each time within a bounded number.

The seeds are among those for which `test_interleavings_random` finds that the whole runtime keeps every promise.
"""

from __future__ import annotations

from collections import deque

import pytest
from interleaving_checks import try_seed
from soak import caught, first_tried

import fries_nb as fn
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.operators.executors import RowExecutor
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import KeyedState
from fries_nb.planning.schedulers import SCHEDULERS, Send, Stage
from fries_nb.protocol.messages import Abort, Cancel, Commit, Data, End, WorkerId
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.network import LaneKind, SeededNetwork
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.outbox import SendFrame as Frames
from fries_nb.worker.worker import Worker

BOUND = 400
"""Seeds within which each broken build must be caught."""


def _apply_on_first_arrival(alignment, marker, channel, holds=True):
    if marker.id in alignment._passed:
        return None
    alignment._pass(marker.id)
    return marker


def _align_commits_on_first_arrival(alignment, marker, channel, holds=True, arrived=Alignment.arrived):
    if isinstance(marker.action, Commit):
        return _apply_on_first_arrival(alignment, marker, channel)
    return arrived(alignment, marker, channel, holds)


def _forget_what_has_passed(alignment, marker, channel, holds=True, arrived=Alignment.arrived):
    alignment._passed.discard(marker.id)
    return arrived(alignment, marker, channel, holds)


def _cancel_without_release(alignment, marker_id):
    alignment._passed.add(marker_id)


def _end_counts_for_nothing(alignment, channel):
    alignment._live.discard(channel)
    return []


def _mark_in_front_of_the_buffer(outbox, marker):
    channels = [channel for edge in outbox._edges if edge.to in marker.scope for channel in edge.channels]
    for channel in channels:
        outbox._channels[channel].pump(outbox._sends)
    for channel in channels:
        if outbox._channels[channel].queue:
            outbox._channels[channel].queue.append(marker)
        else:
            outbox._sends.append(Frames((channel,), marker))


def _mark_in_front_of_the_queue(outbox, marker):
    for edge in outbox._edges:
        if edge.to in marker.scope:
            outbox._sends.append(Frames(edge.channels, marker))


def _leak_credit(outbox, channel, size, credit=Outbox.credit):
    credit(outbox, channel, size if outbox._channels[channel].window == 0 else size - size // 2)


def _send_to_every_target(graph, covering):
    parts = covering.components
    sends = tuple(Send(name, part.operators) for part in parts for name in sorted(part.heads | part.targets))
    return (Stage(sends, covering.targets),)


def _switch_in_name_only(instance, change, before=""):
    ready = instance.prepared.pop(change)
    instance.apply_change(change, ready.transform)
    return True


def _switch_without_a_trace(instance, change, before=""):
    instance.prepared.pop(change)
    return True


def _free_the_lane_at_the_first_answer(lane):
    lane._journey = lane._bypass = None


def _tell_only_the_living(lane, sends, action, start=MarkerCoordinator.start):
    return [tell for tell in start(lane, sends, action) if tell.worker not in lane._workers.ended]


def _reorder(which):
    def next_(network, lane, queue: deque):
        if lane[0] is which and len(queue) > 1 and not isinstance(queue[1], End):
            queue[0], queue[1] = queue[1], queue[0]
        return queue.popleft()

    return next_


def _reorder_data(network, lane, queue: deque):
    if len(queue) > 1 and isinstance(queue[0], Data) and isinstance(queue[1], Data):
        queue[0], queue[1] = queue[1], queue[0]
    return queue.popleft()


def _forget_nothing_when_ended(worker, id_, control, direct=Worker._direct):
    if not (worker.ended and isinstance(control, Abort)):
        direct(worker, id_, control)


def _lose_cancellations(worker, id_, control, direct=Worker._direct):
    if not isinstance(control, Cancel):
        direct(worker, id_, control)


BROKEN = [
    (Alignment, "blocked", property(lambda alignment: set())),
    (Alignment, "arrived", _apply_on_first_arrival),
    (Alignment, "arrived", _align_commits_on_first_arrival),
    (Alignment, "arrived", _forget_what_has_passed),
    (Alignment, "cancel", _cancel_without_release),
    (Outbox, "mark", _mark_in_front_of_the_buffer),
    (Outbox, "mark", _mark_in_front_of_the_queue),
    (Outbox, "credit", _leak_credit),
    (Instance, "switch", _switch_in_name_only),
    (Instance, "switch", _switch_without_a_trace),
    (RowExecutor, "rebuild", lambda execution: None if hasattr(execution, "_first") else REBUILD(execution)),
    (KeyedState, "transform", lambda state, transform: None),
    (MarkerCoordinator, "_retire", _free_the_lane_at_the_first_answer),
    (Worker, "_direct", _lose_cancellations),
    (Worker, "_direct", _forget_nothing_when_ended),
    (Instance, "skip_change", lambda instance, change: None),
    (SeededNetwork, "_next", _reorder(LaneKind.FRAMES)),
    (SeededNetwork, "_next", _reorder_data),
    (SeededNetwork, "_next", _reorder(LaneKind.ANSWERS)),
]
REBUILD = RowExecutor.rebuild
NAMES = [
    "alignment never blocks",
    "a marker is applied on its first arrival",
    "a commit is not aligned",
    "marker ids are forgotten",
    "a cancelled marker still blocks",
    "a marker overtakes the buffer",
    "a marker overtakes what waits for credit",
    "credit leaks away",
    "a target keeps its old function",
    "a target forgets the marker",
    "a chain keeps its old steps",
    "state is not transformed",
    "the next marker does not wait",
    "cancellations are lost",
    "the ended keep what was aborted",
    "the ended keep what they let pass",
    "frames overtake each other",
    "data overtakes data",
    "answers overtake each other",
]
SHOWN = {
    "a cancelled marker still blocks": 11, "a marker overtakes the buffer": 20, "state is not transformed": 17,
    "cancellations are lost": 69, "the ended keep what was aborted": 7, "the ended keep what they let pass": 32,
    "marker ids are forgotten": 1, "answers overtake each other": 1,
}


@pytest.mark.parametrize(("broken", "name"), [*zip(BROKEN, NAMES, strict=True)], ids=NAMES)
def test_a_broken_build_is_caught(monkeypatch, broken, name):
    """Without this rule, some interleaving breaks a promise."""
    monkeypatch.setattr(*broken)
    assert caught(first_tried(SHOWN.get(name, 5), BOUND), try_seed) is not None


def test_messages_to_others_than_heads_are_caught(monkeypatch):
    """FCMs to all targets, although markers are on their way to those below."""
    monkeypatch.setitem(SCHEDULERS, "fries", _send_to_every_target)
    assert caught(first_tried(5, BOUND), try_seed) is not None


def test_an_end_that_counts_for_no_marker_is_caught(monkeypatch):
    """A marker comes behind the end as well, so that an end is missed only where the ended are not told either."""
    monkeypatch.setattr(Alignment, "ended", _end_counts_for_nothing)
    monkeypatch.setattr(MarkerCoordinator, "start", _tell_only_the_living)
    assert caught(first_tried(135, BOUND), try_seed) is not None


def _change_behind_an_end(seed):
    """FA has ended, and U, which the other source keeps alive, learns of the change from nobody else."""
    flow = fn.Dataflow("ends")
    a, b = flow.source("a", fn.rate(None, count=4)), flow.source("b", fn.rate(None, count=4))
    a.map("FA", dict).union("U", b).map("FX", dict).sink("out", fn.memory())
    rows = [{"value": value} for value in range(4)]
    cluster = Cluster(flow.graph(workers=1), {"a": rows, "b": rows}, seed=seed)
    cluster.hold([WorkerId("b", 0)])
    cluster.until(lambda: cluster.worker("FA").ended)
    change = cluster.request({"FA": dict, "FX": dict}, "fries")
    cluster.until(lambda: change in cluster.outcomes)
    cluster.release()
    cluster.run()
    return cluster.outcomes[change].outcome


def test_a_change_behind_an_end_arrives():
    """The marker follows the end of a channel, for those whom another source keeps alive."""
    assert {_change_behind_an_end(seed) for seed in range(20)} == {"done"}


def test_the_ended_not_told_are_missed(monkeypatch):
    """Without that the run stands still."""
    monkeypatch.setattr(MarkerCoordinator, "start", _tell_only_the_living)
    with pytest.raises(AssertionError, match="the run is stuck"):
        [_change_behind_an_end(seed) for seed in range(20)]
