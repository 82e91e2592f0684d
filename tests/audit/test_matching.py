"""The audit counts the keys of dedups and self-joins over all of their workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from matrix_played import play

from fries_nb.audit import judge
from fries_nb.operators.audit_log import key_text
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.trace import Emitted, Link, Matched, Ran, TraceFlow, Wrote, from_line, to_line

LEFT, RIGHT = ("left", False), ("right", False)
PAIR = ("right", True)


def trace_of(matched, operator="X", resumed=False, finished=True):
    """A trace in which X took these tuples (key, side, emitted), each of a transaction and at a worker of its own."""
    records = [TraceFlow({operator: len(matched)}, (Link(operator, "Z"),), resumed, finished)]
    for number, (key, side, emitted) in enumerate(matched):
        records.append(Ran(number, operator, number))
        records += [] if emitted else [Emitted((number,), -1, operator, number)]
        records.append(Matched((number,), (key,), operator, number, side, emitted))
        records.append(Wrote(operator, number, ran=1, emitted=1 + (not emitted), ended=finished))
    return records


@pytest.mark.parametrize(
    ("matched", "lost", "doubled"),
    [
        ([("a", "", True), ("a", "", False), ("b", "", True)], 0, 0),
        ([("a", "", True), ("a", "", True)], 0, 1),
        ([("a", "", False), ("a", "", False)], 1, 0),
        ([("a", *LEFT), ("a", *PAIR)], 0, 0),
        ([("a", *LEFT), ("a", *RIGHT)], 1, 0),
        ([("a", *LEFT), ("b", *RIGHT)], 0, 0),
        ([("a", *LEFT), ("a", *PAIR), ("a", "left", True)], 0, 1),
        ([("a", *LEFT), ("a", *LEFT), ("a", *PAIR)], 0, 0),
        ([("a", *LEFT), ("a", *LEFT), ("a", *PAIR), ("a", *RIGHT)], 1, 0),
    ],
)
def test_what_leaves_of_a_key_is_what_was_taken_of_it(matched, lost, doubled):
    """Duplicates of a dedup, and pairs that did not leave, are shown with the key, once the run has finished."""
    verdict = judge(trace_of(matched))
    assert (len(verdict.lost), len(verdict.doubled)) == (lost, doubled)
    assert verdict.serializable == (not lost + doubled)
    for one in (*verdict.lost, *verdict.doubled):
        assert (one.receiver, one.key) == ("X", "a")
        assert "tuples with key a make" in one.account
    assert judge(trace_of(matched, finished=False)).serializable


@pytest.mark.parametrize(
    ("matched", "right"),
    [
        ([("a", "", False)], True),
        ([("a", "", True), ("a", "", True)], False),
        ([("a", *PAIR)], True),
        ([("a", *LEFT), ("a", *RIGHT)], False),
        ([("a", *LEFT), ("a", *PAIR), ("a", *PAIR)], True),
        ([("a", *LEFT), ("a", "left", True)], True),
        ([("a", *LEFT), ("a", *PAIR), ("a", "left", True), ("a", *PAIR)], False),
    ],
)
def test_a_resumed_run_had_taken_tuples_before(matched, right):
    """Which its trace lacks; so the first of a key may have left, and halves of pairs may have waited."""
    assert judge(trace_of(matched, resumed=True)).serializable == right


def test_the_record_survives_a_file():
    """With its keys."""
    record = Matched((1, 2), ("'a'", "(1, 'b')"), "X", 3, "left", True)
    assert from_line(to_line(record)) == record


def test_equal_keys_have_equal_texts_and_others_have_not():
    """Whatever number or zone they are written in."""
    instant = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    equal = [
        (1, 1.0, True, Decimal(1), Decimal("1.00")), (0.5, Decimal("0.5"), Decimal("0.50")), (0, -0.0),
        (instant, instant.astimezone(timezone(timedelta(hours=2)))), (1e300, int(1e300)),
    ]  # fmt: skip
    other = ["1", b"1", (1,), (1, 2), ("1", "2"), "1, 2", None, "x" * 100, "x" * 99 + "y", float("inf"), datetime.max]
    assert [{key_text(key) for key in keys} for keys in equal] == [{key_text(keys[0])} for keys in equal]
    texts = [key_text(key) for key in (*(keys[0] for keys in equal), *other)]
    assert len(set(texts)) == len(texts)
    assert key_text(float("nan")) == key_text(-float("nan"))


@pytest.mark.parametrize("kind", ["dedup", "self_join", "self_join of two"])
def test_keys_that_stay_behind_when_bins_move_are_found(kind, monkeypatch):
    """A build that does not note keys which come during a move leaves them with the old owner."""
    monkeypatch.setattr(KeyedState, "_note", lambda state, key: None)
    found = []
    for seed in range(40):
        played = play(kind, [("bins", "checkpoint"), ("bins", "bins")], seed)
        verdict = judge(played.cluster.records())
        found += verdict.doubled if kind == "dedup" else verdict.lost
        if found:
            break
    assert {one.receiver for one in found} == {"X"}
    assert all(one.key for one in found)
