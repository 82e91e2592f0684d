"""Small files that are seen whole or not at all, and stay when the machine goes down.

On a local file system they are readable by their owner only, unless they are written to be shared.
"""

from __future__ import annotations

import os
import posixpath

from pyarrow import fs

PRIVATE = 0o600
"""Mode of a file that only its owner may read and write; directories that are made for it are 0700."""
SHARED = 0o666
"""Mode of a file that others may read, as far as the process's umask lets them."""
_WHOLE_OR_NOT = ("s3", "gcs", "abfs")  # object stores: a file appears when it is complete, and a rename is a copy


def read_file(filesystem: fs.FileSystem, place: str) -> bytes:
    """What is in the file; raises an OSError if there is none."""
    with filesystem.open_input_stream(place) as stream:
        return bytes(stream.read())


def entries(filesystem: fs.FileSystem, directory: str) -> list[fs.FileInfo]:
    """What lies in a directory, nothing if there is none; raises an OSError if it cannot be listed."""
    selector = fs.FileSelector(directory, allow_not_found=True)
    try:
        return list(filesystem.get_file_info(selector))
    except FileNotFoundError:  # made by another process between two looks of Arrow: it cannot be listed, yet is there
        return list(filesystem.get_file_info(selector))


def write_file(filesystem: fs.FileSystem, place: str, content: bytes, mode: int = PRIVATE) -> None:
    """Write a small file so that it is seen whole or not at all; raises an OSError if it is not.

    Args:
        filesystem: where.
        place: the file's path; missing directories above it are made.
        content: all of it.
        mode: permissions on a local file system, less the umask; elsewhere access is the store's.
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
    """Make a directory and those above it that are missing; raises an OSError if it cannot be made.

    Args:
        filesystem: where.
        place: the directory's path.
        mode: of the files that it is for; the directories that are made can be searched by whoever may read these.
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
    """On a local disk, return when what is written is really there; other file systems see to it on closing."""
    if not _is_local(filesystem):
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_local(filesystem: fs.FileSystem) -> bool:
    return bool(filesystem.type_name == "local") and os.name == "posix"
