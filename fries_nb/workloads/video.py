"""The six-task pipeline of the Nephele paper (section 4.1): video streams in groups of four, merged to one each.

Partitioner -> Decoder -> Merger -> Overlay -> Encoder -> Server, between a source of packets and a sink. Partitioners
receive the encoded packets of the streams and assign each to a group, whose Decoder makes pictures of them; the Merger
waits for the four pictures of a group with the same number, and tiles them; the Overlay draws a marquee, the Encoder
makes packets again. The Server, the paper's RTP server, takes a packet's size and checksum instead of sending it.

Frames are real: drawn by ``Scene``, coded by ``encode``. Streams stay in order, since the edges are keyed by
stream, then by group. Decoder and Merger keep their state by group; both have the same key, so of the channels between
them only those between workers of one index are used, the ones that the paper has. Overlay and Encoder keep no state:
edges to them are forward ones, along which operators can be chained, and the Encoder makes key packets only.

>>> feed = VideoFeed(streams=4, height=24, width=32)
>>> states = {"Decoder": Decoder().initial_state(), "Merger": Merger().initial_state()}
>>> def merged(packet):
...     return Merger().process(Decoder().process(Partitioner()(packet), states["Decoder"]), states["Merger"])
>>> made = [Server()(Encoder()(Overlay()(row))) for packet in map(feed, range(8)) if (row := merged(packet))]
>>> [(row["group"], row["number"]) for row in made], made == list(video_reference(feed, frames=2))
([(0, 0), (0, 1)], True)

A lossless codec of pictures on numpy and zlib, with the two kinds of packets that video codecs have.

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

Frames of made-up cameras: shapes that move in front of a fixed background, drawn from a seed.

A frame is an array of height x width x 3 bytes: red, green and blue. It is a function of the scene and of its number,
so it is made without those before it; and consecutive frames differ as those of a camera do, where something moves.

>>> scene = Scene(seed=7, height=48, width=64)
>>> first, second = scene.frame(0), scene.frame(1)
>>> first.shape, bool((first == scene.frame(0)).all())
((48, 64, 3), True)
>>> 0 < float((first != second).any(axis=2).mean()) < 0.5  # most pixels stay
True

A marquee: a line of text that moves through a picture from right to left, in letters of five by seven dots.

>>> for line in lettering("HI", 1):
...     print("".join(".#"[int(dot)] for dot in line))
#...#..###..
#...#...#...
#...#...#...
#####...#...
#...#...#...
#...#...#...
#...#..###..
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import fries_nb as fn

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


Pixels = npt.NDArray[np.uint8]

SHAPES = 4
TILE = 16
"""Side of the tiles of the background, in pixels."""
FASTEST = 0.02
"""Highest speed of a shape along an axis, in sides of the image a frame."""


@dataclass(frozen=True)
class Scene:
    """What one camera films."""

    seed: int  # determines the background and the shapes
    height: int  # number of lines of pixels
    width: int  # number of pixels of a line

    def frame(self, number: int) -> Pixels:
        """The picture at a time, counted in frames from 0; a new array."""
        pixels = _background(self).copy()
        for shape in _shapes(self):
            shape.draw(pixels, number)
        return pixels


@dataclass(frozen=True)
class _Shape:
    """A square or a disc that bounces off the borders; lengths are in pixels, speeds in pixels a frame."""

    is_disc: bool
    radius: int
    colour: tuple[int, ...]
    start: tuple[float, float]
    speed: tuple[float, float]

    def draw(self, pixels: Pixels, number: int) -> None:
        (top, left), side = self._corner(number, pixels.shape), 2 * self.radius
        part = pixels[top : top + side, left : left + side]
        if self.is_disc:
            part[_disc(self.radius)[: part.shape[0], : part.shape[1]]] = self.colour
        else:
            part[:] = self.colour

    def _corner(self, number: int, size: tuple[int, ...]) -> tuple[int, int]:
        room = [max(1, length - 2 * self.radius) for length in size[:2]]
        top, left = (
            bounced(start + speed * number, limit)
            for start, speed, limit in zip(self.start, self.speed, room, strict=True)
        )
        return int(top), int(left)


def bounced(way: float, limit: float) -> float:
    """The place between 0 and a limit of something that turns back at both.

    >>> [bounced(way, 10) for way in (0, 7, 10, 13, 20, 23)]
    [0, 7, 10, 7, 0, 3]
    """
    return limit - abs(way % (2 * limit) - limit)


@lru_cache(maxsize=64)
def _background(scene: Scene) -> Pixels:
    """A wall of tiles in shades of one colour, lighter to one side; shared, so not to be changed."""
    rng = np.random.default_rng([scene.seed, 0])
    size = scene.height // TILE + 1, scene.width // TILE + 1
    left, right = rng.uniform(-40, 40, 2)
    light = np.linspace(left, right, size[1])[None, :, None]
    tiles = rng.uniform(70, 180, 3) + light + rng.integers(-12, 13, (*size, 1))
    lines, columns = np.mgrid[0 : scene.height, 0 : scene.width] // TILE
    made: Pixels = tiles.astype(np.uint8)[lines, columns]
    made.setflags(write=False)
    return made


@lru_cache(maxsize=64)
def _shapes(scene: Scene) -> tuple[_Shape, ...]:
    rng = np.random.default_rng([scene.seed, 1])
    size = np.array([scene.height, scene.width])
    smallest = max(2, int(size.min()) // 16)
    made = []
    for number in range(SHAPES):
        start, speed = rng.uniform(0, size), rng.uniform(0.2, 1, 2) * FASTEST * size
        made.append(
            _Shape(
                is_disc=number % 2 == 0,
                radius=int(rng.integers(smallest, 2 * smallest)),
                colour=tuple(rng.integers(0, 256, 3).tolist()),
                start=(float(start[0]), float(start[1])),
                speed=(float(speed[0]), float(speed[1])),
            )
        )
    return tuple(made)


@lru_cache(maxsize=64)
def _disc(radius: int) -> npt.NDArray[np.bool_]:
    across = np.arange(2 * radius) - radius + 0.5
    inside: npt.NDArray[np.bool_] = across[:, None] ** 2 + across[None, :] ** 2 <= radius**2
    return inside


Dots = npt.NDArray[np.bool_]

GLYPHS = {
    " ": "0000000000", "A": "7e1111117e", "B": "7f49494936", "C": "3e41414122", "D": "7f4141221c", "E": "7f49494941",
    "F": "7f09090901", "G": "3e4149497a", "H": "7f0808087f", "I": "00417f4100", "J": "2040413f01", "K": "7f08142241",
    "L": "7f40404040", "M": "7f020c027f", "N": "7f0408107f", "O": "3e4141413e", "P": "7f09090906", "Q": "3e4151215e",
    "R": "7f09192946", "S": "4649494931", "T": "01017f0101", "U": "3f4040403f", "V": "1f2040201f", "W": "3f4038403f",
    "X": "6314081463", "Y": "0708700807", "Z": "6151494543", "0": "3e5149453e", "1": "00427f4000", "2": "4261514946",
    "3": "2141454b31", "4": "1814127f10", "5": "2745454539", "6": "3c4a494930", "7": "0171090503", "8": "3649494936",
    "9": "064949291e", ".": "0060600000", ",": "0050300000", ":": "0036360000", "!": "00005f0000", "?": "0201510906",
    "-": "0808080808", "+": "08083e0808", "/": "2010080402", "#": "147f147f14", "'": "0005030000", "@": "324979413e",
}  # fmt: skip
"""Character to its five columns of dots in hexadecimal, from left to right; the lowest bit is the highest dot."""
LINES = 7
SPACING = 1
"""Empty columns behind a character."""


@dataclass(frozen=True)
class Marquee:
    """A text and how it is drawn."""

    text: str  # letters, digits and some punctuation; other characters become question marks
    scale: int = 2  # side of a dot in pixels
    speed: int = 3  # pixels by which it moves a frame
    colour: tuple[int, int, int] = (255, 255, 160)  # red, green and blue of the text

    def draw(self, pixels: Pixels, number: int) -> None:
        """Draw it into the picture of this number, near its lower border, over a darkened band."""
        dots = lettering(self.text, self.scale)
        high = dots.shape[0] + 2 * self.scale
        band = pixels[-high:]
        band >>= 1
        width = band.shape[1]
        # The text enters at the right border, and again once it has left at the other one.
        offset = (number * self.speed) % (dots.shape[1] + width) - width
        seen = dots[:, max(0, offset) : offset + width]
        left = max(0, -offset)
        inner = band[self.scale : self.scale + dots.shape[0], left : left + seen.shape[1]]
        inner[seen[: inner.shape[0]]] = self.colour


@lru_cache(maxsize=64)
def lettering(text: str, scale: int) -> Dots:
    """The dots of a text, whether each pixel is set; shared, so not to be changed.

    Args:
        text: see ``Marquee``; lower-case letters become capitals.
        scale: side of a dot in pixels.
    """
    columns: list[int] = []
    for character in text.upper():
        columns += [*bytes.fromhex(GLYPHS.get(character, GLYPHS["?"])), *[0] * SPACING]
    bits = np.array(columns, np.uint8)[None, :] >> np.arange(LINES, dtype=np.uint8)[:, None] & 1
    dots: Dots = np.kron(bits, np.ones((scale, scale), np.uint8)).astype(np.bool_)
    dots.setflags(write=False)
    return dots


Row = dict[str, Any]
Decoded = dict[int, tuple[int, Pixels]]
"""Stream to the number of its last frame, and the frame."""
Waiting = dict[int, dict[int, bytes]]
"""Number of a frame to the frames of that number that have arrived, by their place in the group."""

ACROSS = 2
GROUP = ACROSS * ACROSS
"""Streams that are merged into one."""
TASKS = ("Partitioner", "Decoder", "Merger", "Overlay", "Encoder", "Server")
SCENES = 8
"""Number of different scenes; further streams repeat them."""
CLIP = 50
"""Frames after which a stream repeats itself, with a key packet; two seconds at the paper's rate."""
SMALLEST, LARGEST = 16, 4_096
FEEDS = (
    Marquee("Live from the square: the crowd grows, and more are on their way"),
    Marquee("Are you here too? Send us your stream #citizens"),
)


