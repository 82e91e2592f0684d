"""Places in a picture, in pixels from its upper left corner."""

from __future__ import annotations

from dataclasses import dataclass

Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> Spot:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class EdgePath:
    """An edge: a start and three points for each cubic curve, the tip of its arrow, and the middle of its label."""

    points: tuple[Spot, ...]
    tip: Spot
    label: Spot | None = None

    @property
    def middle(self) -> Spot:
        """Where a label goes: the room kept for it, else halfway along."""
        if self.label:
            return self.label
        return self._at(len(self.points) // 6, 0.5)

    @property
    def above(self) -> Spot:
        """The spot of the edge itself that is level with the middle of its label, for edges that go to the right."""
        wanted = self.middle[0]
        spots = [self._at(curve, part / 16) for curve in range(len(self.points) // 3) for part in range(17)]
        return min(spots, key=lambda spot: abs(spot[0] - wanted))

    def _at(self, curve: int, part: float) -> Spot:
        """The spot at this part, 0 to 1, of one of the curves."""
        weights = (1 - part) ** 3, 3 * (1 - part) ** 2 * part, 3 * (1 - part) * part**2, part**3
        corners = self.points[3 * curve : 3 * curve + 4]
        x = sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True))
        y = sum(weight * corner[1] for weight, corner in zip(weights, corners, strict=True))
        return x, y


@dataclass(frozen=True, slots=True)
class Placed:
    """Boxes and ways in the order in which they were asked for."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    ways: tuple[EdgePath, ...]
