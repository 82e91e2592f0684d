"""A marquee: a line of text that moves through a picture from right to left, in letters of five by seven dots.

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

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fries_nb.workloads.scenes import Pixels

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
    """A text and how it is drawn.

    Attributes:
        text: letters, digits and some punctuation; other characters become question marks.
        scale: side of a dot in pixels.
        speed: pixels by which it moves a frame.
        colour: red, green and blue of the text.
    """

    text: str
    scale: int = 2
    speed: int = 3
    colour: tuple[int, int, int] = (255, 255, 160)

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
    """The dots of a text.

    Args:
        text: see ``Marquee``; lower-case letters become capitals.
        scale: side of a dot in pixels.

    Returns:
        Whether each pixel is set; shared, so not to be changed.
    """
    columns: list[int] = []
    for character in text.upper():
        columns += [*bytes.fromhex(GLYPHS.get(character, GLYPHS["?"])), *[0] * SPACING]
    bits = np.array(columns, np.uint8)[None, :] >> np.arange(LINES, dtype=np.uint8)[:, None] & 1
    dots: Dots = np.kron(bits, np.ones((scale, scale), np.uint8)).astype(np.bool_)
    dots.setflags(write=False)
    return dots
