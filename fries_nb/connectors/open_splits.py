"""The splits that a worker reads, and which of them it reads next.

>>> even, odd = Split(0, first=0, step=2), Split(1, first=1, step=2)
>>> splits = [OpenSplit(even, reader=None, position=Position(3)), OpenSplit(odd, reader=None, position=Position(1))]
>>> [(one.split.number, count) for one, count in shares(splits, 10)]
[(1, 2)]
>>> splits[1].position = Position(3)
>>> [(one.split.number, count) for one, count in shares(splits, 5)]
[(0, 3), (1, 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fries_nb.connectors.source import (
    NOTHING_SKIPPED,
    Position,
    Skipped,
    SkippingReader,
    Split,
    SplitReader,
    Undecoded,
    UndecodedReader,
)


@dataclass(eq=False)
class OpenSplit:
    """A split that is being read; ``turn`` is the reader's count at its last read."""

    split: Split
    reader: SplitReader
    position: Position
    turn: int = 0

    def __post_init__(self) -> None:
        self._undecoded = self.reader.undecoded if isinstance(self.reader, UndecodedReader) else []
        self._skips = isinstance(self.reader, SkippingReader)

    @property
    def skipped(self) -> Skipped:
        """What its reader has left out."""
        return self.reader.skipped if self._skips else NOTHING_SKIPPED  # type: ignore[attr-defined]

    def close(self) -> None:
        """Release what its reader holds."""
        close = getattr(self.reader, "close", None)  # to ask a protocol takes a hundred times as long
        if close is not None:
            close()

    def take_undecoded(self) -> list[Undecoded]:
        """What its reader has set aside since the last call."""
        taken = self._undecoded.copy()
        self._undecoded.clear()
        return taken

    @property
    def place(self) -> int:
        """The number of its next row in the order of the source; without an order, ``turn``."""
        return self.split.place(self.position.row) if self.split.step else self.turn

    @property
    def left_in_block(self) -> int:
        """Number of consecutive rows of the source, from its next row on."""
        return self.split.block - self.position.row % self.split.block


def shares(splits: Sequence[OpenSplit], limit: int) -> list[tuple[OpenSplit, int]]:
    """The splits to read next, with numbers of rows.

    Splits whose rows alternate are read together. Without an order all are listed in turn, and read until one has rows.

    Args:
        splits: the splits, at least one.
        limit: maximum number of rows.
    """
    order = sorted(splits, key=lambda one: one.place) if len(splits) > 1 else splits
    step = order[0].split.step
    if not step or len(order) == 1:
        return [(one, limit) for one in order]
    if order[0].split.block > 1:
        return [(order[0], min(limit, order[0].left_in_block))]
    bound = order[0].place + step
    together = [one for one in order if one.place < bound]
    if len(together) < len(order):
        rounds = -((together[-1].place - order[len(together)].place) // step)
        limit = min(limit, rounds * len(together))
    each, more = divmod(limit, len(together))
    return [(one, each + (place < more)) for place, one in enumerate(together) if each or place < more]
