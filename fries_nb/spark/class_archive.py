"""Class data archives of Java, with which Spark starts in less than half the time.

Most of Spark's start-up time is spent on loading some 15,000 classes. Java can write them to an archive and map it
later. An archive is specific to an environment (its Java, its PySpark); Java checks whether it fits, and ignores it
otherwise. ``python -m fries_nb archive`` creates it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Suppresses Java's warnings on archives that do not fit, or classes that cannot be archived."""


def archive_path() -> Path:
    """The path of this environment's archive, which need not exist."""
    return Path(sys.prefix) / "share" / "fries_nb" / "spark.jsa"


def using_archive() -> dict[str, str]:
    """Spark's settings to start with the archive, if it exists."""
    path = archive_path()
    return _setting(f"-XX:SharedArchiveFile={_quoted(path)}") if path.exists() else {}


def writing_archive(path: Path) -> dict[str, str]:
    """Spark's settings for a Java that writes an archive to that path when it ends."""
    return _setting(f"-XX:ArchiveClassesAtExit={_quoted(path)}")


def _setting(option: str) -> dict[str, str]:
    return {"spark.driver.defaultJavaOptions": f"{option} {_QUIET}"}


def _quoted(path: Path) -> str:
    """The path in the form that Spark's options need if it has spaces.

    >>> _quoted(Path("/a b/spark.jsa"))
    '"/a b/spark.jsa"'
    """
    return f'"{path}"'
