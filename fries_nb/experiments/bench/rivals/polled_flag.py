"""The rival to keep in mind: a function in a ``mapInArrow`` that looks at a flag before every tuple.

It does W1, two partitions side by side, fed without end. The flag is a byte of a memory-mapped file. When a task sees a
new value it writes the time into its own slot of that file; the delay is the last task's time less that of setting the
flag. No state is carried over, nothing is shipped, and nothing keeps two operators apart.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from fries_nb.experiments.bench.maps import LastTen

TASKS = 2
ROWS = 10_000
STOP = 255
# Byte 0 is the flag; from byte 8 on, one slot for each task: the flag last seen, and when (monotonic, ns).
SLOT, SLOT_BYTES = "<qq", 16


def opened(path: str) -> mmap.mmap:
    """The flag's file, mapped."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def poll_and_score(path: str, seconds_a_tuple: float) -> Iterator[pa.RecordBatch]:
    """W1 on made-up payments until the flag says stop; notes each change of the flag as soon as it is seen."""
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("poll_and_score: got no task, expected to run inside one")
    flag, model, states, seen = opened(path), LastTen(), dict[int, list[float]](), -1
    amounts = [float(n % 97 + 1) for n in range(ROWS)]
    while seen != STOP:
        scores = []
        for number, amount in enumerate(amounts):
            if flag[0] != seen:
                seen = flag[0]
                struct.pack_into(SLOT, flag, 8 + SLOT_BYTES * task.partitionId(), seen, time.monotonic_ns())
            row = {"CUSTOMER_ID": number % 500, "TX_AMOUNT": amount}
            scores.append(model.process(row, states.setdefault(number % 500, []))["SCORE"])
            if seconds_a_tuple:
                time.sleep(seconds_a_tuple)
        yield pa.RecordBatch.from_pydict({"SCORE": scores})


def wait_for(flag: mmap.mmap, value: int) -> int:
    """Waits until every task has seen ``value`` and returns the time of the last, in nanoseconds."""
    while True:
        slots = [struct.unpack_from(SLOT, flag, 8 + SLOT_BYTES * task) for task in range(TASKS)]
        if all(seen == value for seen, _ in slots):
            return max(int(when) for _, when in slots)
        time.sleep(0.005)


def delays_ms(spark: SparkSession, changes: int, seconds_a_tuple: float = 0.0) -> list[float]:
    """Changes the flag ``changes`` times under load; for each, milliseconds until the last task had seen it."""
    with tempfile.NamedTemporaryFile(prefix="fries-flag-") as file:
        file.write(bytes(8) + struct.pack(SLOT, -1, 0) * TASKS)
        file.flush()
        path = file.name
        tasks = spark.range(0, TASKS, 1, TASKS)
        frame = tasks.mapInArrow(lambda _: poll_and_score(path, seconds_a_tuple), "SCORE double")
        job = threading.Thread(target=lambda: frame.write.mode("overwrite").format("noop").save())
        job.start()
        flag, found = opened(path), []
        wait_for(flag, 0)
        for change in range(1, changes + 1):
            time.sleep(0.3 + random.random() / 10)
            asked, flag[0] = time.monotonic_ns(), change
            found.append((wait_for(flag, change) - asked) / 1e6)
        flag[0] = STOP
        job.join()
    return found


def main() -> None:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seconds-a-tuple", type=float, default=0.0)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(f"local[{TASKS}]").config("spark.ui.enabled", "false").getOrCreate()
    print(json.dumps({"delays_ms": delays_ms(spark, given.changes, given.seconds_a_tuple)}))
    spark.stop()


if __name__ == "__main__":
    main()
