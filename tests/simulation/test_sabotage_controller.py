"""Each rule of the controller is needed: a seeded run of its workers, hosts and disks dies without it.

More of its rules are broken in the other tables of ``test_sabotage*`` and ``test_interleavings*``; those that no seed
is known to miss are seen at the desk of ``tests/controller``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from interleaving_checks import try_focused, try_pausing, try_seed, try_troubled
from msgspec import structs
from soak import caught, first_tried

from fries_nb.controller import commits, known_changes
from fries_nb.controller.change_steps import Changes
from fries_nb.controller.commits import Checkpoints, CommitNumbers, Recovery
from fries_nb.controller.events import Resolved
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.states import ChangeState
from fries_nb.planning.schedulers import Send

BOUND = 100


def _tell_one_to_forget(change, forgotten=known_changes._forgotten):
    return forgotten(change)[:1]


def _close_as_if_in_front(epochs, sink, files, behind_cut=False, hand_in=CommitNumbers.hand_in):
    hand_in(epochs, sink, files)


def _forget_who_asked(checkpoints):
    checkpoints.move("idle")


def _snapshot_of_no_change(checkpoints, epoch, checkpoint, new=Checkpoints._new):
    return replace(new(checkpoints, epoch, checkpoint), decided=())


def _abort_what_was_decided(changes, why, now_ns, lost=Changes.lost):
    said = lost(changes, why, now_ns)
    for change in changes._under_way():
        change.state = ChangeState.PREPARING
        said.append(Resolved(change.resolve(ChangeState.ABORTED, now_ns, why)))
        changes._release(change)
    return said


def _resolve_nothing(changes, now_ns):
    changes.in_flight = None
    return []


def _wait_in_line(lane, operator, action):
    return MarkerCoordinator.start(lane, [Send(operator, frozenset({operator}))], action)


def _drop_all_that_is_behind(ordered, applied, read=None):
    """As if workers started with the functions in their snapshots."""
    return [change if change.change not in applied else structs.replace(change, payloads={}) for change in ordered]


BROKEN = {
    "ends do not count": (MarkerCoordinator, "end", lambda lane, worker: [], try_seed, 41),
    "not all forget": (known_changes, "_forgotten", _tell_one_to_forget, try_seed, 5),
    "no journal": (Changes, "_decide", lambda self, change, now_ns: self._next_stage(change, now_ns), try_seed, 5),
    "a cancelled commit loses its files": (CommitNumbers, "cancel", lambda self, now_ns: self.close(), try_seed, 8),
    "what is behind the cut is in it": (CommitNumbers, "hand_in", _close_as_if_in_front, try_troubled, 66),
    "requests are forgotten": (Checkpoints, "_take_back", _forget_who_asked, try_troubled, 1),
    "a record without its changes": (Checkpoints, "_new", _snapshot_of_no_change, try_focused, 5),
    "the same incarnation again": (Recovery, "lose", lambda recovery, tables: None, try_troubled, 0),
    "the checkpoint before": (Recovery, "keep", lambda recovery, record: None, try_focused, 1),
    "what was decided is aborted": (Changes, "lost", _abort_what_was_decided, try_troubled, 8),
    "what was decided has no outcome": (Changes, "started", _resolve_nothing, try_troubled, 5),
    "the end has no record": (Checkpoints, "last", Checkpoints.rest, try_troubled, 0),
    "markers of the lost are waited for": (MarkerCoordinator, "clear", lambda lane: None, try_troubled, 1),
    "replaced functions are dropped": (commits, "without_superseded", _drop_all_that_is_behind, try_focused, 15),
    "no fix goes ahead": (Changes, "_next_fix", lambda changes: None, try_pausing, 0),
    "a fix waits in line": (MarkerCoordinator, "start_bypass", _wait_in_line, try_pausing, 1),
    "what prepares is not aborted": (Changes, "pause", lambda self, operator, error, now_ns: [], try_pausing, 4),
    "not fixed in its version": (Changes, "_is_paused_before", lambda changes, operator: False, try_pausing, 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_controller_is_caught(monkeypatch, name):
    """Without this rule some run breaks a promise, or comes to no end."""
    room, attribute, replacement, attempt, shown = BROKEN[name]
    monkeypatch.setattr(room, attribute, replacement)
    assert caught(first_tried(shown, BOUND), attempt) is not None
