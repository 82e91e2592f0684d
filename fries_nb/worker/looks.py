"""Looks into a worker: copies of the states of some keys, and of the newest rows.

States are copied between two tuples, in pieces of a millisecond at most.

Nothing is copied unless it is asked for. A key's state is pickled whole, between two tuples, so it is as some row has
left it; two keys of one answer may be a few rows apart. What the user's transformation has still to convert is
converted, as it would be when the key's next row comes; while versions with several forms of state run side by side,
all are shown in the form in which a checkpoint has them. Where keys end, that is told with their states.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.operators.pickled_states import loads
>>> from fries_nb.protocol.messages import WorkerId
>>> instance = Instance(WorkerId("FD", 0), Operator("FD", key=("c",)), dict, audit=False)
>>> for number, key in enumerate(("a", "b", "c")):
...     instance.state.touch(key)["count"] = number
>>> look = StateLook(LookAtState(1, most=2), instance, clock=lambda: 0)
>>> part = look.advance()
>>> part.total, part.is_last, [loads(one, {}) for one in part.pieces]
(3, True, [('c', {'count': 2}), ('b', {'count': 1})])

Looks at the rows of a worker: the newest ones that an operator has taken, and those that it has made of them. Nothing
is kept for that beyond what rehearsals need, and the last results, by reference: rows are copied when they are
asked for. Between the functions of a chain rows are no batches, and only a few of them are kept; what an operator
inside has made is what the next one has taken.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import exception_text
from fries_nb.operators.arms import Arm
from fries_nb.operators.dry_run import PassedRows, Recent, newest_rows, passed
from fries_nb.operators.instance import FAILURES, Instance
from fries_nb.operators.pickled_states import Pickles
from fries_nb.progress.agenda import EndAgenda
from fries_nb.protocol.messages import (
    ArmSeen,
    ArmsSeen,
    LookAtArms,
    LookAtRows,
    LookAtState,
    RowsSeen,
    StateSeen,
    WorkerId,
)
from fries_nb.worker.worker import Worker

PIECE_NS = 800_000
"""Nanoseconds of a piece, behind which tuples have their turn; the last key of a piece may take longer."""
PART_BYTES = 1 << 18
"""About how many bytes a part of an answer has at most."""
SAMPLED = 64
"""Number of keys by which the size of all is estimated."""
BETWEEN_LOOKS = 8
"""Number of keys between two looks at the clock."""


class StateLook:
    """A question for the state of an operator's worker, as far as it has been answered.

    Args:
        order: the question.
        instance: the operator's worker.
        clock: returns nanoseconds.
    """

    def __init__(self, order: LookAtState, instance: Instance, clock: Callable[[], int]) -> None:
        self.instance = instance
        self._order = order
        self._clock = clock
        self._left: list[Any] | None = None
        self._asked = self._copied = self._sent_bytes = self._longest_ns = 0
        self._pickles = Pickles()

    def advance(self) -> StateSeen | None:
        """Go on for a piece; returns the next part of the answer once it is full, or the last one."""
        try:
            with self.instance.bound():
                return self._piece()
        except FAILURES as error:
            name = self.instance.worker.operator
            return self._part(True, f"the state of {name} cannot be copied: {exception_text(error)}")

    def paused(self, ns: int) -> None:
        """So long tuples have waited for a piece, and until it was sent."""
        self._longest_ns = max(self._longest_ns, ns)

    def _piece(self) -> StateSeen | None:
        over_ns = self._clock() + PIECE_NS
        if self._left is None:
            self._left = self._chosen()
            self._asked = len(self._left)
        left, state, agenda = self._left, self.instance.state, self.instance.agenda
        ends = agenda if isinstance(agenda, EndAgenda) else None
        while left:
            key = left.pop()
            if (found := state.peek(key)) is not None:
                self._pickles.add((key, found) if ends is None else (key, found, ends.end_of(key)))
                self._copied += 1
                if refused := self._too_large():
                    return self._part(True, refused)
            if len(self._pickles) >= PART_BYTES or (not len(left) % BETWEEN_LOOKS and self._clock() >= over_ns):
                break
        is_full = not left or len(self._pickles) >= PART_BYTES
        return self._part(not left) if is_full else None

    def _chosen(self) -> list[Any]:
        """The keys, the last one first."""
        order, state = self._order, self.instance.state
        if order.keys:
            return [canonical_key(key) for key in reversed(pickle.loads(order.keys))]
        if order.most >= len(state) and not order.spread:
            return state.keys()  # a second pass over very many keys would be a pause of its own
        keys = state.spread(order.most) if order.spread else state.newest(order.most)
        keys.reverse()
        return keys

    def _too_large(self) -> str:
        """Why no more is copied, by what was or, once some keys are known, by what all would have; else empty."""
        size, limit = self._sent_bytes + len(self._pickles), self._order.limit
        whole = size * self._asked // self._copied
        if not limit or (whole if self._copied == SAMPLED else size) < limit:
            return ""
        told = f"{self._asked:,} keys of {self.instance.worker} have about {whole / 1e6:,.0f} MB"
        return f"{told}, at most {limit / 1e6:,.0f}"

    def _part(self, is_last: bool, error: str = "") -> StateSeen:
        taken, self._pickles = self._pickles, Pickles()
        self._sent_bytes += len(taken)
        state = self.instance.state
        return StateSeen(
            self._order.number, self.instance.worker, len(state), taken.content, tuple(taken.ends), is_last, error,
            self._longest_ns, state.on_disk,
        )  # fmt: skip


def arms_seen(order: LookAtArms, worker: Worker, member: WorkerId) -> ArmsSeen:
    """What both arms of the last canary have done at an operator's worker. Never raises: an error is part of it."""
    arms = next(one.arms for one in worker.instances if one.worker == member)
    if arms is None or order.change not in ("", arms.change):
        return ArmsSeen(order.number, member)
    try:
        arms.consider()
        old, new = _arm_seen(arms.old, order.samples), _arm_seen(arms.new, order.samples)
    except Exception as error:  # noqa: BLE001 - pickling a user's value may raise anything
        words = f"the rows of {member.operator} cannot be copied: {exception_text(error)}"
        return ArmsSeen(order.number, member, error=words)
    return ArmsSeen(order.number, member, arms.change, old, new, worker.instances[-1].worker.operator)


