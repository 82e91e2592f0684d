"""What Java keeps of the classes that it has loaded, so that the next Spark starts in less than half the time.

Spark's start is mostly that: some 15,000 classes are found, checked and linked, each time anew. Java can write them
down once and map the file afterwards. The file belongs to one environment (its Java, its PySpark); Java itself sees
whether it fits, and does without it where it does not. ``python -m fries_nb archive`` makes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit, or a class that cannot be in one, is no news for the user."""


def archive_path() -> Path:
    """Where this environment's archive is, or would be."""
    return Path(sys.prefix) / "share" / "fries_nb" / "spark.jsa"


def using_archive() -> dict[str, str]:
    """Spark's settings to start with the archive, if there is one."""
    path = archive_path()
    return _setting(f"-XX:SharedArchiveFile={_quoted(path)}") if path.exists() else {}


def writing_archive(path: Path) -> dict[str, str]:
    """Spark's settings for a Java that writes an archive to that path when it ends."""
    return _setting(f"-XX:ArchiveClassesAtExit={_quoted(path)}")


def _setting(option: str) -> dict[str, str]:
    return {"spark.driver.defaultJavaOptions": f"{option} {_QUIET}"}


def _quoted(path: Path) -> str:
    """As Spark takes a path with spaces.

    >>> _quoted(Path("/a b/spark.jsa"))
    '"/a b/spark.jsa"'
    """
    return f'"{path}"'
