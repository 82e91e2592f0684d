"""Optional dependencies of the benchmarks."""

from __future__ import annotations

from importlib.util import find_spec

from fries_nb.errors import FriesError


class BenchError(FriesError):
    """A benchmark that cannot be run, or whose rival failed."""


def require(*modules: str) -> None:
    """Check that these modules, of the extra ``bench``, are installed.

    >>> require("json")

    Raises:
        BenchError: one is not installed.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise BenchError(
            f"{' and '.join(missing)} {are} not installed; expected the extra `bench`: pip install -e '.[bench]'"
        )