@dataclass(frozen=True)
class VideoFeed:
    """Packets of many streams in turn, as the function ``row`` of ``fn.rate``: value v is of stream v % streams.

    Raises:
        ValueError: a number is out of range.
    """

    streams: int  # number of streams, a multiple of four
    height: int = 120  # number of lines of a frame
    width: int = 160  # number of pixels of a line
    seed: int = 0  # determines what the streams show

    def __post_init__(self) -> None:
        if self.streams < GROUP or self.streams % GROUP:
            raise ValueError(f"VideoFeed(streams={self.streams!r}): expected a multiple of {GROUP}, a group's size")
        for name, length in (("height", self.height), ("width", self.width)):
            if not SMALLEST <= length <= LARGEST:
                raise ValueError(f"VideoFeed({name}={length!r}): expected pixels, from {SMALLEST} to {LARGEST:,}")

    def __call__(self, value: int) -> Row:
        """The columns ``stream``, ``number`` (of the frame in its stream) and ``packet``."""
        number, stream = divmod(value, self.streams)
        return {"stream": stream, "number": number, "packet": _clip(self._scene(stream))[number % CLIP]}

    def source(self, frames_per_s: float | None, frames: int | None = None) -> Any:
        """The source of the packets.

        Args:
            frames_per_s: frames per second of each stream; ``None`` for as fast as the dataflow takes them.
            frames: frames of each stream after which it ends; ``None`` for an endless source.

        Raises:
            SourceError: a number is not positive.
        """
        rate = None if frames_per_s is None else frames_per_s * self.streams
        return fn.rate(rate, None if frames is None else frames * self.streams, self)

    def frame(self, stream: int, number: int) -> Pixels:
        """The picture that was encoded."""
        return self._scene(stream).frame(number % CLIP)

    def _scene(self, stream: int) -> Scene:
        return Scene(self.seed * SCENES + stream % SCENES, self.height, self.width)


