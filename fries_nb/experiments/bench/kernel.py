"""A Jupyter kernel observed by a benchmark: runs cells, receives what they publish, and reads its CPU time.

The kernel is a separate process, and this one takes the place of the Jupyter server: it receives all messages of
widgets. So the full cost of a display to the kernel is measured; the cost to the browser is not.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import TYPE_CHECKING, Any

from fries_nb.experiments.bench.results import BenchError

if TYPE_CHECKING:
    import psutil
    from jupyter_client.blocking.client import BlockingKernelClient

PATIENCE_S = 120.0
WIDGET = "application/vnd.jupyter.widget-view+json"

# As Jupyter's protocol has it: a dictionary with "msg_type", "parent_header" and "content" among its keys.
Message = dict[str, Any]


class Kernel:
    """A running kernel, with a connected client."""

    def __init__(self, client: BlockingKernelClient) -> None:
        import psutil

        self._client = client
        self._process = psutil.Process(int(self.run("import os; print(os.getpid())")))

    def begin(self, source: str) -> str:
        """Start a cell; returns its id at once."""
        return str(self._client.execute(source, store_history=False))

    def run(self, source: str) -> str:
        """Run a cell to its end; returns what it printed.

        Raises:
            BenchError: the cell failed, or takes longer than ``PATIENCE_S``.
        """
        cell, printed = self.begin(source), ""
        for message in self.heard(PATIENCE_S):
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return printed
        raise BenchError(f"a cell of a benchmark takes longer than {PATIENCE_S:g} s: {source.strip()[-60:]!r}")

    def heard(self, seconds: float) -> Iterator[Message]:
        """Messages that the kernel publishes within this many seconds, as they arrive.

        Raises:
            BenchError: a cell failed.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                message: Message = self._client.get_iopub_msg(timeout=left)
            except Empty:
                return
            if message["msg_type"] == "error":
                raise BenchError(f"a cell failed: {message['content']['ename']}: {message['content']['evalue']}")
            yield message

    def cpu_s(self) -> float:
        """Processor time of the kernel's process in seconds, without Spark's Java and the hosts."""
        return _cpu_s(self._process)

    def cpu_of_all_s(self) -> float:
        """Processor time of the kernel and all processes below it in seconds, including Spark's Java and the hosts."""
        return sum(_cpu_s(process) for process in [self._process, *self._process.children(recursive=True)])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def kernel() -> Iterator[Kernel]:
    """A kernel with this interpreter, which ends with the block."""
    from jupyter_client.manager import start_new_kernel

    # What goes wrong in a cell comes as a message; the rest is Jupyter's and Java's warnings.
    running, client = start_new_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        running.shutdown_kernel()


def first_plotted(messages: Iterable[Message]) -> bool:
    """Consume messages up to the first one after which a browser has a view and a point; false if none does.

    Only widgets created within these messages count, since messages of an earlier cell may still arrive.

    >>> made = {"msg_type": "comm_open", "content": {"comm_id": "p", "data": {"state": {"window": "{}"}}}}
    >>> shown = {"msg_type": "execute_result", "content": {"data": {WIDGET: {"model_id": "p"}}}}
    >>> points = {"state": {"window": '{"points": {"at": [0.5]}}'}}
    >>> point, late = ({"msg_type": "comm_msg", "content": {"comm_id": name, "data": points}} for name in ("p", "old"))
    >>> first_plotted([made, shown, point]), first_plotted([made, late, shown])
    (True, False)
    """
    made, viewed, drawn = set[str](), False, False
    for message in messages:
        kind, content = message["msg_type"], message["content"]
        if kind in ("execute_result", "display_data"):
            viewed = viewed or WIDGET in content["data"]
        elif kind == "comm_open":
            made.add(content["comm_id"])
        if kind in ("comm_open", "comm_msg") and content["comm_id"] in made:
            state = content["data"].get("state", {})
            drawn = drawn or bool(json.loads(state.get("window", "{}")).get("points", {}).get("at"))
        if viewed and drawn:
            return True
    return False
