"""The files that one split of a directory has read: 18 bytes for each, which a checkpoint keeps.

A file is known by its name. Its identity (a hash of size, time of modification and content) tells a renamed file from a
new one. Of files that have left the directory the last ``KEPT_GONE`` are remembered.

>>> known = KnownFiles()
>>> known.add(hashed("a.csv"), 10, identity=7)
>>> again, name = KnownFiles(known.packed), hashed("a.csv")
>>> name in again, again.has_size(name, 10), again.has_size(name, 11), hashed("b.csv") in again
(True, True, False, False)
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator

KEPT_GONE = 10_000
"""Number of files that are no longer in the directory and that a split remembers."""

_ENTRY = struct.Struct("<QHQ")


def hashed(text: str | bytes) -> int:
    """A hash of 64 bits, the same in every process."""
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class KnownFiles:
    """The files that a split has read, in the order of reading.

    Args:
        packed: those of an earlier reader of the split.

    Attributes:
        packed: all of them as bytes; never changed, only replaced.
    """

    def __init__(self, packed: bytes = b"") -> None:
        self.packed = packed
        self._entries = {name: (size, identity) for name, size, identity in _ENTRY.iter_unpack(packed)}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: int) -> bool:
        """Whether a file whose name has this hash was read."""
        return name in self._entries

    def has_size(self, name: int, size: int) -> bool:
        """Whether a known file has the size with which it was read (or one that differs by a multiple of 65,536)."""
        then, _ = self._entries[name]
        return bool(then == size & 0xFFFF)

    def identities(self) -> Iterator[tuple[int, int]]:
        """The identity of each file, and the hash of its name."""
        return ((identity, name) for name, (_, identity) in self._entries.items())

    def add(self, name: int, size: int, identity: int) -> None:
        """Note that a file was read to its end."""
        entry = (name, size & 0xFFFF, identity)
        self._entries[entry[0]] = entry[1:]
        self.packed += _ENTRY.pack(*entry)

    def forget_gone(self, present: Collection[int]) -> list[int]:
        """Forget files that are no longer in the directory, but for the last ``KEPT_GONE``.

        Args:
            present: hashes of the names of all files in the directory.

        Returns:
            The identities of those that are forgotten.
        """
        gone = [name for name in self._entries if name not in present]
        forgotten = [self._entries.pop(name)[1] for name in gone[:-KEPT_GONE]]
        if forgotten:
            self.packed = b"".join(_ENTRY.pack(name, *rest) for name, rest in self._entries.items())
        return forgotten
