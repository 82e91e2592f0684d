"""A source that lasts: one file, read again and again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def repeated(path: str, times: int) -> Iterator[str]:
    """A directory with so many links to a Parquet file, in place until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="fries-experiment-") as directory:
        for number in range(times):
            Path(directory, f"{number:05d}.parquet").symlink_to(Path(path).resolve())
        yield directory
