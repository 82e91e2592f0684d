"""Transactions that begin at an operator: they are counted where they begin, and judged from there on."""

from __future__ import annotations

from fries_nb.audit import judge
from fries_nb.protocol.trace import Began, Emitted, Link, RanMany, Record, TraceFlow, Updated, Wrote, from_line, to_line
from fries_nb.transport.envelopes import pack, unpack

FLOW = TraceFlow({"S": 1, "W": 1, "D": 1}, (Link("S", "W"), Link("W", "D")), finished=True)


def trace(begun: tuple[int, ...] = (-1, -2), arrived: tuple[int, ...] = (-1, -2), function: str = "u1") -> list[Record]:
    """A window that takes two rows and emits two results with a new function."""
    return [
        FLOW,
        RanMany((1, 2), "S", 0, ""), Wrote("S", ran=2, ended=True),
        RanMany((1, 2), "W", 0, ""), Emitted((1, 2), -1, "W"), Updated("u1", "W"), Began(begun, "W", 0, function),
        Wrote("W", ran=2, updated=1, emitted=2 + len(begun), ended=True),
        RanMany(arrived, "D", 0, ""), Wrote("D", ran=len(arrived), ended=True),
    ]  # fmt: skip


def test_results_are_transactions_of_their_own() -> None:
    """A window that is changed between its rows and their result mixes nothing."""
    verdict = judge(trace())
    assert (verdict.serializable, verdict.transactions, verdict.lost, verdict.doubled) == (True, 4, (), ())


def test_a_result_that_is_lost_or_doubled_is_seen() -> None:
    """As any tuple that an operator emits."""
    [lost] = judge(trace(arrived=(-1,))).lost
    assert (lost.transaction, lost.sender, lost.receiver) == (-2, "W", "D")
    [doubled] = judge(trace(arrived=(-1, -2, -2))).doubled
    assert (doubled.transaction, doubled.sent, doubled.received) == (-2, 1, 2)
    assert judge(trace(begun=(-1,))).doubled[0].transaction == -2


def test_a_result_of_the_old_function_is_seen() -> None:
    """The operator had switched before."""
    [stale] = judge(trace(function="")).stale
    assert (stale.operator, stale.update, stale.ran, stale.tuples) == ("W", "u1", "", 2)


def test_the_record_keeps_its_form() -> None:
    """As a line, and on its way to the driver."""
    record = Began((-5, -6), "W", 1, "u1")
    assert from_line(to_line(record)) == record
    assert unpack(pack(record)) == record
