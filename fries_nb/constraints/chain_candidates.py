"""The series of a sequence's tasks that could run as one chain (Nephele Streaming, section 3.5.2).

Tasks of a series run on one host, are connected by channels that are the only ones between their operators' workers,
and together use less than a share of a core. Operators that are chained already belong to a series as a whole or not at
all, since the processor time of operators outside the sequence is unknown.

>>> path = [WorkerId(name, 0) for name in ("A", "B", "C", "D")]
>>> chains = [("A", "B"), ("A", "B"), ("C",), ("D",)]
>>> longest_series(path, joinable=[True, True, True], chains=chains, processor=[0.2, 0.2, 0.3, 0.4])
ChainOperators(operators=('A', 'B', 'C'), index=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fries_nb.constraints.reactions import ChainOperators
from fries_nb.messages import WorkerId
from fries_nb.topology.topology import Topology

MOST_PROCESSOR = 0.9
"""Share of a core that the tasks of a chain use together at most."""


class ChainRules:
    """Which workers may be neighbours in a chain: those that a topology with chaining would chain, on one host.

    Args:
        topology: the workers and their hosts, with chaining or without.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._groups = {name: chain for chain in replace(topology, chaining=True).chains for name in chain}

    def are_joinable(self, sender: WorkerId, receiver: WorkerId) -> bool:
        """Whether two workers that are neighbours on a sequence may be chained.

        Args:
            sender: the first of them.
            receiver: the second.
        """
        return (
            sender.index == receiver.index
            and receiver.operator in self._groups[sender.operator]
            and self._topology.host_of(sender) == self._topology.host_of(receiver)
        )


def longest_series(
    path: Sequence[WorkerId],
    joinable: Sequence[bool],
    chains: Sequence[tuple[str, ...]],
    processor: Sequence[float],
) -> ChainOperators | None:
    """The longest series that is not one chain yet; of equal ones the first.

    Args:
        path: the workers of a sequence.
        joinable: for each pair of neighbours, whether their operators may be chained and they share host and index.
        chains: for each worker, the operators of the chain in which it runs now.
        processor: for each worker, the share of a core that it uses; NaN if unknown.

    Returns:
        The instruction; ``None`` if there is no such series.
    """
    for length in range(len(path), 1, -1):
        for start in range(len(path) - length + 1):
            end = start + length
            names = tuple(worker.operator for worker in path[start:end])
            inside = set(names).issuperset(name for chain in chains[start:end] for name in chain)
            is_chained = chains[start] == names
            # A sum with an unknown one is NaN, and not below the bound.
            is_light = sum(processor[start:end]) < MOST_PROCESSOR
            if all(joinable[start : end - 1]) and inside and is_light and not is_chained:
                return ChainOperators(names, path[start].index)
    return None
