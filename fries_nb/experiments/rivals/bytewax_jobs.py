"""bytewax 0.21 doing three jobs of the benchmarks, each as its own users would write it.

Started once for each process as ``python -m fries_nb.experiments.rivals.bytewax_jobs JOB I ADDRESSES ...``.

``w1`` reads a share of the row groups, scores by customer, and writes Parquet. Each process prints when it read its
first batch and when it closed its file, on a clock that the processes share; the rate is rows over the time from the
earliest of the former to the latest of the latter, so start-up time does not count. ``--form used`` is the harder
rival: it reads three columns, and an item is a tuple of their values. ``--form all`` makes a dict of every column for
each row, as code does that does not know which of them the function reads.

``windows`` counts payments of each terminal and minute, on the clock of the payments; it reads, writes and prints as
``w1`` does. ``--form own`` takes the windows that come with bytewax; they look at every key whenever something has
come, so they are slower the more keys there are. ``--form by-hand`` is the harder rival, which does less: a key has the
window of its last row, which is given out when a row of a later one comes, or at the end. So a result waits for the
next payment of its terminal, and each terminal's payments must come in order.

``accounts`` numbers the rows of accounts (``workloads.accounts``), and is stopped and resumed with more processes. The
source gives each account a row at once, then keeps its rate. A run ends when the file ``stop-RUN`` appears: the source
is at its end, so bytewax makes a last snapshot, and nothing is done twice after it. (Killed, it would repeat what came
after the last one.) Each worker prints ``[value, nth, time]``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, FixedPartitionedSource, StatefulSourcePartition, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig

from fries_nb.experiments.bench.maps import LastTen, score_of

Item = Any
Amounts = list[float]
BATCH = 1_000
WRITTEN_AT_ONCE = 65_536
USED = ["TRANSACTION_ID", "CUSTOMER_ID", "TX_AMOUNT"]
SCORED = [*USED, "SCORE"]


@dataclass(frozen=True)
class Form:
    """How a payment is represented as a bytewax item."""

    columns: list[str] | None  # the columns to read; ``None`` for all of them
    items: Callable[[pa.RecordBatch], list[Item]]  # the payments of a batch as items
    customer: Callable[[Item], str]  # the key of an item
    # from the state of the key (``None`` at first) and an item to the new state and the scored item
    score: Callable[[Amounts | None, Item], tuple[Amounts, Item]]
    batch: Callable[[list[Item]], pa.RecordBatch]  # scored items as a batch for Parquet


def dicts(batch: pa.RecordBatch) -> list[Item]:
    """A dict for each row, with all columns; a time is taken as its integer."""
    arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in batch.columns]
    columns = [array.to_pylist() for array in arrays]
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def score_dict(state: Amounts | None, row: Item) -> tuple[Amounts, Item]:
    """Score a row with the class that both sides of the comparison run."""
    model = LastTen()
    state = model.initial_state() if state is None else state
    return state, model.process(row, state)


def tuples(batch: pa.RecordBatch) -> list[Item]:
    """A tuple of the used columns for each row."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def score_tuple(state: Amounts | None, payment: Item) -> tuple[Amounts, Item]:
    """Score a tuple with the same arithmetic."""
    state = [] if state is None else state
    number, customer, amount = payment
    return state, (number, customer, amount, score_of(amount, state))


def batch_of_tuples(scored: list[Item]) -> pa.RecordBatch:
    """A batch whose columns are the positions of the tuples."""
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*scored, strict=True)], names=SCORED)


ITEM_FORMS = {
    "used": Form(USED, tuples, lambda payment: str(payment[1]), score_tuple, batch_of_tuples),
    "all": Form(None, dicts, lambda row: str(row["CUSTOMER_ID"]), score_dict, pa.RecordBatch.from_pylist),
}


def note(event: str) -> None:
    """Print the time of an event, in nanoseconds of the machine's monotonic clock, which all processes share."""
    print(json.dumps({event: time.monotonic_ns()}), flush=True)


@cache
def begin() -> None:
    """Note the time at which the first source of the process reads."""
    note("first_ns")


Items = Callable[[pa.RecordBatch], list[Item]]


def shared_batches(
    source: Path, share: int, shares: int, columns: Sequence[str] | None, items: Items
) -> Iterator[list[Item]]:
    """The rows of every ``shares``-th row group from ``share`` on, as items, in lists of ``BATCH``."""
    begin()
    reader = pq.ParquetFile(source)
    groups = list(range(share, reader.num_row_groups, shares))
    yield from map(items, reader.iter_batches(BATCH, row_groups=groups, columns=columns))


class Share(StatelessSourcePartition):
    """One worker's share of the rows."""

    def __init__(self, batches: Iterator[list[Item]]) -> None:
        self._batches = batches

    def next_batch(self) -> list[Item]:
        """The next items; bytewax takes StopIteration for the end."""
        return next(self._batches)


