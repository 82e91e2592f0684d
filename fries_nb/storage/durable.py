"""Small files that are written atomically and durably.

On a local file system only their owner can read them, unless they are written as shared.
"""

from __future__ import annotations

import os
import posixpath

from pyarrow import fs

PRIVATE = 0o600
"""Mode of a file that only its owner may access; directories created for it have mode 0700."""
SHARED = 0o666
"""Mode of a file that others may read, subject to the umask."""
_WHOLE_OR_NOT = ("s3", "gcs", "abfs")  # object stores: a file appears when it is complete, and a rename is a copy


def read_file(filesystem: fs.FileSystem, place: str) -> bytes:
    """The content of a file; raises an OSError if there is none."""
    with filesystem.open_input_stream(place) as stream:
        return bytes(stream.read())


def entries(filesystem: fs.FileSystem, directory: str) -> list[fs.FileInfo]:
    """The entries of a directory, none if it does not exist; raises an OSError if it cannot be listed."""
    selector = fs.FileSelector(directory, allow_not_found=True)
    try:
        return list(filesystem.get_file_info(selector))
    except FileNotFoundError:  # Arrow raises this if another process creates the directory during the call
        return list(filesystem.get_file_info(selector))


def write_file(filesystem: fs.FileSystem, place: str, content: bytes, mode: int = PRIVATE) -> None:
    """Write a small file atomically and durably; raises an OSError if that fails.

    Args:
        filesystem: the file system.
        place: path of the file; missing parent directories are created.
        content: the complete content.
        mode: permissions on a local file system, less the umask; an object store controls access itself.
    """
    make_directory(filesystem, posixpath.dirname(place), mode)
    draft = place if filesystem.type_name in _WHOLE_OR_NOT else f"{place}.draft"
    if _is_local(filesystem):
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT, mode))  # Arrow would make it readable by all
    with filesystem.open_output_stream(draft) as stream:
        stream.write(content)
    if draft != place:
        see_durable(filesystem, draft)
        filesystem.move(draft, place)
        see_durable(filesystem, posixpath.dirname(place))


def make_directory(filesystem: fs.FileSystem, place: str, mode: int = PRIVATE) -> None:
    """Create a directory and its missing parents; raises an OSError if that fails.

    Args:
        filesystem: the file system.
        place: path of the directory.
        mode: mode of the files that it is for; readers of these files can search the created directories.
    """
    if not _is_local(filesystem):
        filesystem.create_dir(place, recursive=True)
        return
    missing = []
    while not os.path.isdir(place):
        missing.append(place)
        place = posixpath.dirname(place)
    for directory in reversed(missing):
        os.makedirs(directory, mode | (mode & 0o444) >> 2, exist_ok=True)  # another writer may make it, too
        see_durable(filesystem, posixpath.dirname(directory))


def see_durable(filesystem: fs.FileSystem, place: str) -> None:
    """Flush a file to a local disk; other file systems do that on closing."""
    if not _is_local(filesystem):
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_local(filesystem: fs.FileSystem) -> bool:
    return bool(filesystem.type_name == "local") and os.name == "posix"
