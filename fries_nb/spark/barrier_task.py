"""A barrier task of Spark: the settings of its process, and its host, from the first to the last message."""

from __future__ import annotations

import gc
import os
import sys

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.errors import exception_text
from fries_nb.host.host import Host
from fries_nb.host.host_telemetry import printing
from fries_nb.host.region_spec import HostReport, RegionSpec

SWITCH_INTERVAL_S = 0.0005
"""Interval of thread switches in seconds; with Python's default, 5 ms, an FCM would wait for the interpreter lock."""
GARBAGE = 50_000
"""Number of allocations before a garbage collection; rows have no cycles (the default, 700, costs 0.1 us a tuple)."""


def serve(region: RegionSpec, host: int, interface: str) -> bytes:
    """Run a host until it ends. Never raises.

    Args:
        region: the specification of the region.
        host: index of the host.
        interface: name or address of this machine at which other hosts reach it.

    Returns:
        Its ``HostReport`` as msgpack.
    """
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(GARBAGE, *before[1][1:])
    try:
        warm_up()
        with printing() as printer:
            return msgspec.msgpack.encode(Host(region, host, interface, printer).run())
    except Exception as error:  # noqa: BLE001 - Spark would retry; the error is part of the report
        return msgspec.msgpack.encode(HostReport(host, os.getpid(), "failed", exception_text(error)))
    finally:
        sys.setswitchinterval(before[0])
        gc.set_threshold(*before[1])
        gc.unfreeze()


def warm_up() -> None:
    """Trigger lazy imports (pandas by Arrow, Parquet), so that no tuple waits for them.

    Where Spark forks hosts from ``daemon`` this is done once, before the fork.
    """
    table = pa.table({"warm": [0]})
    with pq.ParquetWriter(pa.BufferOutputStream(), table.schema) as writer:
        writer.write_table(table)
