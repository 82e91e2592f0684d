"""A kernel that is killed while its flow runs: the next one finds what is left of it, ends it, and says so."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import msgspec
import psutil
from jupyter_client.manager import start_new_kernel
from notebook_shell import ipython, told
from patience import PATIENCE_S

from fries_nb.notebook.waits import Note

FLOW = """get_ipython().run_line_magic("load_ext", "fries_nb")
get_ipython().run_cell_magic("fries_dataflow", "lasting", '''
flow.source("numbers", fn.rate(100)).map("D", lambda row: row, key="value").sink("out", fn.memory())''')
get_ipython().run_line_magic("fries_run", "lasting --hosts 2 --workers 1")
"""
# The note is written by a thread, and once more when the hosts have joined.
NOTED = """from pathlib import Path
from threading import Event
while not any(b'"hosts":[{' in note.read_bytes() for note in Path(CACHE, "fries_nb", "runs").glob("*.json")):
    assert run.state in ("joining", "running"), run.error
    Event().wait(0.05)
"""


def test_the_next_kernel_ends_what_a_killed_one_has_left(tmp_path: Path) -> None:
    """Java, Spark's daemon and the hosts are gone, the run's files and its note as well."""
    cache = tmp_path / "ipython" / "cache"  # where the shell below keeps its own
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    manager, client = start_new_kernel(kernel_name="python3", env=environment, stderr=subprocess.DEVNULL)
    kernel = psutil.Process(manager.provisioner.pid)
    processes = [kernel]
    try:
        for code in (FLOW, f"CACHE = {str(cache)!r}\n{NOTED}"):
            reply = client.execute_interactive(code, timeout=PATIENCE_S, output_hook=lambda message: None)
            assert reply["content"]["status"] == "ok", reply["content"]
        processes += kernel.children(recursive=True)
        [path] = (cache / "fries_nb" / "runs").glob("*.json")
        note = msgspec.json.decode(path.read_bytes(), type=Note)
        assert any(process.name() == "java" for process in processes)
        assert len(note.hosts) == 2
        assert {host.pid for host in note.hosts} < {process.pid for process in processes}
        assert Path(note.scratch).is_dir()
        with ipython(tmp_path / "ipython") as shell:
            assert told(shell, "%fries_status").startswith("no dataflow is declared or running\nNext")
            kernel.kill()
            kernel.wait(PATIENCE_S)
            status = told(shell, "%fries_status")
        left = rf"'lasting' of a kernel that has died \(process {kernel.pid}\): \d process"
        assert re.search(left, status), status
        assert psutil.wait_procs(processes, PATIENCE_S)[1] == []
        assert not Path(note.scratch).exists()
        assert not path.exists()
    finally:
        client.stop_channels()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        manager.cleanup_resources()
