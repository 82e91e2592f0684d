"""The matrix is not empty: a build that lacks one of these rules fails it, on the kind whose mechanism it is."""

from __future__ import annotations

import pytest
from matrix_played import try_cell
from msgspec.structs import replace
from soak import caught, first_tried

from fries_nb.operators.state import KeyedState
from fries_nb.worker import snapshot
from fries_nb.worker.loop_head import HeadWorker
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.versions import Versions
from fries_nb.worker.worker import Worker

BOUND = 40
"""Seeds within which each broken build must be caught."""

MOVES = [("bins", "bins"), ("checkpoint", "bins"), ("bins", "letters")]
KILLS = [("checkpoint", "kill"), ("letters", "checkpoint"), ("kill", "checkpoint")]
VERSIONS = [("multiversion", "multiversion"), ("multiversion", "letters")]


def _restore_without_x(instance, before, unread, definitions, load=snapshot._load):
    if instance.worker.operator == "X":
        before, unread = replace(before, bins={}, since=0), {}
    load(instance, before, unread, definitions)


BROKEN = {
    "keys of a dedup that come during a move stay behind": (KeyedState, "_note", lambda *given: None, "dedup", MOVES),
    "halves that come during a move stay behind": (KeyedState, "_note", lambda *given: None, "self_join", MOVES),
    "bins move without their state": (KeyedState, "add", lambda *given: None, "keyed map", MOVES),
    "windows move without their state": (KeyedState, "add", lambda *given: None, "tumbling window", MOVES),
    "halves are not restored": (snapshot, "_load", _restore_without_x, "self_join of two", KILLS),
    "keys of a dedup are not restored": (snapshot, "_load", _restore_without_x, "dedup", KILLS),
    "windows are not restored": (snapshot, "_load", _restore_without_x, "sliding window", KILLS),
    "a marker is dropped": (Outbox, "mark", lambda *given: None, "split", KILLS),
    "rows that come back keep their version": (HeadWorker, "_version_of", Worker._version_of, "loop", VERSIONS),
    "new rows do not wait for old ones": (Versions, "sets_aside", lambda *given: False, "keyed map", VERSIONS),
}
SHOWN = {
    "halves that come during a move stay behind": 3, "windows move without their state": 2,
    "rows that come back keep their version": 4, "new rows do not wait for old ones": 21,
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_caught(rule, monkeypatch):
    """Within the bound."""
    where, name, instead, kind, pairs = BROKEN[rule]
    monkeypatch.setattr(where, name, instead)
    assert caught(first_tried(SHOWN.get(rule, 0), BOUND), lambda seed: try_cell(kind, pairs, seed)) is not None
