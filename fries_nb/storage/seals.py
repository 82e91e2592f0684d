"""Seals: a prefix of each checkpoint file that detects damage, exchange and forgery.

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
    """The key as bytes; ``NO_KEY`` for none.

    Raises:
        CheckpointError: the key is empty, or neither bytes nor text.
    """
    if key is None:
        return NO_KEY
    if not isinstance(key, (bytes, str)):
        raise CheckpointError(f"key= is a {type(key).__name__}; expected bytes or text that only you know")
    if not key:
        raise CheckpointError("key= is empty; expected bytes or text that only you know, or None to sign nothing")
    return key.encode() if isinstance(key, str) else key


def sealed(content: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content, prefixed with its seal.

    Args:
        content: content of the file.
        name: name of the file, and whatever else identifies it; part of the sealed data.
        key: signs the file; ``NO_KEY`` makes a checksum.
    """
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
