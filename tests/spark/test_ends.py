"""A driver that ends, in whatever way, takes its hosts along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from patience import PATIENCE_S, until

SCRIPT = textwrap.dedent(
    """
    import threading
    import fries_nb as fn

    flow = fn.Dataflow("ends")
    flow.source("numbers", fn.rate(500)).map("A", lambda row: row | {"x": 1}).sink("out", fn.memory())
    run = flow.run(hosts=2, workers=2)
    pause = threading.Event()
    while not run.metrics().operators["out"].processed:
        assert run.state != "failed", run.error
        pause.wait(0.05)
    print(*run.host_processes.values(), run.scratch, flush=True)
    run.wait()
    """
)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT], ids=lambda sign: sign.name)
def test_hosts_end_with_their_driver(sign: signal.Signals, tmp_path: Path) -> None:
    """A restarted kernel, and Ctrl-C, which reaches the whole group of processes."""
    script = tmp_path / "ends.py"
    script.write_text(SCRIPT)
    driver = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert driver.stdout is not None
    assert driver.stderr is not None
    said = driver.stdout.readline().split()
    assert len(said) == 3, driver.stderr.read()
    hosts = [int(pid) for pid in said[:2]]
    assert all(os.path.exists(f"/proc/{pid}") for pid in hosts)
    if sign is signal.SIGINT:
        os.killpg(driver.pid, sign)
    else:
        driver.send_signal(sign)
    driver.communicate(timeout=PATIENCE_S)
    until(lambda: not any(_runs(pid) for pid in hosts), f"the end of hosts {hosts} after their driver's")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
