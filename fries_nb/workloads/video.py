"""The six-task pipeline of the Nephele paper (section 4.1): video streams in groups of four, merged to one each.

Partitioner -> Decoder -> Merger -> Overlay -> Encoder -> Server, between a source of packets and a sink. Partitioners
receive the encoded packets of the streams and assign each to a group, whose Decoder makes pictures of them; the Merger
waits for the four pictures of a group with the same number, and tiles them; the Overlay draws a marquee, the Encoder
makes packets again. The Server, the paper's RTP server, takes a packet's size and checksum instead of sending it.

Frames are real: drawn by ``scenes``, coded by ``frame_codec``. Streams stay in order, since the edges are keyed by
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
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import fries_nb as fn
from fries_nb.workloads.frame_codec import CHANNELS, COMPRESSION, decode, encode
from fries_nb.workloads.marquee import Marquee
from fries_nb.workloads.scenes import Pixels, Scene

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

    Attributes:
        streams: number of streams, a multiple of four.
        height: number of lines of a frame.
        width: number of pixels of a line.
        seed: determines what the streams show.

    Raises:
        ValueError: a number is out of range.
    """

    streams: int
    height: int = 120
    width: int = 160
    seed: int = 0

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

        Returns:
            A description for ``Dataflow.source``.

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

        Returns:
            ``group``, ``stream``, ``number``, and the picture as ``height``, ``width`` and ``pixels``.

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

    Yields:
        ``group``, ``number``, ``size`` and ``checksum``, by number, then by group.
    """
    for number in range(frames):
        for group in range(feed.streams // GROUP):
            pixels = tiled([feed.frame(group * GROUP + place, number) for place in range(GROUP)])
            marquees[group % len(marquees)].draw(pixels, number)
            packet = encode(pixels, level=level)
            yield {"group": group, "number": number, "size": len(packet), "checksum": zlib.crc32(packet)}
