"""Requeues of a run: dead letters are read from their sink, and their rows go back to the operator.

A letter is open if neither another row of its sink says that it was requeued (see ``operators.dead_letters``), nor a
decision that is not in the output yet. The latter this process knows of its own requests; of those of an earlier one,
the decisions that the run was resumed with tell. So no letter is given back twice, whatever fails in between.

Rows go back in shares, each of which is decided by itself (see ``controller.failed_rows``): so many that other actions
do not wait long, and as many in a second as were asked for. What a process that dies has not requested yet stays open.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fries_nb.controller.events import RequeueEnded, RequeueRequested
from fries_nb.dataflow.endpoints import check_readable
from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.masking import masked_text
from fries_nb.driver.driver import Driver
from fries_nb.errors import DataflowError, PlanError, exception_text
from fries_nb.operators.dead_letters import LETTER, requeued_row, unpacked_row
from fries_nb.operators.instance import row_as_json
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.protocol.messages import RequeuedRow
from fries_nb.protocol.partitioning import Binning
from fries_nb.protocol.progress_locations import is_tracked

MOST_ROWS = 500
"""Maximum number of rows that go back with one decision."""
MOST_BYTES = 1 << 20
"""Size of rows in bytes from which on a share is complete."""
MOST = sys.float_info.max
"""More rows than there are, and more in a second."""
SHARES = 4
"""Number of shares in a second, if the number of rows in a second is limited."""
SHOWN = tuple(name for name in LETTER.names if name != "row")
"""The columns of ``Run.dead_letters``."""

Where = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class RequeueResult:
    """What has become of the rows of a requeue.

    Attributes:
        rows: number of rows that have gone back. What the operator makes of them is committed with the next commit, or
            they are dead letters again.
        left: number of rows whose worker had ended; their letters stay open.
        error: why further ones did not go back; empty if all did.
    """

    rows: int
    left: int = 0
    error: str = ""


class Requeue:
    """Rows of dead letters on their way back to their operator; made by ``Run.requeue``.

    Attributes:
        operator: the operator.
        rows: the number of rows that were chosen.
    """

    def __init__(self, operator: str, rows: int) -> None:
        self.operator, self.rows = operator, rows
        self.stopped = threading.Event()  # set when no further rows are to go back
        self._over = threading.Event()
        self._so_far = RequeueResult(0)

    def __str__(self) -> str:
        so_far = self._so_far
        done = f"{so_far.rows:,} of {self.rows:,} rows of dead letters have gone back to {self.operator}"
        left = f"; {so_far.left:,} stay, since their workers had ended" if so_far.left else ""
        return f"{done}{left}{f'; {so_far.error}' if so_far.error else ''}"

    def __repr__(self) -> str:
        return f"Requeue({self})"

    @property
    def done(self) -> bool:
        """Whether it has ended, with any result."""
        return self._over.is_set()

    def cancel(self) -> None:
        """Give back no further rows; returns at once. Letters of those that have not gone back stay open."""
        self.stopped.set()

    def result(self, timeout: float | None = None) -> RequeueResult:
        """Wait until the rows have gone back.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            What has become of them.

        Raises:
            TimeoutError: it has not ended in time; it continues.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"{self}; the others are still under way")
        return self._so_far

    def note(self, rows: int = 0, left: int = 0, error: str = "") -> RequeueResult:
        """Record what has become of some more rows; returns the result so far. Called by the run."""
        before = self._so_far
        self._so_far = RequeueResult(before.rows + rows, before.left + left, error or before.error)
        return self._so_far

    def end(self) -> None:
        """Record that no further rows go back. Called by the run."""
        self._over.set()


class RequeuedRun(Protocol):
    """What requeues need of a run."""

    @property
    def graph(self) -> Graph:
        """The dataflow, as it is now."""

    @property
    def hide(self) -> frozenset[str]:
        """The columns whose values are not to be shown."""

    def operator(self, name: str) -> Operator:
        """The operator of that name; raises a DataflowError that says so if a change has removed it."""

    def driver_of(self, operator: str) -> Driver | None:
        """The driver of the operator's region; ``None`` if that has not begun."""

    def output(self, sink: str) -> Any:
        """The rows committed so far at a sink, or the dead letters of an operator, as a Spark DataFrame."""

    def refuse_if_over(self, why: str) -> None:
        """Check that the run accepts requests."""

    def refuse_if_ended(self, operator: str, why: str) -> None:
        """Check that the operator's region has not ended before others; raises a PlanError that ends with this."""


