"""Geometry of boxes and edges, in pixels from the upper left corner of the picture."""

from __future__ import annotations

from dataclasses import dataclass

Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, given by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> Spot:
        """The centre of the box."""
        return self.x + self.width / 2, self.y + self.height / 2

    def moved(self, dx: float, dy: float) -> Box:
        """The same rectangle elsewhere."""
        return Box(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(frozen=True, slots=True)
class EdgePath:
    """An edge: its start, three points for each cubic Bézier curve, the tip of its arrow, and the label's centre."""

    points: tuple[Spot, ...]
    tip: Spot
    label: Spot | None = None

    @property
    def middle(self) -> Spot:
        """The centre of the label: the place reserved for it, or else the middle of the edge."""
        if self.label:
            return self.label
        return self._at(len(self.points) // 6, 0.5)

    @property
    def above(self) -> Spot:
        """The point of a rightward edge at the height of its label's centre."""
        wanted = self.middle[0]
        spots = [self._at(curve, part / 16) for curve in range(len(self.points) // 3) for part in range(17)]
        return min(spots, key=lambda spot: abs(spot[0] - wanted))

    def moved(self, dx: float, dy: float) -> EdgePath:
        """The same edge elsewhere."""
        points = tuple((x + dx, y + dy) for x, y in self.points)
        label = None if self.label is None else (self.label[0] + dx, self.label[1] + dy)
        return EdgePath(points, (self.tip[0] + dx, self.tip[1] + dy), label)

    def _at(self, curve: int, part: float) -> Spot:
        """The point at a fraction, 0 to 1, of one of the curves."""
        weights = (1 - part) ** 3, 3 * (1 - part) ** 2 * part, 3 * (1 - part) * part**2, part**3
        corners = self.points[3 * curve : 3 * curve + 4]
        x = sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True))
        y = sum(weight * corner[1] for weight, corner in zip(weights, corners, strict=True))
        return x, y


@dataclass(frozen=True, slots=True)
class Placed:
    """Boxes, edges and the boxes of loops, in the order in which they were requested."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    ways: tuple[EdgePath, ...]
    loops: tuple[Box, ...] = ()
