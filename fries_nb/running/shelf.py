"""Functions that later changes have replaced, on disk: a rollback may still ask for them, so they are not forgotten.

>>> from fries_nb.dataflow.updates import Update
>>> import pickle
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


class Shelf:
    """A file without a name, which goes with the run or with the process."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def put(self, payloads: Mapping[str, bytes]) -> Shelved:
        """Keep pickled updates by operator; each is read when somebody asks for it."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fries-functions-")  # noqa: SIM115 - as long as the run
        places: dict[str, tuple[int, int]] = {}
        for name, payload in payloads.items():
            places[name] = (self._file.seek(0, os.SEEK_END), self._file.write(payload))
        self._file.flush()
        return Shelved(self._file, places)


class Shelved(Mapping[str, Update]):
    """Updates by operator, each unpickled anew when it is looked up."""

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
