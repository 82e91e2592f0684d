"""Frames of made-up cameras: shapes that move in front of a fixed background, drawn from a seed.

A frame is an array of height x width x 3 bytes: red, green and blue. It is a function of the scene and of its number,
so it is made without those before it; and consecutive frames differ as those of a camera do, where something moves.

>>> scene = Scene(seed=7, height=48, width=64)
>>> first, second = scene.frame(0), scene.frame(1)
>>> first.shape, bool((first == scene.frame(0)).all())
((48, 64, 3), True)
>>> 0 < float((first != second).any(axis=2).mean()) < 0.5  # most pixels stay
True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

SHAPES = 4
TILE = 16
"""Side of the tiles of the background, in pixels."""
FASTEST = 0.02
"""Highest speed of a shape along an axis, in sides of the image a frame."""


@dataclass(frozen=True)
class Scene:
    """What one camera films.

    Attributes:
        seed: determines the background and the shapes.
        height: number of lines of pixels.
        width: number of pixels of a line.
    """

    seed: int
    height: int
    width: int

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
