"""A file system that calls something in front of each of its operations: to stop there, or to let others in."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import PythonFile, fs

from fries_nb.storage import durable as storage


class Killed(BaseException):
    """The process has ended here; nothing of it runs any more."""


class Watched(fs.FileSystemHandler):
    """The local file system; ``seen`` is called in front of each operation, with its name.

    What is written to a file is there when it is closed, as in an object store.
    """

    def __init__(self, seen: Callable[[str], None]) -> None:
        self._files = fs.LocalFileSystem()
        self._seen = seen

    def get_type_name(self) -> str:
        return "watched"

    def normalize_path(self, path: str) -> str:
        return str(self._files.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        self._seen("get_file_info")
        return self._files.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        self._seen("list")
        return self._files.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._seen("create_dir")
        self._files.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._seen("delete_dir")
        self._files.delete_dir_contents(path)
        self._seen("rmdir")  # a file system deletes a directory in steps, between which others go on
        os.rmdir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._seen("delete_dir_contents")
        self._files.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._seen("delete_file")
        self._files.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self._seen("move")
        self._files.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        self._seen("read")
        return self._files.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        self._seen("read")
        return self._files.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._seen("open_output_stream")
        return PythonFile(_Written(self._files.open_output_stream(path), self._seen), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


class _Written:
    """A file that is being written: half of it may be there when its writer is killed."""

    def __init__(self, stream: Any, seen: Callable[[str], None]) -> None:
        self._stream = stream
        self._seen = seen
        self.closed = False

    def write(self, data: Any) -> int:
        self._seen("write")
        return int(self._stream.write(data) or len(data))

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


def watch(patch: pytest.MonkeyPatch, seen: Callable[[str], None]) -> None:
    """Have all local files of the project read and written by a watched file system."""
    watched = fs.PyFileSystem(Watched(seen))
    patch.setattr(storage, "fs", SimpleNamespace(**{**vars(fs), "LocalFileSystem": lambda: watched}))
