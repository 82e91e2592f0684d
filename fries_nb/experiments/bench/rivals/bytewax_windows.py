"""bytewax 0.21 counting payments of each terminal and minute, on the clock of the payments.

Started once for each process as ``python -m fries_nb.experiments.bench.rivals.bytewax_windows SOURCE TARGET I
ADDRESSES``; what is read, written and printed is as in ``bytewax_w1``. Only the used columns are read, and an item is a
tuple of them.

It is written in two forms. ``--windows own`` takes those that come with bytewax; they look at every key whenever
something has come, so they are slower the more keys there are. ``--windows by-hand`` is the harder rival, which does
less: a key has the window of its last row, which is given out when a row of a later one comes, or at the end. So a
result waits for the next payment of its terminal, and each terminal's payments must come in order.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

from fries_nb.experiments.bench.rivals.bytewax_w1 import Files, Form, Item, Payments

READ = ["TERMINAL_ID", "TX_DATETIME", "TX_AMOUNT"]
WRITTEN = ["TERMINAL_ID", "TIME", "COUNT", "AMOUNT"]
MINUTE_US = 60_000_000
START = datetime(1970, 1, 1, tzinfo=UTC)


def payments(batch: pa.RecordBatch) -> list[Item]:
    """A tuple of the used columns for each row, with the time as a number of microseconds."""
    columns = [batch.column(name) for name in READ]
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
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
    )
    return op.map("named", windows.down, lambda one: (one[0], (int(one[0]), one[1][0] * MINUTE_US, *one[1][1])))


def windows_by_hand(keyed: Any) -> Any:
    """The same by hand; see the module."""
    return op.stateful_batch("minutes", keyed, lambda _: Minutes())


FORMS = {"own": own_windows, "by-hand": windows_by_hand}


def batch_of(items: list[Item]) -> pa.RecordBatch:
    """A batch of the results."""
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*items, strict=True)], names=WRITTEN)


FORM = Form(READ, payments, lambda item: str(item[0]), lambda state, item: (state or [], item), batch_of)


def dataflow(source: Path, target: Path, windows: str) -> Any:
    """The bytewax dataflow: source, key by terminal, windows, Parquet."""
    flow = Dataflow("windows")
    keyed = op.key_on("by_terminal", op.input("payments", flow, Payments(source, FORM)), FORM.customer)
    op.output("counted", FORMS[windows](keyed), Files(target, FORM))
    return flow


def main() -> None:
    """Run one process of the dataflow; print its times as lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("process", type=int)
    parser.add_argument("addresses", help="host:port of every process, with ';' between")
    parser.add_argument("--windows", choices=list(FORMS), default="by-hand")
    given = parser.parse_args()
    addresses = given.addresses.split(";")
    apart = len(addresses) > 1
    cli_main(
        dataflow(given.source, given.target, given.windows),
        process_id=given.process if apart else None,
        addresses=addresses if apart else None,
    )


if __name__ == "__main__":
    main()
