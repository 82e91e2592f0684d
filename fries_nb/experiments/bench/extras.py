"""What only benchmarks need, and a plain installation does not have."""

from __future__ import annotations

from importlib.util import find_spec

from fries_nb.errors import FriesError


class BenchError(FriesError):
    """A benchmark that cannot be run, or whose other side failed."""


def require(*modules: str) -> None:
    """See that these modules are installed; they are those of the extra ``bench``.

    >>> require("json")

    Raises:
        BenchError: one is not.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise BenchError(
            f"{' and '.join(missing)} {are} not installed; expected the extra `bench`: pip install -e '.[bench]'"
        )