class ParquetRows(DynamicSource):
    """The rows of a Parquet file, a share of its row groups for each worker; some columns, or all for ``None``."""

    def __init__(self, source: Path, columns: Sequence[str] | None, items: Items) -> None:
        self._source, self._columns, self._items = source, columns, items

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Share:
        """This worker's share."""
        return Share(shared_batches(self._source, worker_index, worker_count, self._columns, self._items))


class Written(StatelessSinkPartition):
    """A Parquet file of items."""

    def __init__(self, path: Path, batch: Callable[[list[Item]], pa.RecordBatch]) -> None:
        self._path, self._batch, self._items = path, batch, list[Item]()
        self._writer: pq.ParquetWriter | None = None

    def write_batch(self, items: list[Item]) -> None:
        """Take items; write them as soon as they fill a row group."""
        self._items += items
        if len(self._items) >= WRITTEN_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        if self._items:
            self._flush()
        if self._writer is not None:
            self._writer.close()
        note("last_ns")

    def _flush(self) -> None:
        batch = self._batch(self._items)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, batch.schema)
        self._writer.write_batch(batch)
        self._items = []


class ParquetParts(DynamicSink):
    """A directory with one file for each worker; ``batch`` makes one of items."""

    def __init__(self, directory: Path, batch: Callable[[list[Item]], pa.RecordBatch]) -> None:
        self._directory, self._batch = directory, batch

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Written:
        """This worker's file."""
        return Written(self._directory / f"{worker_index}.parquet", self._batch)


def of_keyed(batch: Callable[[list[Item]], pa.RecordBatch]) -> Callable[[list[tuple[str, Item]]], pa.RecordBatch]:
    """The same for items with their keys, as stateful steps give them out."""
    return lambda items: batch([item for _, item in items])


def w1_flow(source: Path, target: Path, form: Form) -> Any:
    """W1: source, key by customer, stateful score, Parquet."""
    flow = Dataflow("w1")
    payments = op.input("payments", flow, ParquetRows(source, form.columns, form.items))
    keyed = op.key_on("by_customer", payments, form.customer)
    scored = op.stateful_map("FD", keyed, form.score)
    op.output("scored", scored, ParquetParts(target, of_keyed(form.batch)))
    return flow


TIMED_COLUMNS = ["TERMINAL_ID", "TX_DATETIME", "TX_AMOUNT"]
COUNTED = ["TERMINAL_ID", "TIME", "COUNT", "AMOUNT"]
MINUTE_US = 60_000_000
START = datetime(1970, 1, 1, tzinfo=UTC)


def timed_tuples(batch: pa.RecordBatch) -> list[Item]:
    """A tuple of the used columns for each row, with the time as a number of microseconds."""
    columns = [batch.column(name) for name in TIMED_COLUMNS]
    columns[1] = columns[1].cast(pa.int64())
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


class Minutes(StatefulBatchLogic[Item, Item, Any]):
    """The window of a terminal's last payment."""

    def __init__(self) -> None:
        self._end, self._count, self._sum = 0, 0, 0.0

    def on_batch(self, values: list[Item]) -> tuple[list[Item], bool]:
        """Take payments; gives out the windows that they are behind."""
        given = []
        for terminal, at, amount in values:
            end = (at // MINUTE_US + 1) * MINUTE_US
            if end != self._end:
                if self._count:
                    given.append((terminal, self._end, self._count, self._sum))
                self._end, self._count, self._sum = end, 0, 0.0
            self._count += 1
            self._sum += amount
            self._terminal = terminal
        return given, False

    def on_eof(self) -> tuple[list[Item], bool]:
        """Give out the last window."""
        return [(self._terminal, self._end, self._count, self._sum)], True

    def snapshot(self) -> Any:
        """The state, which is not kept."""
        return None


def own_windows(keyed: Any) -> Any:
    """The windows that come with bytewax, each with number and sum."""
    windows = win.fold_window(
        "minutes",
        keyed,
        win.EventClock(lambda item: START + timedelta(microseconds=item[1]), timedelta(0)),
        win.TumblingWindower(timedelta(seconds=60), START),
        lambda: (0, 0.0),
        lambda state, item: (state[0] + 1, state[1] + item[2]),
        lambda left, right: (left[0] + right[0], left[1] + right[1]),
    )
    return op.map("named", windows.down, _named)


def _named(result: Any) -> Any:
    terminal, (minute, totals) = result
    return terminal, (int(terminal), minute * MINUTE_US, *totals)


def windows_by_hand(keyed: Any) -> Any:
    """The same by ``Minutes``."""
    return op.stateful_batch("minutes", keyed, lambda _: Minutes())


WINDOW_FORMS = {"own": own_windows, "by-hand": windows_by_hand}


def batch_of(items: list[Item]) -> pa.RecordBatch:
    """A batch of the results."""
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*items, strict=True)], names=COUNTED)


