"""fries_nb for the executors of a session: this package as a zip that Spark hands to all of them."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from fries_nb.spark.session import check_kind

ROOT = Path(__file__).parents[1]


def ship(spark: Any) -> str:
    """Distribute this version of fries_nb to the executors of a session; it takes precedence over an installed one.

    Its dependencies (pyarrow, pyzmq, msgspec, cloudpickle, networkx, numpy and pandas) are compiled in part and not
    included: they must be installed on the executors or be part of a packed environment (``spark.archives``).

    Args:
        spark: a classic SparkSession; a session with a local master does not need this.

    Returns:
        The path of the zip file that was added to the session.

    Raises:
        SessionError: the session is one of Spark Connect, has been stopped, or uses dynamic allocation.
    """
    check_kind(spark)
    file = Path(tempfile.mkdtemp(prefix="fries-package-")) / "fries_nb.zip"
    pack(file)
    spark.sparkContext.addPyFile(str(file))
    return str(file)


def pack(file: Path) -> None:
    """Write the package's modules into a zip file from which Python can import them."""
    modules = sorted(ROOT.rglob("*.py"))
    folders = sorted({module.parent for module in modules})  # those without __init__.py are found by their entries only
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        for path in [*folders, *modules]:
            whole.write(path, Path(ROOT.name) / path.relative_to(ROOT))
