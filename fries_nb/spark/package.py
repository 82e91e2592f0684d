"""fries_nb for the executors of a session: this package as a zip that Spark hands to all of them."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from fries_nb.spark.session import check_kind

ROOT = Path(__file__).parents[1]


def ship(spark: Any) -> str:
    """Bring this version of fries_nb to the executors of a session, in front of one that is installed there.

    What it needs on hosts (pyarrow, pyzmq, msgspec, cloudpickle, networkx, numpy and pandas) is compiled in part, hence
    not in it: that is installed on the executors, or comes in a packed environment (``spark.archives``).

    Args:
        spark: a classic session, of whatever master; a local one needs it not.

    Returns:
        The file that the session was given.

    Raises:
        SessionError: a session that cannot serve: of Spark Connect, stopped, or under dynamic allocation.
    """
    check_kind(spark)
    file = Path(tempfile.mkdtemp(prefix="fries-package-")) / "fries_nb.zip"
    pack(file)
    spark.sparkContext.addPyFile(str(file))
    return str(file)


def pack(file: Path) -> None:
    """Write the package's modules into a zip from which Python imports them."""
    modules = sorted(ROOT.rglob("*.py"))
    folders = sorted({module.parent for module in modules})  # those without __init__.py are found by their entries only
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        for path in [*folders, *modules]:
            whole.write(path, Path(ROOT.name) / path.relative_to(ROOT))
