"""Small files that are written atomically and durably.

On a local file system only their owner can read them, unless they are written as shared.

Seals: a prefix of each checkpoint file that detects damage, exchange and forgery.

Without a key a seal is a checksum of the file's name and content: it detects accidents. With a key it is their
HMAC-SHA256: without the key an accepted file cannot be created, nor two existing ones exchanged. A checkpoint holds
pickles, which execute code when loaded, so a seal is checked before anything is decoded.

>>> key = secret("a phrase that only we know")
>>> unsealed(sealed(b"state", "states/1/FM", key), "states/1/FM", key)
b'state'
>>> unsealed(sealed(b"state", "states/1/FM", key), "states/1/MC", key)
Traceback (most recent call last):
...
ValueError: it is not signed with the given key, or it has been changed since
>>> unsealed(sealed(b"state", "states/1/FM")[:-1], "states/1/FM")
Traceback (most recent call last):
...
ValueError: it is cut off or has been overwritten
"""

from __future__ import annotations

import hashlib
import hmac
import os
import posixpath
from typing import Any, Protocol

from pyarrow import fs

from fries_nb.errors import CheckpointError

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
    """Write a small file atomically and durably; raises an OSError if that fails."""
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
    """Create a directory and its missing parents; raises an OSError if that fails."""
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


NO_KEY = b""
_CHECKED = b"fries2c\n"
_SIGNED = b"fries2s\n"
_HEAD = len(_CHECKED) + 64 + 1
_BLOCK = 1 << 20


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...
    def hexdigest(self) -> str: ...


def secret(key: bytes | str | None) -> bytes:
    """The key as bytes; ``NO_KEY`` for none."""
    if key is None:
        return NO_KEY
    if not isinstance(key, (bytes, str)):
        raise CheckpointError(f"signing_key= is a {type(key).__name__}; expected bytes or text that only you know")
    if not key:
        expected = "expected bytes or text that only you know, or None to sign nothing"
        raise CheckpointError(f"signing_key= is empty; {expected}")
    return key.encode() if isinstance(key, str) else key


def sealed(content: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content, prefixed with its seal."""
    digest = _begun(name, key)
    digest.update(content)
    return (_SIGNED if key else _CHECKED) + digest.hexdigest().encode() + b"\n" + content


def unsealed(data: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content without its seal; raises a ValueError if the seal does not match content, name and key."""
    expected = _expected(data[:_HEAD], key)
    digest = _begun(name, key)
    digest.update(memoryview(data)[_HEAD:])
    _compare(expected, digest, key)
    return data[_HEAD:]


def verify(filesystem: fs.FileSystem, place: str, name: str, key: bytes = NO_KEY) -> None:
    """Check a file's seal in constant memory; raises an OSError if there is no file, else as ``unsealed`` does."""
    with filesystem.open_input_stream(place) as stream:
        expected = _expected(bytes(stream.read(_HEAD)), key)
        digest = _begun(name, key)
        while block := stream.read(_BLOCK):
            digest.update(block)
    _compare(expected, digest, key)


def _begun(name: str, key: bytes) -> _Hash:
    digest: _Hash = hmac.new(key, digestmod=hashlib.sha256) if key else hashlib.sha256()
    text = name.encode(errors="surrogatepass")
    digest.update(len(text).to_bytes(4, "little") + text)
    return digest


def _expected(head: bytes, key: bytes) -> bytes:
    kind, seal = head[: len(_CHECKED)], head[len(_CHECKED) :].rstrip(b"\n")
    if key and kind == _CHECKED:
        raise ValueError("it is not signed, and signing_key= was given; it was written without a key, or is not yours")
    if not key and kind == _SIGNED:
        raise ValueError("it is signed; give the signing_key= that it was written with")
    if kind != (_SIGNED if key else _CHECKED) or len(head) != _HEAD or not head.endswith(b"\n"):
        raise ValueError("it is cut off or has been overwritten")
    return seal


def _compare(expected: bytes, digest: _Hash, key: bytes) -> None:
    if not hmac.compare_digest(expected, digest.hexdigest().encode()):
        raise ValueError(
            "it is not signed with the given key, or it has been changed since"
            if key
            else "it is cut off or has been overwritten"
        )
