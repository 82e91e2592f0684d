"""``python -m fries_nb archive``: creates a class data archive for Java, so that Spark starts in half the time."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import fries_nb as fn
from fries_nb.errors import SessionError
from fries_nb.spark.session import archive_path, end_java, start_or_find, writing_archive

ROWS = 100.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "archive",
        help="create a class data archive, so that Spark starts in less than half the time",
        description="Start Spark once to create a class data archive for Java, which later starts use (some 180 MB, in "
        "the Python environment). `make` does it as a part of the set-up.",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Create the archive in a temporary file and move it into place, since Java crashes on a partial archive."""
    path = archive_path()
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.touch()
    except OSError as error:
        raise SessionError(f"cannot write the archive to {path}: {error.strerror or error}") from error
    try:
        made = subprocess.run([sys.executable, "-m", __name__, str(aside)], stderr=subprocess.PIPE, text=True)
        if made.returncode or not aside.stat().st_size:
            printed = made.stderr.strip().splitlines() or ["expected a HotSpot Java, 17 or later"]
            raise SessionError(f"Java wrote no archive: {printed[-1]}")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    print(f"Spark starts with {path} from now on ({path.stat().st_size / 1e6:,.0f} MB)")
    return 0


def load_classes(aside: Path) -> None:
    """Run a small dataflow in a Java process that writes an archive to ``aside`` when it ends; blocks until then."""
    session = start_or_find(1, options=writing_archive(aside))
    try:
        flow = fn.Dataflow("archive")
        rows = flow.source("numbers", fn.rate(ROWS, row=lambda value: {"value": value}))
        rows.map("A", lambda row: row).sink("out", fn.memory())
        flowing = flow.run(session.spark, hosts=1, workers=1)
        flowing.wait_flowing()
        flowing.stop()
        flowing.output().orderBy("value").toPandas()
    finally:
        session.release()
        end_java()


if __name__ == "__main__":
    load_classes(Path(sys.argv[1]))
