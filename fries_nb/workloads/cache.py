"""What is made once and kept: files in the user's cache directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import fries_nb as fn


def cache_directory() -> Path:
    """Where what was made once is kept: ``fries_nb`` in XDG_CACHE_HOME or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fries_nb"


def unwritable(what: str, cache: Path, error: OSError, otherwise: str = "") -> fn.SourceError:
    """The error of a cache directory in which nothing can be kept; ``otherwise`` is another way out."""
    return fn.SourceError(
        f"cannot keep {what} in {str(cache)!r}: {error.strerror or error}; "
        f"set XDG_CACHE_HOME to a directory that can be written{otherwise}"
    )


def kept(name: str, what: str, make: Callable[[Path], None], otherwise: str = "") -> Path:
    """The cached file or directory of that name; ``make`` writes it, at the path that it is given, if it is not there.

    Raises:
        SourceError: the cache directory cannot be written; names ``what`` was to be kept.
    """
    cache = cache_directory()
    if (cache / name).exists():
        return cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Made aside and moved into place: nobody ever reads half a file, and two who make it do not disturb each other.
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            make(Path(aside, name))
            _move(Path(aside, name), cache / name)
    except OSError as error:
        raise unwritable(what, cache, error, otherwise) from None
    return cache / name


def _move(made: Path, place: Path) -> None:
    """Puts it into place; a directory that somebody else has put there meanwhile is as good."""
    try:
        made.replace(place)
    except OSError:
        if not place.is_dir():
            raise
