"""Rows that a reader takes from several splits at a time, in the order of the source.

>>> even, odd = Split(0, first=0, step=2), Split(1, first=1, step=2)
>>> pieces = [Piece(pa.record_batch({"n": [0, 2]}), even, 0), Piece(pa.record_batch({"n": [1, 3]}), odd, 0)]
>>> batch, order = joined(pieces)
>>> batch.column("n").to_pylist(), order.tolist()
([0, 1, 2, 3], [0, 2, 1, 3])
>>> described(pieces, order, 1)
"row 0 of split 1, {'n': 1}"
"""

from __future__ import annotations

import reprlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fries_nb.connectors.source import Split
from fries_nb.errors import SourceError


class Piece(NamedTuple):
    """Consecutive rows of one split."""

    batch: pa.RecordBatch
    split: Split
    row: int

    def numbers(self, first: int, step: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each row ``first + row * step``."""
        return np.arange(self.row, self.row + self.batch.num_rows, dtype=np.int64) * step + first


def joined(pieces: list[Piece]) -> tuple[pa.RecordBatch, np.ndarray[tuple[int], np.dtype[np.int64]] | None]:
    """The rows of all pieces in order, and their indices in the concatenated pieces; ``None`` if these are the same."""
    if len(pieces) == 1:
        return pieces[0].batch, None
    order = _order(pieces) if any(piece.batch.num_rows > 1 for piece in pieces) else None
    try:
        batch = pa.concat_batches([piece.batch for piece in pieces])
        return batch if order is None else batch.take(pa.array(order)), order
    except pa.ArrowException as error:
        raise SourceError(f"splits of one source gave rows with different columns: {error}") from error


def described(pieces: list[Piece], order: np.ndarray[tuple[int], np.dtype[np.int64]] | None, index: int) -> str:
    """The row of an index in the joined pieces, in words."""
    place = index if order is None else int(order[index])
    for piece in pieces:
        if place < piece.batch.num_rows:
            [row] = piece.batch.slice(place, 1).to_pylist()
            return f"row {piece.row + place:,} of split {piece.split.number}, {reprlib.repr(row)}"
        place -= piece.batch.num_rows
    raise IndexError(index)


def _order(pieces: list[Piece]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The indices of the concatenated pieces' rows, in the order of the source."""
    count = len(pieces)
    turns = [np.arange(place, piece.batch.num_rows * count, count) for place, piece in enumerate(pieces)]
    ranks = np.concatenate(turns)
    if ranks.max() == len(ranks) - 1:  # one row of each in turn: no need to sort
        order = np.empty(len(ranks), np.int64)
        order[ranks] = np.arange(len(ranks))
        return order
    places = np.concatenate([piece.numbers(piece.split.first, piece.split.step) for piece in pieces])  # block is 1
    return np.argsort(places, kind="stable")
