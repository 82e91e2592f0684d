"""The local file system, with a count of the bytes that are read of each file."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import PythonFile, fs
from stopping_files import Watched

from fries_nb.storage import durable as storage


class _Counted:
    """A file that is being read."""

    def __init__(self, file: Any, path: str, read: Counter[str]) -> None:
        self._file, self._path, self._read = file, path, read
        self.closed = False

    def read(self, size: int | None = None) -> bytes:
        content = bytes(self._file.read(size))
        self._read[self._path] += len(content)
        return content

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        self.closed = True
        self._file.close()


class _Counting(Watched):
    """Counts what is read."""

    def __init__(self, read: Counter[str]) -> None:
        super().__init__(lambda operation: None)
        self._read = read

    def open_input_stream(self, path: str) -> Any:
        return PythonFile(_Counted(self._files.open_input_stream(path), path, self._read), mode="r")

    def open_input_file(self, path: str) -> Any:
        return PythonFile(_Counted(self._files.open_input_file(path), path, self._read), mode="r")


def count_reads(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Path to the number of bytes that are read of it from now on."""
    read: Counter[str] = Counter()
    counting = fs.PyFileSystem(_Counting(read))
    patch.setattr(storage, "fs", SimpleNamespace(**{**vars(fs), "LocalFileSystem": lambda: counting}))
    return read