def windows_flow(source: Path, target: Path, windows: str) -> Any:
    """Payments of each terminal and minute: source, key by terminal, windows, Parquet."""
    flow = Dataflow("windows")
    payments = op.input("payments", flow, ParquetRows(source, TIMED_COLUMNS, timed_tuples))
    keyed = op.key_on("by_terminal", payments, lambda item: str(item[0]))
    op.output("counted", WINDOW_FORMS[windows](keyed), ParquetParts(target, of_keyed(batch_of)))
    return flow


EPOCH = timedelta(seconds=1)
AT_MOST, PAUSE = 1_000, timedelta(milliseconds=1)
Position = tuple[int, int]


@dataclass(frozen=True)
class Load:
    """The rows: ``accounts`` at once, then ``rate`` a second, until the file ``stop`` is there."""

    rate: float
    accounts: int
    stop: Path


class PacedRows(StatefulSourcePartition[int, Position]):
    """The values from a position on, when they are due."""

    def __init__(self, load: Load, position: Position | None) -> None:
        self._load = load
        self._next, self._began_ns = position or (0, time.time_ns())

    def next_batch(self) -> list[int]:
        """The values that are due; bytewax takes StopIteration for the end."""
        if self._load.stop.exists():
            raise StopIteration
        due = self._load.accounts + int((time.time_ns() - self._began_ns) * self._load.rate / 1e9)
        first, self._next = self._next, min(due, self._next + AT_MOST)
        return list(range(first, self._next))

    def next_awake(self) -> datetime:
        """When to ask again."""
        return datetime.now(UTC) + PAUSE

    def snapshot(self) -> Position:
        """The next value, and the time from which values are counted."""
        return self._next, self._began_ns


class PacedSource(FixedPartitionedSource[int, Position]):
    """One partition, as our source has one worker."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def list_parts(self) -> list[str]:
        """Its name."""
        return ["rows"]

    def build_part(self, step_id: str, for_part: str, resume_state: Position | None) -> PacedRows:
        """Begin, or resume."""
        return PacedRows(self._load, resume_state)


class RowLines(StatelessSinkPartition[Any]):
    """Prints what comes, with the time."""

    def write_batch(self, items: list[Any]) -> None:
        """Print the rows of a batch in one line each, in one go."""
        now_ns = time.time_ns()
        print("\n".join(json.dumps([*row, now_ns]) for _, row in items), flush=True)


class RowPrinter(DynamicSink[Any]):
    """A printing part for each worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> RowLines:
        """The part."""
        return RowLines()


def accounts_flow(load: Load, state_bytes: int) -> Any:
    """Accounts: rows, keyed by account, numbered, printed."""

    def booked(state: tuple[int, bytes] | None, value: int) -> tuple[tuple[int, bytes], tuple[int, int]]:
        count, kept = state or (0, bytes(state_bytes))
        return (count + 1, kept), (value, count + 1)

    flow = Dataflow("accounts")
    keyed = op.key_on("by_account", op.input("rows", flow, PacedSource(load)), lambda value: str(value % load.accounts))
    op.output("out", op.stateful_map("Book", keyed, booked), RowPrinter())
    return flow


def _flow_of(given: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The dataflow of a job, and the options of bytewax that it needs."""
    if given.job == "w1":
        return w1_flow(given.source, given.target, ITEM_FORMS[given.form]), {}
    if given.job == "windows":
        return windows_flow(given.source, given.target, given.form), {}
    load = Load(given.rate, given.accounts, given.directory / f"stop-{given.run}")
    recovery = RecoveryConfig(str(given.directory / "recovery"))
    return accounts_flow(load, given.state_bytes), {"epoch_interval": EPOCH, "recovery_config": recovery}


def main() -> None:
    """Run one process of a job; ``w1`` and ``windows`` print their times as lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    jobs = parser.add_subparsers(dest="job", required=True)
    for name, forms in (("w1", ITEM_FORMS), ("windows", WINDOW_FORMS), ("accounts", None)):
        job = jobs.add_parser(name)
        job.add_argument("process", type=int)
        job.add_argument("addresses", help="host:port of every process, with ';' between")
        if forms is not None:
            job.add_argument("source", type=Path)
            job.add_argument("target", type=Path)
            job.add_argument("--form", choices=[*forms], required=True)
    job.add_argument("directory", type=Path, help="with the recovery partitions, and stop-RUN to end")
    job.add_argument("run")
    job.add_argument("rate", type=float)
    job.add_argument("accounts", type=int)
    job.add_argument("state_bytes", type=int)
    given = parser.parse_args()
    flow, options = _flow_of(given)
    addresses = given.addresses.split(";")
    if len(addresses) > 1:
        options |= {"process_id": given.process, "addresses": addresses}
    cli_main(flow, **options)


if __name__ == "__main__":
    main()
