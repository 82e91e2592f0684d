"""A lossless codec of pictures on numpy and zlib, with the two kinds of packets that video codecs have.

A *key* packet holds a picture by itself, each line as its difference to the line above; a *delta* packet holds the
difference to the picture before it, and can be decoded only by a decoder that has that one. So a decoder of a stream
keeps state, as one of H.264 does. Differences are computed modulo 256 and compressed by zlib. Python's own zlib is
enough for real costs and sizes, and hosts need no further package; being lossless, it lets a whole pipeline be compared
with a plain loop, byte by byte.

>>> import numpy as np
>>> before, after = np.zeros((2, 48, 64, 3), np.uint8)
>>> after[10:20, 10:20] = 200
>>> key, delta = encode(before), encode(after, before)
>>> is_key(key), is_key(delta), len(delta) < 100
(True, False, True)
>>> bool((decode(delta, decode(key)) == after).all())
True
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from fries_nb.workloads.scenes import Pixels

COMPRESSION = 6
"""Level of zlib, from 1 (fast) to 9 (small)."""
CHANNELS = 3
_HEADER = struct.Struct("<cHH")
_KEY, _DELTA = b"K", b"D"


def encode(pixels: Pixels, before: Pixels | None = None, level: int = COMPRESSION) -> bytes:
    """Encode a picture.

    Args:
        pixels: height x width x 3 bytes, at most 65,535 either way.
        before: the picture before it, of the same size; ``None`` for a key packet.
        level: level of zlib.

    Returns:
        The packet.

    Raises:
        ValueError: the pictures differ in size.
    """
    if before is None:
        kind, difference = _KEY, pixels.copy()
        difference[1:] -= pixels[:-1]
    else:
        _refuse_other_size(pixels, before)
        kind, difference = _DELTA, pixels - before
    return _HEADER.pack(kind, *pixels.shape[:2]) + zlib.compress(difference.tobytes(), level)


def decode(packet: bytes, before: Pixels | None = None) -> Pixels:
    """Decode a packet.

    Args:
        packet: made by ``encode``.
        before: the picture before it, which a delta packet needs.

    Returns:
        The picture.

    Raises:
        ValueError: the packet is damaged or none; or it is a delta packet, and the picture before it is missing or has
            another size.
    """
    kind, height, width = _header(packet)
    try:
        content = zlib.decompress(packet[_HEADER.size :])
    except zlib.error as error:
        raise ValueError(f"a packet of {len(packet):,} bytes is damaged: {error}; expected one of encode") from None
    if len(content) != height * width * CHANNELS:
        raise ValueError(
            f"a packet has {len(content):,} bytes of picture; expected {width} x {height} x {CHANNELS}; is it damaged?"
        )
    difference = np.frombuffer(content, np.uint8).reshape(height, width, CHANNELS)
    if kind == _KEY:
        return np.cumsum(difference, axis=0, dtype=np.uint8)
    if before is None:
        raise ValueError("got a delta packet without the picture before it; expected a key packet first")
    _refuse_other_size(difference, before)
    return difference + before


def is_key(packet: bytes) -> bool:
    """Whether a packet can be decoded by itself.

    Raises:
        ValueError: it is no packet.
    """
    return _header(packet)[0] == _KEY


def _header(packet: bytes) -> tuple[bytes, int, int]:
    kind, height, width = _HEADER.unpack_from(packet) if len(packet) >= _HEADER.size else (b"", 0, 0)
    if kind not in (_KEY, _DELTA):
        raise ValueError(f"got {packet[:8]!r}...; expected a packet, which begins with {_KEY!r} or {_DELTA!r}")
    return kind, height, width


def _refuse_other_size(pixels: Pixels, before: Pixels) -> None:
    if pixels.shape != before.shape:
        raise ValueError(
            f"got a picture of {_size(pixels)} after one of {_size(before)}; expected one size in a stream, or a key "
            "packet where it changes"
        )


def _size(pixels: Pixels) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"