@lru_cache(maxsize=4 * SCENES)
def _clip(scene: Scene) -> tuple[bytes, ...]:
    """The packets of a stream: a key packet, then deltas. Made where the source runs, and there only once."""
    frames = [scene.frame(number) for number in range(CLIP)]
    return tuple(encode(frame, before) for frame, before in zip(frames, [None, *frames], strict=False))


@dataclass(frozen=True)
class Partitioner:
    """Assigns streams to groups, four consecutive ones to each.

    >>> Partitioner()({"stream": 6, "number": 0, "packet": b""})["group"]
    1
    """

    size: int = GROUP

    def __call__(self, row: Row) -> Row:
        """Add the column ``group``."""
        row["group"] = row["stream"] // self.size
        return row


@dataclass(frozen=True)
class Decoder:
    """Makes pictures of the packets of a group; its state is the last picture of each stream."""

    def initial_state(self) -> Decoded:
        """No picture yet."""
        return {}

    def process(self, row: Row, state: Decoded) -> Row:
        """Decode the packet.

        Returns ``group``, ``stream``, ``number``, and the picture as ``height``, ``width`` and ``pixels``.

        Raises:
            ValueError: the packet is damaged, or a delta to a frame that is not the last one.
        """
        stream, number = row["stream"], row["number"]
        last, before = state.get(stream, (None, None))
        try:
            pixels = decode(row["packet"], before if last == number - 1 else None)
        except ValueError as error:
            raise ValueError(f"frame {number} of stream {stream}, after frame {last}: {error}") from error
        state[stream] = (number, pixels)
        return {"group": row["group"], "stream": stream, "number": number, **_columns(pixels)}


@dataclass(frozen=True)
class Merger:
    """Tiles the pictures of a group with one number; its state are those that wait for the others."""

    def initial_state(self) -> Waiting:
        """No picture waits."""
        return {}

    def process(self, row: Row, state: Waiting) -> Row | None:
        """Add the picture to those of its number; returns the tiled picture once they are complete."""
        number, place = row["number"], row["stream"] % GROUP
        waiting = state.setdefault(number, {})
        waiting[place] = row["pixels"]
        if len(waiting) < GROUP:
            return None
        del state[number]
        size = row["height"], row["width"]
        tiles = [_pixels(waiting[place], *size) for place in range(GROUP)]
        return {"group": row["group"], "number": number, **_columns(tiled(tiles))}


