"""The user's cache directory, for files that are generated once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import fries_nb as fn


def cache_directory() -> Path:
    """The directory: ``fries_nb`` in XDG_CACHE_HOME or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fries_nb"


def unwritable(what: str, cache: Path, error: OSError, otherwise: str = "") -> fn.SourceError:
    """The error for a cache directory that cannot be written; ``otherwise`` names an alternative for the user."""
    return fn.SourceError(
        f"cannot keep {what} in {str(cache)!r}: {error.strerror or error}; "
        f"set XDG_CACHE_HOME to a directory that can be written{otherwise}"
    )


def kept(name: str, what: str, make: Callable[[Path], None], otherwise: str = "") -> Path:
    """A cached file or directory; generated if it does not exist.

    Args:
        name: its name in the cache.
        what: its content, for error messages.
        make: writes it at the given path.
        otherwise: an alternative for the user, for error messages.

    Returns:
        Its path.

    Raises:
        SourceError: the cache directory cannot be written.
    """
    cache = cache_directory()
    if (cache / name).exists():
        return cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Written to a temporary directory and moved into place, so that concurrent readers and writers see whole files.
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            make(Path(aside, name))
            _move(Path(aside, name), cache / name)
    except OSError as error:
        raise unwritable(what, cache, error, otherwise) from None
    return cache / name


def _move(made: Path, place: Path) -> None:
    """Move the result into place; if another process has put an equal directory there, it is kept."""
    try:
        made.replace(place)
    except OSError:
        if not place.is_dir():
            raise
