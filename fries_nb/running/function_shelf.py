"""Functions of replaced changes, stored on disk for later rollbacks.

A run keeps the functions of its last two changes in memory. Those of earlier changes may be models of any size, which
only a rollback, or a question about the change, needs again.

>>> updates = Shelf().put({"FM": pickle.dumps(Update(len))})
>>> list(updates), updates["FM"].function("abc")
(['FM'], 3)
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO

from fries_nb.dataflow.updates import Update

PER_FILE = 100
"""Number of changes whose functions share a file."""


class Shelf:
    """Temporary files of pickled updates. They have no name; each is deleted when no change of its is kept any more."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._room = 0

    def put(self, payloads: Mapping[str, bytes]) -> Shelved:
        """Store updates.

        Args:
            payloads: operator to its pickled update.

        Returns:
            The updates, each read on access.
        """
        self._room -= 1
        if self._file is None or self._room < 0:
            self._room = PER_FILE - 1
            self._file = tempfile.TemporaryFile(prefix="fries-functions-")  # noqa: SIM115 - as long as the run
        places: dict[str, tuple[int, int]] = {}
        for name, payload in payloads.items():
            places[name] = (self._file.seek(0, os.SEEK_END), self._file.write(payload))
        self._file.flush()
        return Shelved(self._file, places)


class Shelved(Mapping[str, Update]):
    """Updates by operator, each unpickled on access."""

    def __init__(self, file: IO[bytes], places: Mapping[str, tuple[int, int]]) -> None:
        self._file = file
        self._places = dict(places)

    def __getitem__(self, name: str) -> Update:
        offset, length = self._places[name]
        update: Update = pickle.loads(os.pread(self._file.fileno(), length, offset))
        return update

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
