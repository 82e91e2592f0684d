"""The chains of a run as they are now, which follow from those with which it began and the answers of hosts.

A chain is a host's own business, and each parallel instance may have others. An answer names the whole chain of a
worker; what is left of the chains from which its operators came are chains of their own.

>>> from fries_nb.protocol.messages import WorkerId
>>> chains = RunningChains([("A",), ("B", "C")], {"A": 2, "B": 2, "C": 2})
>>> list(map(str, chains.chained))
['B + C']
>>> chains = chains.after(Chained(WorkerId("A", 1), ("A", "B")))
>>> list(map(str, chains.chained))
['B + C (worker 0 of 2)', 'A + B (worker 1 of 2)']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fries_nb.protocol.messages import Chained


@dataclass(frozen=True, slots=True)
class ChainedOperators:
    """Operators of which some or all parallel instances run as one chain.

    Attributes:
        operators: names of the operators in order, at least two.
        indices: the parallel instances.
        workers: the number of parallel instances of each operator.
    """

    operators: tuple[str, ...]
    indices: tuple[int, ...]
    workers: int

    def __str__(self) -> str:
        names = " + ".join(self.operators)
        if len(self.indices) == self.workers:
            return names
        noun = "worker" if len(self.indices) == 1 else "workers"
        return f"{names} ({noun} {', '.join(map(str, self.indices))} of {self.workers})"


@dataclass(frozen=True, slots=True)
class ChainChange:
    """The chains of a run from a time on.

    Attributes:
        at_s: the time, in seconds since the Unix epoch.
        chains: the chains of at least two operators, as text.
    """

    at_s: float
    chains: tuple[str, ...]


class RunningChains:
    """The chains of all workers; immutable.

    Args:
        begun: the operators grouped into chains, as at the start.
        changed: for each index at which they differ from those, the present chains.
    """

    def __init__(
        self,
        begun: Iterable[tuple[str, ...]],
        workers: Mapping[str, int],
        changed: Mapping[int, tuple[tuple[str, ...], ...]] = {},
    ) -> None:
        self._begun = tuple(begun)
        self._workers = workers
        self._changed = changed

    def after(self, answer: Chained) -> RunningChains:
        """The chains after an answer."""
        index, names = answer.worker.index, answer.operators
        before = self._at(index)
        after = tuple(part for chain in before for part in _without(chain, names))
        return self if names in before or not names else self._with(index, (*after, names))

    def restarted(self) -> RunningChains:
        """Those of the start, since a restarted run has the chains of its topology."""
        return RunningChains(self._begun, self._workers)

    @cached_property
    def chained(self) -> tuple[ChainedOperators, ...]:
        """The chains of at least two operators, each with the instances that it has."""
        found: dict[tuple[str, ...], list[int]] = {}
        for index in range(max(self._workers.values(), default=0)):
            for chain in self._at(index):
                if len(chain) > 1:
                    found.setdefault(chain, []).append(index)
        return tuple(ChainedOperators(chain, tuple(at), self._workers[chain[0]]) for chain, at in found.items())

    def _at(self, index: int) -> tuple[tuple[str, ...], ...]:
        begun = tuple(chain for chain in self._begun if index < self._workers[chain[0]])
        return self._changed.get(index, begun)

    def _with(self, index: int, chains: tuple[tuple[str, ...], ...]) -> RunningChains:
        return RunningChains(self._begun, self._workers, {**self._changed, index: chains})


def _without(chain: tuple[str, ...], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The parts of a chain before and behind these operators; the whole chain if it has none of them."""
    places = [place for place, name in enumerate(chain) if name in names]
    if not places:
        yield chain
        return
    yield from (part for part in (chain[: places[0]], chain[places[-1] + 1 :]) if part)
