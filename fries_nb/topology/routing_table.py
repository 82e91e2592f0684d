"""Routing tables as values: which worker of a keyed operator owns each bin of the key space.

An operator whose bins have never moved needs no table: its bins are dealt in contiguous ranges
(``partitioning.routing_table``).

>>> two = RoutingTable.even(2)
>>> moves = two.moves_to(RoutingTable.even(3))
>>> moves[400], moves[1023], len(moves)
((0, 1), (1, 2), 511)
>>> two.moved(moves) == RoutingTable.even(3), two.width, RoutingTable.even(3).width
(True, 2, 3)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fries_nb.errors import DataflowError
from fries_nb.topology.partitioning import BINS, Bins, routing_table

Moves = dict[int, tuple[int, int]]
"""Bin to the index of its owner before and after."""
_PACKED = np.dtype("<u2")


@dataclass(frozen=True)
class RoutingTable:
    """The owner of each bin.

    Attributes:
        packed: for each bin the index of the worker that owns it, as an unsigned 16-bit number, little-endian.
    """

    packed: bytes

    def __post_init__(self) -> None:
        if len(self.packed) != BINS * _PACKED.itemsize:
            raise DataflowError(f"a routing table has {len(self.packed) // 2} bins; expected {BINS}")

    @classmethod
    def of(cls, owners: Iterable[int]) -> RoutingTable:
        """The table with these owners, bin by bin.

        Raises:
            DataflowError: there are more or fewer owners than bins.
        """
        return cls(np.fromiter(owners, dtype=_PACKED).tobytes())

    @classmethod
    def even(cls, workers: int) -> RoutingTable:
        """The table of an operator whose bins have never moved."""
        return cls(routing_table(workers).astype(_PACKED).tobytes())

    @cached_property
    def owners(self) -> Bins:
        """The owner of each bin, as an array; not to be changed."""
        owners = np.frombuffer(self.packed, dtype=_PACKED).astype(np.int64)
        owners.flags.writeable = False
        return owners

    @property
    def width(self) -> int:
        """The number of workers that it needs: one more than the highest index of an owner."""
        return int(self.owners.max()) + 1

    def owns(self, worker: int) -> bool:
        """Whether the worker with this index owns any bin."""
        return bool((self.owners == worker).any())

    def moves_to(self, target: RoutingTable) -> Moves:
        """The bins whose owner is another one in this table, in order."""
        differ = np.flatnonzero(self.owners != target.owners).tolist()
        return {bin_: (int(self.owners[bin_]), int(target.owners[bin_])) for bin_ in differ}

    def moved(self, moves: Mapping[int, tuple[int, int]]) -> RoutingTable:
        """The table after these moves."""
        owners = self.owners.copy()
        owners[list(moves)] = [after for _, after in moves.values()]
        return RoutingTable.of(owners.tolist())
