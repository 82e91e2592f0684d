"""Small files that are seen whole or not at all, and stay when the machine goes down."""

from __future__ import annotations

import os
import posixpath
import zlib

from pyarrow import fs

_WHOLE_OR_NOT = ("s3", "gcs", "abfs")  # object stores: a file appears when it is complete, and a rename is a copy
_SEAL = b"fries1"


def read_file(filesystem: fs.FileSystem, place: str) -> bytes:
    """What is in the file; raises an OSError if there is none."""
    with filesystem.open_input_stream(place) as stream:
        return bytes(stream.read())


def write_file(filesystem: fs.FileSystem, place: str, content: bytes) -> None:
    """Write a small file so that it is seen whole or not at all; raises an OSError if it is not."""
    draft = place if filesystem.type_name in _WHOLE_OR_NOT else f"{place}.draft"
    filesystem.create_dir(posixpath.dirname(place), recursive=True)
    with filesystem.open_output_stream(draft) as stream:
        stream.write(content)
    if draft != place:
        see_durable(filesystem, draft)
        filesystem.move(draft, place)
        see_durable(filesystem, posixpath.dirname(place))


def see_durable(filesystem: fs.FileSystem, place: str) -> None:
    """On a local disk, return when what is written is really there; other file systems see to it on closing."""
    if filesystem.type_name != "local" or os.name != "posix":
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sealed(content: bytes) -> bytes:
    """The content with a checksum in front of it, so that a file that was cut off or overwritten is told.

    >>> unsealed(sealed(b"state"))
    b'state'
    >>> unsealed(sealed(b"state")[:-1])
    Traceback (most recent call last):
    ...
    ValueError: it is cut off or has been overwritten
    """
    return _SEAL + zlib.crc32(content).to_bytes(4, "little") + content


def unsealed(data: bytes) -> bytes:
    """The content; raises a ValueError if it is not what was sealed."""
    head, content = data[: len(_SEAL) + 4], data[len(_SEAL) + 4 :]
    if head != _SEAL + zlib.crc32(content).to_bytes(4, "little"):
        raise ValueError("it is cut off or has been overwritten")
    return content
