"""Splits messages so that no part on the wire is longer than ``PIECE``.

ZeroMQ reads a part completely before it inspects it, even from a peer that has not proved a key. The maximum part size
therefore bounds the memory that each such peer can occupy. A piece of full length is continued by the next one, so a
part always ends with a shorter piece, which may be empty.

>>> parts = [b"head", bytes(PIECE + 1), bytes(PIECE), b""]
>>> [len(piece) for piece in split(parts)] == [4, PIECE, 1, PIECE, 0, 0]
True
>>> joined(split(parts)) == parts
True
"""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.errors import LinkError

PIECE = 1 << 20
"""Maximum length of a piece in bytes. Most batches are shorter and are read without a copy."""

Part = bytes | memoryview


def split(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts of a message as pieces."""
    if all(len(part) < PIECE for part in parts):
        return parts
    views = [memoryview(part) for part in parts]
    return [view[at : at + PIECE] for view in views for at in range(0, len(view) + 1, PIECE)]


def joined(pieces: Sequence[Part]) -> Sequence[Part]:
    """The parts of a message, from its pieces.

    Raises:
        LinkError: the last part is truncated.
    """
    if all(len(piece) < PIECE for piece in pieces):
        return pieces
    parts: list[Part] = []
    begun: list[Part] = []
    for piece in pieces:
        begun.append(piece)
        if len(piece) < PIECE:
            parts.append(b"".join(begun) if begun[1:] else piece)
            begun.clear()
    if begun:
        raise LinkError(f"got a message whose last part lacks its end after {sum(map(len, begun))} bytes")
    return parts
