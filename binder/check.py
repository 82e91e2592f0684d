"""Run every notebook as on Binder: in the environment that runs this file, headless, within Binder's memory.

``make binder`` makes an environment from this directory as repo2docker does (``requirements.txt``, then ``postBuild``)
and runs this file in it. The memory of a notebook is that of all processes that it starts: kernel, Java, hosts. Pages
that they share are counted once (PSS). A notebook that takes more than 2 GB is ended, and fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil

LIMIT_MIB = 2048
SERVER_MIB = 110
"""What JupyterLab's server takes on Binder beside the notebook."""
LOOK_S = 0.3
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the notebooks, and print the memory that each has taken at its peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of notebooks/ and notebooks/labs/ if left out")
    asked = parser.parse_args().notebooks or sorted((ROOT / "notebooks").rglob("*.ipynb"))
    found = [path.resolve() for path in asked]
    failed = [path for path in found if not _fits(path)]
    print(f"{len(found) - len(failed)} of {len(found)} notebooks ran within {LIMIT_MIB} MiB")
    return 1 if failed else 0


def _fits(path: Path) -> bool:
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", "--stdout", str(path)]
    environment = os.environ | {"FRIES_SCALE": "test"}
    notebook = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    words: list[str] = []
    assert notebook.stderr is not None
    reading = threading.Thread(target=words.extend, args=[notebook.stderr], daemon=True)
    reading.start()
    peak = SERVER_MIB
    while notebook.poll() is None:
        peak = max(peak, SERVER_MIB + _taken(notebook.pid))
        if peak > LIMIT_MIB:
            _end(notebook)
        threading.Event().wait(LOOK_S)
    reading.join()
    good = notebook.returncode == 0 and peak <= LIMIT_MIB
    print(f"{path.relative_to(ROOT)}: {peak} MiB{'' if good else ', FAILED'}", flush=True)
    if not good:
        print("".join(words[-20:]))
    return good


def _taken(pid: int) -> int:
    """The memory of a process and of all below it in MiB."""
    total = 0
    for process in _family(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total >> 20


def _family(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _end(notebook: subprocess.Popen[str]) -> None:
    for process in _family(notebook.pid):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    sys.exit(main())