@dataclass(frozen=True)
class Overlay:
    """Draws a marquee into each picture; groups use the marquees in turn.

    Raises:
        ValueError: there is no marquee.
    """

    marquees: tuple[Marquee, ...] = FEEDS

    def __post_init__(self) -> None:
        if not self.marquees:
            raise ValueError("Overlay(marquees=()): expected at least one Marquee")

    def __call__(self, row: Row) -> Row:
        """Replace the pixels."""
        pixels = _pixels(row["pixels"], row["height"], row["width"]).copy()
        self.marquees[row["group"] % len(self.marquees)].draw(pixels, row["number"])
        row["pixels"] = pixels.tobytes()
        return row


@dataclass(frozen=True)
class Encoder:
    """Makes a key packet of each picture; a lower ``level``, from 1 to 9, makes larger ones faster."""

    level: int = COMPRESSION

    def __call__(self, row: Row) -> Row:
        """Encode the picture; returns ``group``, ``number`` and ``packet``."""
        packet = encode(_pixels(row["pixels"], row["height"], row["width"]), level=self.level)
        return {"group": row["group"], "number": row["number"], "packet": packet}


@dataclass(frozen=True)
class Server:
    """Takes the place of the server that offers a group's stream to its audience."""

    def __call__(self, row: Row) -> Row:
        """Return ``group``, ``number``, and ``size`` and ``checksum`` (CRC-32) of the packet."""
        packet = row["packet"]
        return {
            "group": row["group"], "number": row["number"], "size": len(packet), "checksum": zlib.crc32(packet),
        }  # fmt: skip


def tiled(tiles: list[Pixels]) -> Pixels:
    """One picture of those of a group, two in a line.

    >>> tiled([np.full((1, 1, 3), n, np.uint8) for n in range(4)])[:, :, 0].tolist()
    [[0, 1], [2, 3]]
    """
    return np.vstack([np.hstack(tiles[first : first + ACROSS]) for first in range(0, GROUP, ACROSS)])


def _columns(pixels: Pixels) -> Row:
    return {"height": pixels.shape[0], "width": pixels.shape[1], "pixels": pixels.tobytes()}


def _pixels(content: bytes, height: int, width: int) -> Pixels:
    return np.frombuffer(content, np.uint8).reshape(height, width, CHANNELS)


def video_flow(
    source: Any,
    sink: Any,
    workers: int | None = None,
    marquees: tuple[Marquee, ...] = FEEDS,
    level: int = COMPRESSION,
    chain: bool = True,
) -> fn.Dataflow:
    """The dataflow, with one worker for Src.

    Args:
        source: description of the source, such as ``VideoFeed(streams=8).source(frames_per_s=25)``.
        sink: description of the sink, such as ``fn.memory()``; its rows are those of ``Server``.
        workers: parallel instances of the other operators; the run's default if None.
        marquees: texts of the Overlay.
        level: compression level of the Encoder.
        chain: whether Merger, Overlay and Encoder may share a worker.
    """
    flow = fn.Dataflow("video")
    packets = flow.source("Src", source, workers=1)
    grouped = packets.map("Partitioner", Partitioner(), key="stream", workers=workers)
    frames = grouped.map("Decoder", Decoder(), key="group", workers=workers)
    merged = frames.map("Merger", Merger(), key="group", workers=workers)
    drawn = merged.map("Overlay", Overlay(marquees), workers=workers, chain=chain)
    encoded = drawn.map("Encoder", Encoder(level), workers=workers, chain=chain)
    encoded.map("Server", Server(), key="group", workers=workers).sink("Sink", sink, workers=workers)
    return flow


def video_reference(
    feed: VideoFeed, frames: int, marquees: tuple[Marquee, ...] = FEEDS, level: int = COMPRESSION
) -> Iterator[Row]:
    """The rows of ``video_flow`` computed from the original pictures, without packets, operators or state.

    Args:
        feed: the streams.
        frames: number of frames of each stream.
        marquees: see ``video_flow``.
        level: see ``video_flow``.

    Yields ``group``, ``number``, ``size`` and ``checksum``, by number, then by group.
    """
    for number in range(frames):
        for group in range(feed.streams // GROUP):
            pixels = tiled([feed.frame(group * GROUP + place, number) for place in range(GROUP)])
            marquees[group % len(marquees)].draw(pixels, number)
            packet = encode(pixels, level=level)
            yield {"group": group, "number": number, "size": len(packet), "checksum": zlib.crc32(packet)}
