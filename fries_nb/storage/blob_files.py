"""Sealed files of many blobs, of which each can be read and verified alone.

    seal (73 bytes) | length of the index (8 bytes) | index | blob | blob | ...

The seal covers the name of the file and the index. The index, whose form is a matter of its writer, lists the length
and the SHA-256 digest of each blob, in the order in which they follow. So a reader of one blob reads the index and this
blob only, and has verified it as thoroughly as by reading the whole file: without the key no index can be made or
changed, and there is no second blob with a digest that is listed. Digests need no key of their own for that.

A file has to end where its last blob does. So one that was cut off, or to which something was added, is found without
a look at its blobs; that a blob is another one, when it is read, or by ``verify_blobs``.

>>> ham, eggs = Blob.of(b"ham"), Blob.of(b"eggs")
>>> content = with_blobs(b"2 blobs", [b"ham", b"eggs"], "states/1/FM")
>>> index, start = read_index(pa.BufferReader(content), "states/1/FM")
>>> index, content[start + ham.length :]
(b'2 blobs', b'eggs')
>>> read_blob(pa.BufferReader(content), start + ham.length, eggs)
b'eggs'
>>> read_blob(pa.BufferReader(content), start, eggs)
Traceback (most recent call last):
...
ValueError: it is cut off or has been overwritten
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from fries_nb.storage.durable import NO_KEY, SEAL_BYTES, refuse_digest, sealed, unsealed

_LENGTH_BYTES = 8
_LONGEST_INDEX = 1 << 28
"""A length beyond it is damage; with it, a thousand operators in one file may have all of their bins."""
_BLOCK = 1 << 20


class Blob(msgspec.Struct, frozen=True, array_like=True):
    """What an index says of a blob.

    Attributes:
        length: number of its bytes.
        digest: their SHA-256.
        entries: of a part of states, the number of its entries; 0 for others.
    """

    length: int
    digest: bytes
    entries: int = 0

    @classmethod
    def of(cls, content: bytes, entries: int = 0) -> Blob:
        """The entry of an index for this content."""
        return cls(len(content), hashlib.sha256(content).digest(), entries)


def with_blobs(index: bytes, blobs: Iterable[bytes], name: str, key: bytes = NO_KEY) -> bytes:
    """The content of a file: an index, which lists ``Blob.of`` each of the blobs in this order, and the blobs.

    Raises:
        ValueError: the index is longer than a reader accepts.
    """
    if len(index) > _LONGEST_INDEX:
        raise ValueError(f"its index has {len(index):,} bytes; at most {_LONGEST_INDEX:,} can be read")
    return b"".join([sealed(len(index).to_bytes(_LENGTH_BYTES, "big") + index, name, key), *blobs])


def blob_start(index: bytes) -> int:
    """Where the first blob of a file with this index begins."""
    return SEAL_BYTES + _LENGTH_BYTES + len(index)


def read_index(file: pa.NativeFile, name: str, key: bytes = NO_KEY) -> tuple[bytes, int]:
    """Read the index, from the beginning of a file on, and the place where the first blob begins.

    Raises:
        ValueError: the seal does not match index, name and key.
    """
    head = bytes(file.read(SEAL_BYTES + _LENGTH_BYTES))
    length = int.from_bytes(head[SEAL_BYTES:], "big")
    index = bytes(file.read(length)) if length <= _LONGEST_INDEX else b""  # which the seal does not match
    found = unsealed(head + index, name, key)[_LENGTH_BYTES:]
    return found, blob_start(found)


def check_length(file: pa.NativeFile, start: int, blobs: Iterable[Blob], key: bytes = NO_KEY) -> None:
    """Check that a file of which the blobs begin at this place ends where the last of them does.

    Raises:
        ValueError: it does not.
    """
    if file.size() != start + sum(blob.length for blob in blobs):
        refuse_digest(key)


def read_blob(file: pa.NativeFile, offset: int, blob: Blob, key: bytes = NO_KEY) -> bytes:
    """Read one blob, which begins at this offset of a file.

    Raises:
        ValueError: its content is another one than when the index was made.
    """
    content = bytes(file.read_at(blob.length, offset))
    if len(content) != blob.length or not hmac.compare_digest(hashlib.sha256(content).digest(), blob.digest):
        refuse_digest(key)
    return content


def verify_blobs(
    stream: pa.NativeFile, name: str, key: bytes, listed: Callable[[bytes], Sequence[Blob]]
) -> None:  # fmt: skip
    """Check the seal and all blobs of a file, of which no more than the index and a block is in memory at a time.

    Args:
        stream: the file, from its beginning on.
        name: the name under which it was sealed.
        key: the key that signs it.
        listed: from the index to its blobs, in order.

    Raises:
        ValueError: seal, name and key do not match, a blob is another one, or the file does not end behind the last.
    """
    for _ in _verified(stream, name, key, listed):
        pass


def resealed(
    stream: pa.NativeFile, names: tuple[str, str], keys: tuple[bytes, bytes], listed: Callable[[bytes], Sequence[Blob]]
) -> Iterator[bytes]:
    """The content of a file under another name and key, piece by piece; blobs are checked as ``verify_blobs`` does.

    Args:
        stream: the file, from its beginning on.
        names: the name under which it was sealed, and that under which it will be.
        keys: the key that signs it, and the one that will.
        listed: from the index to its blobs, in order.

    Raises:
        ValueError: see ``verify_blobs``; what came before it is not to be used.
    """
    pieces = _verified(stream, names[0], keys[0], listed)
    yield with_blobs(next(pieces), (), names[1], keys[1])
    yield from pieces


def _verified(
    stream: pa.NativeFile, name: str, key: bytes, listed: Callable[[bytes], Sequence[Blob]]
) -> Iterator[bytes]:  # fmt: skip
    """The index of a file, and then the content of its blobs; raises a ValueError where it finds damage."""
    index, _ = read_index(stream, name, key)
    yield index
    for blob in listed(index):
        digest, left = hashlib.sha256(), blob.length
        while left and (block := stream.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
            yield block
        if left or not hmac.compare_digest(digest.digest(), blob.digest):
            refuse_digest(key)
    if stream.read(1):
        refuse_digest(key)
