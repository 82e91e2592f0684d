"""Seals: what is in front of each file of a checkpoint, so that a damaged, exchanged or foreign one is told.

Without a key a seal is a checksum of the file's name and content: it finds accidents. With a key it is their
HMAC-SHA256: whoever does not have the key cannot write a file that is taken, nor exchange two that are there.
A checkpoint holds pickles, which run code when they are loaded, so a seal is checked before anything is decoded.

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
from typing import Any, Protocol

from pyarrow import fs

from fries_nb.errors import CheckpointError

NO_KEY = b""
_CHECKED = b"fries2c\n"
_SIGNED = b"fries2s\n"
_HEAD = len(_CHECKED) + 64 + 1
_BLOCK = 1 << 20


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...
    def hexdigest(self) -> str: ...


def secret(key: bytes | str | None) -> bytes:
    """The key as bytes; none is ``NO_KEY``.

    Raises:
        CheckpointError: it is empty, or neither bytes nor text.
    """
    if key is None:
        return NO_KEY
    if not isinstance(key, (bytes, str)):
        raise CheckpointError(f"key= is a {type(key).__name__}; expected bytes or text that only you know")
    if not key:
        raise CheckpointError("key= is empty; expected bytes or text that only you know, or None to sign nothing")
    return key.encode() if isinstance(key, str) else key


def sealed(content: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content with its seal in front.

    Args:
        content: of the file.
        name: of the file, and whatever else tells its place from others; it is part of what is sealed.
        key: signs it; ``NO_KEY`` makes a checksum.
    """
    digest = _begun(name, key)
    digest.update(content)
    return (_SIGNED if key else _CHECKED) + digest.hexdigest().encode() + b"\n" + content


def unsealed(data: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content; raises a ValueError, in words, if it is not what was sealed under this name and key."""
    expected = _expected(data[:_HEAD], key)
    digest = _begun(name, key)
    digest.update(memoryview(data)[_HEAD:])
    _compare(expected, digest, key)
    return data[_HEAD:]


def verify(filesystem: fs.FileSystem, place: str, name: str, key: bytes = NO_KEY) -> None:
    """Check a file's seal in constant memory; raises an OSError if there is no file, a ValueError as ``unsealed``."""
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
        raise ValueError("it is not signed, and key= was given; it was written without a key, or is not yours")
    if not key and kind == _SIGNED:
        raise ValueError("it is signed; give the key= that it was written with")
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