class RunRequeues:
    """The requeues of a run.

    Args:
        run: the run.
        before: the decisions with which it was resumed.
    """

    def __init__(self, run: RequeuedRun, before: Iterable[CommittedChange] = ()) -> None:
        self._run = run
        self._given = {row.letter for one in before for row in one.requeued}  # no other request may have them
        self._told = threading.Condition()
        self._answers: dict[str, RequeueEnded] = {}
        self._one_at_a_time = threading.Lock()  # held from the choice of letters until they are noted
        self._threads: list[threading.Thread] = []

    def letters(self, operator: str) -> Any:
        """The dead letters of an operator, each with the request that has requeued it; see ``Run.dead_letters``."""
        told = self._run.output(operator)
        requeued = told.where("requeued is not null").select("letter", "requeued").hint("broadcast")
        return told.where("requeued is null").drop("requeued").join(requeued, "letter", "left").select(*SHOWN)

    def request(self, operator: str, where: Where | None, limit: int | None, per_second: float | None) -> Requeue:
        """Give rows of open dead letters back; see ``Run.requeue``."""
        known = self._checked(operator)
        for name, given, whole in (("limit", limit, True), ("per_second", per_second, False)):
            kinds = int if whole else (int, float)
            if given is not None and (isinstance(given, bool) or not isinstance(given, kinds) or not 0 < given <= MOST):
                raise PlanError(f"{name}={given!r}; expected a {'whole ' if whole else ''}number above 0, or None")
        if where is not None and not callable(where):
            raise PlanError(f"where={where!r}; expected a function of a row, as in lambda row: row['amount'] > 100")
        self._run.refuse_if_over("rows go back to a dataflow that runs")
        self._run.refuse_if_ended(operator, "expected an operator of a region that runs")
        with self._one_at_a_time:
            rows = self._chosen(known, where, limit)
            self._given.update(row.letter for row in rows)
        requeue = Requeue(operator, len(rows))
        work = partial(self._give, requeue, rows, per_second)
        thread = threading.Thread(target=work, name="fries-requeue", daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()
        return requeue

    def _checked(self, operator: str) -> Operator:
        known = self._run.operator(operator)
        refuse_without_letters(known)
        if not known.traits.runs_user_code:
            what = "dead letters are lines that are no rows" if known.traits.is_source else "no function processes rows"
            raise PlanError(f"{operator} ({known.kind}): {what}, so there is nothing to process again")
        if is_tracked(self._run.graph):
            words = "is in a dataflow with times or loops, where rows do not go back in this version"
            raise PlanError(f"{operator} {words}; expected one without time= and loops")
        return known

    def _chosen(self, operator: Operator, where: Where | None, limit: int | None) -> list[RequeuedRow]:
        """The rows of the open letters that satisfy the condition."""
        binning = Binning(operator.key) if operator.key else None
        found: list[RequeuedRow] = []
        for letter in self._open(operator.name):
            if limit is not None and len(found) >= limit:
                break
            if letter["row"] is not None and (where is None or _holds(where, letter, self._run.hide)):
                found.append(requeued_row(letter, binning))
        return found

    def _open(self, operator: str) -> Iterator[Mapping[str, Any]]:
        told = [row.asDict() for row in self._run.output(operator).select(*LETTER.names).collect()]
        closed = {row["letter"] for row in told if row["requeued"] is not None} | self._given
        return (row for row in told if row["requeued"] is None and row["letter"] not in closed)

    # ---- on their way, in a thread of each request

    def _give(self, requeue: Requeue, rows: Sequence[RequeuedRow], per_second: float | None) -> None:
        try:
            for share in _shares(rows, per_second):
                if requeue.stopped.is_set():
                    requeue.note(error="it was cancelled")
                    break
                ended = self._give_share(requeue.operator, share)
                if ended.error:
                    requeue.note(error=ended.error)
                    break
                requeue.note(len(share) - ended.left, ended.left)
                if per_second is not None:
                    requeue.stopped.wait(min(len(share) / per_second, threading.TIMEOUT_MAX))
        finally:
            so_far = requeue.note()
            with self._one_at_a_time:
                self._given.difference_update(row.letter for row in rows[so_far.rows + so_far.left :])
            requeue.end()

    def _give_share(self, operator: str, share: Sequence[RequeuedRow]) -> RequeueEnded:
        driver, name = self._run.driver_of(operator), f"requeue-{uuid.uuid4().hex[:12]}"
        if driver is None:
            late = f"{operator} has not begun: its region begins when those above have ended"
            return RequeueEnded(name, len(share), late)
        driver.post(RequeueRequested(name, operator, tuple(share)))
        with self._told:
            while name not in self._answers and not driver.is_closed:
                self._told.wait(0.25)
            return self._answers.pop(name, RequeueEnded(name, len(share), "the run is over"))

    def told(self, ended: RequeueEnded) -> None:
        """The driver has answered; called in its thread."""
        with self._told:
            self._answers[ended.requeue] = ended
            self._told.notify_all()

    def join(self) -> None:
        """Join all threads; to be called when the run has ended."""
        for thread in self._threads:
            thread.join()


def refuse_without_letters(operator: Operator) -> None:
    """Check that dead letters of an operator can be read.

    Raises:
        DataflowError: it keeps none, or its sink is one that only its user can read.
    """
    if isinstance(policy := operator.on_error, str):
        raise DataflowError(
            f"operator {operator.name!r} keeps no dead letters (on_error={policy!r}); declare it with "
            "on_error=memory() or parquet(path)"
        )
    check_readable(operator.name, policy)


def _shares(rows: Sequence[RequeuedRow], per_second: float | None) -> Iterator[Sequence[RequeuedRow]]:
    most = MOST_ROWS if per_second is None else max(1, min(MOST_ROWS, int(per_second / SHARES)))
    begin = size = 0
    for at, row in enumerate(rows):
        size += len(row.row)
        if at + 1 - begin == most or size >= MOST_BYTES:
            yield rows[begin : at + 1]
            begin, size = at + 1, 0
    if begin < len(rows):
        yield rows[begin:]


def _holds(where: Where, letter: Mapping[str, Any], hide: Collection[str]) -> bool:
    """Whether the row of a letter satisfies a condition; it is asked with what the letter tells beside.

    Raises:
        PlanError: the condition has raised; values of the columns ``hide`` are masked.
    """
    values: dict[str, Any] = unpacked_row(letter).to_pylist()[0]
    about = {f"_{name}": letter[name] for name in ("error", "version", "tries", "worker")}
    try:
        return bool(where(values | about))
    except Exception as error:
        words = f"where raised {masked_text(exception_text(error), values, hide)} on {row_as_json(values, hide)}"
        raise PlanError(f"{words}; the row has the columns {', '.join([*values, *about])}") from error
