"""A worker that is paused in front of a tuple: fixes of its operator, and the rows that it has sent."""

from __future__ import annotations

from typing import Any

import cloudpickle
from worker_bench import Bench, change

from fries_nb.dataflow import Update
from fries_nb.operators.dry_run import DryRun, prepare
from fries_nb.protocol.messages import Data, Fcm, Prepare
from fries_nb.worker.outbox import SendFrame


def fix(bench: Bench, number: int, function: Any, scope: str = "M") -> None:
    """A change of M, all the way, without a rehearsal."""
    bench.direct("M", Prepare(f"u{number}", cloudpickle.dumps(Update(function)), rehearse=False))
    for order in bench.take():
        if isinstance(order, DryRun):
            bench.worker.handle(prepare(order))
    bench.direct("M", Fcm(change(number, "M", scope=scope)))
    bench.run()


def numbers(bench: Bench) -> list[tuple[int, int, int]]:
    """(n, v, count) of the rows that went to Z."""
    return [(row["n"], row["v"], row["count"]) for row in rows_sent(bench)]


def rows_sent(bench: Bench) -> list[dict[str, Any]]:
    """The rows of all data frames that the worker has sent."""
    bench.take()
    frames = [one.frame for one in bench.said if isinstance(one, SendFrame)]
    return [row for one in frames if isinstance(one, Data) for row in one.batch.to_pylist()]