def _arm_seen(arm: Arm, samples: bool) -> ArmSeen:
    sampled = pickle.dumps(arm.made.take()) if samples else b""
    return ArmSeen(arm.taken, arm.failed, tuple(arm.timed_ns), sampled)


NONE = pa.RecordBatch.from_pylist([])
"""In place of a row that is not meant."""
Kept = list[pa.RecordBatch | dict[str, Any]]
"""Rows, the newest first: batches with hidden columns, and rows that are no batches."""


def rows_seen(order: LookAtRows, worker: Worker, member: WorkerId) -> RowsSeen:
    """The answer of an operator's worker. Never raises: an error is part of it."""
    position = next(place for place, one in enumerate(worker.instances) if one.worker == member)
    instance = worker.instances[position]
    try:
        came, went = kept_rows(worker, position, order)
        if order.identity is not None:
            came = [_derived(rows, order.identity) for rows in came]
            went = [(branch, _derived(rows, order.identity)) for branch, rows in went]
        sides = pickle.dumps(came), pickle.dumps([rows for _, rows in went])
    except Exception as error:  # noqa: BLE001 - pickling a user's value may raise anything
        words = f"the rows of {member.operator} cannot be copied: {exception_text(error)}"
        return RowsSeen(order.number, member, error=words)
    branches = tuple(branch for branch, _ in went) if instance.operator.branches > 1 and order.branch is None else ()
    version = instance.applied[-1] if instance.applied else ""
    return RowsSeen(order.number, member, *sides, version, branches=branches)


def _derived(rows: Any, identity: int) -> Any:
    """Those of a batch, or of a single row, that are or derive from a source tuple; a batch without rows if none is."""
    if isinstance(rows, pa.RecordBatch):
        if TRANSACTION not in rows.schema.names:
            return rows.slice(0, 0)
        return rows.filter(pc.equal(rows.column(TRANSACTION), identity))
    return rows if rows.get(TRANSACTION) == identity else NONE


def kept_rows(worker: Worker, position: int, order: LookAtRows) -> tuple[Kept, list[tuple[int, Any]]]:
    """Copies of rows that the operator at this position of the chain has taken, and of those that it has made.

    The latter come with the output on which they went out; some of each output are among them.
    """
    instance, most = worker.instances[position], order.most
    if order.before:
        return [], [(0, rows) for rows in _given_before(worker, instance.worker, order)]
    has_input = not instance.operator.traits.is_source and order.side != "out" and order.branch is None
    has_output = not instance.operator.traits.is_sink and order.side != "in"
    came = _taken(worker, position, most) if has_input else []
    return came, _made(worker, position, order) if has_output else []


def _taken(worker: Worker, position: int, most: int) -> Kept:
    """The newest rows that the operator at this position of the chain has taken."""
    if not position:
        return list(worker.executor.newest(0, most))
    batches = worker.executor.newest(position, most)
    return list(batches) or [recent.with_hidden() for recent in worker.executor.samples(position)[:most]]


def _made(worker: Worker, position: int, order: LookAtRows) -> list[tuple[int, Any]]:
    """The newest rows that it has made."""
    if position + 1 < len(worker.instances):
        return [(0, rows) for rows in _taken(worker, position + 1, order.most)]
    outputs = worker.newest_output
    wanted = sorted(outputs) if order.branch is None else [one for one in [order.branch] if one in outputs]
    each = -(-order.most // max(1, len(wanted)))
    return [(branch, rows) for branch in wanted for rows in _copied(outputs[branch], each)]


def _copied(batches: Iterable[pa.RecordBatch], most: int) -> list[pa.RecordBatch]:
    return newest_rows([PassedRows(batch, passed(batch.num_rows, (), most)) for batch in batches], most)


def _given_before(worker: Worker, member: WorkerId, order: LookAtRows) -> Kept:
    """The newest rows that it gave before it switched to a change, if it has switched to no other one since."""
    change, given = worker.given_before.get(member, ("", ()))
    if change != order.before:
        return []
    batches = _copied((one for one in given if isinstance(one, pa.RecordBatch)), order.most)
    return [*batches] or [one.with_hidden() for one in given if isinstance(one, Recent)]
