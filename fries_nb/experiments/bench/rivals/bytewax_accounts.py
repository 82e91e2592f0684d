"""bytewax 0.21 numbering the rows of accounts (``workloads.accounts``), stopped and resumed with more processes.

Started once for each process as ``python -m fries_nb.experiments.bench.rivals.bytewax_accounts DIRECTORY RUN I
ADDRESSES RATE ACCOUNTS STATE_BYTES``. The source gives each account a row at once, then keeps its rate. A run ends
when the file ``stop-RUN`` appears: the source is at its end, so bytewax makes a last snapshot, and nothing is done
twice after it. (Killed, it would repeat what came after the last one.) Each worker prints ``[value, nth, time]``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig

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


def dataflow(load: Load, state_bytes: int) -> Any:
    """The bytewax dataflow: rows, keyed by account, numbered, printed."""

    def booked(state: tuple[int, bytes] | None, value: int) -> tuple[tuple[int, bytes], tuple[int, int]]:
        count, kept = state or (0, bytes(state_bytes))
        return (count + 1, kept), (value, count + 1)

    flow = Dataflow("accounts")
    keyed = op.key_on("by_account", op.input("rows", flow, PacedSource(load)), lambda value: str(value % load.accounts))
    op.output("out", op.stateful_map("Book", keyed, booked), RowPrinter())
    return flow


def main() -> None:
    """Run one process of the dataflow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="with the recovery partitions, and stop-RUN to end")
    parser.add_argument("run")
    parser.add_argument("process", type=int)
    parser.add_argument("addresses", help="host:port of every process, with ';' between")
    parser.add_argument("rate", type=float)
    parser.add_argument("accounts", type=int)
    parser.add_argument("state_bytes", type=int)
    given = parser.parse_args()
    addresses = given.addresses.split(";")
    apart = len(addresses) > 1
    cli_main(
        dataflow(Load(given.rate, given.accounts, given.directory / f"stop-{given.run}"), given.state_bytes),
        process_id=given.process if apart else None,
        addresses=addresses if apart else None,
        epoch_interval=EPOCH,
        recovery_config=RecoveryConfig(str(given.directory / "recovery")),
    )


if __name__ == "__main__":
    main()
