"""Accounts: keyed state of any size, whose rows say when and where they were processed; for measuring rescales.

    Src -> Check -> Book -> Sink        several workers of Check get rows in turn, Book is keyed by account

Row ``value`` of the source goes to account ``value % accounts``. Book numbers the rows of each account, so rows that
are lost or doubled show, as does state that does not follow its rows:

>>> book, state = Book(state_bytes=3), Book(state_bytes=3).initial_state()
>>> rows = [book.process({"value": value, "timestamp": 0, "checked": 5}, state) for value in (1, 3)]
>>> [(row["value"], row["nth"]) for row in rows], len(state["kept"])
([(1, 1), (3, 2)], 3)
>>> wrong_rows([0, 1, 2, 3], [1, 1, 2, 2], accounts=2), wrong_rows([0, 1, 3], [1, 1, 1], accounts=2)
(0, 2)
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.scorer import wait

Row = dict[str, Any]


@dataclass(frozen=True)
class ProcessTag:
    """Adds the process that has checked a row; ``cost_ms`` is the time in milliseconds for which it waits."""

    cost_ms: float = 0.0

    def process(self, row: Row) -> Row:
        """The row, with the number of the process and the time in nanoseconds."""
        wait(self.cost_ms)
        return {**row, "checked": os.getpid(), "checked_ns": time.time_ns()}


@dataclass(frozen=True)
class Book:
    """Numbers the rows of an account, and keeps ``state_bytes`` bytes for it; ``cost_ms`` as in ``ProcessTag``."""

    state_bytes: int = 0
    cost_ms: float = 0.0

    def initial_state(self) -> dict[str, Any]:
        """No row yet."""
        return {"count": 0, "kept": bytes(self.state_bytes)}

    def process(self, row: Row, state: dict[str, Any]) -> Row:
        """The row with its number, the process, and the time in nanoseconds."""
        wait(self.cost_ms)
        state["count"] += 1
        return {**row, "nth": state["count"], "booked": os.getpid(), "booked_ns": time.time_ns()}


@dataclass(frozen=True)
class Account:
    """The account of a row of the source, of so many."""

    accounts: int

    def __call__(self, value: int) -> dict[str, int]:
        """The further column of the row."""
        return {"account": value % self.accounts}


def accounts_flow(
    rate: float | None, accounts: int, state_bytes: int = 0, cost_ms: float = 0.0, count: int | None = None
) -> fn.Dataflow:
    """The dataflow above; only the source has a declared number of workers, one.

    Args:
        rate: rows per second; ``None`` for as fast as the dataflow takes them.
        accounts: number of accounts.
        state_bytes: size of the state of each.
        cost_ms: milliseconds for which Book waits on each row.
        count: number of rows; ``None`` for an endless source.
    """
    flow = fn.Dataflow("accounts")
    rows = flow.source("Src", fn.rate(rate, count=count, row=Account(accounts)), workers=1)
    rows.map("Check", ProcessTag()).map("Book", Book(state_bytes, cost_ms), key="account").sink("Sink", fn.memory())
    return flow


def wrong_rows(values: Sequence[int], nths: Sequence[int], accounts: int) -> int:
    """The number of rows that are lost or doubled, or that found a state other than that of their account.

    Rows of an account may come in another order, since the workers of Check are not equally fast.

    Args:
        values: ``value`` of each row that has come out.
        nths: its number in its account.
        accounts: number of accounts.
    """
    known = set(values)
    lost = max(known, default=-1) + 1 - len(known)
    doubled = len(values) - len(known)
    numbers: dict[int, set[int]] = {}
    for value, nth in zip(values, nths, strict=True):
        numbers.setdefault(value % accounts, set()).add(nth)
    counts = Counter(value % accounts for value in values)
    other = sum(len(set(range(1, counts[account] + 1)) - found) for account, found in numbers.items())
    return lost + doubled + other
