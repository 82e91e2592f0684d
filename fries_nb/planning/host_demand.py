"""How many hosts a dataflow needs at the rates of its sources, in the manner of DS2 (Kalavri et al., OSDI 2018).

An operator costs so many nanoseconds of a processor for each tuple that it takes in, and takes in so many tuples for
each one of the sources (its selectivity). At a target rate of the sources, these products sum up to a number of busy
cores. A host is one process with one interpreter lock, so it has one core, of which ``BUSY_SHARE`` is to be used. Time
in which functions wait, and what the hosts need for sending and receiving, do not count. The target rate is what the
sources are to deliver, so the answer is the same whether or not the dataflow keeps up: no trials are needed.

>>> before = {"S": Totals(1_000, 2_000_000), "FM": Totals(1_000, 300_000_000)}
>>> after = {"S": Totals(3_000, 6_000_000), "FM": Totals(2_800, 840_000_000)}
>>> demands = demands_of(before, after, sources=["S"])
>>> for one in demands:
...     print(one.operator, one.useful_ns, round(one.selectivity, 2))
S 2000.0 1.0
FM 300000.0 0.9
>>> cores = cores_needed(demands, rate=6_000)
>>> round(cores, 3), hosts_needed(cores), hosts_needed(cores=0.1)
(1.632, 3, 1)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

BUSY_SHARE = 0.8
"""Share of a host's core that is to be used, so that there is room for peaks."""


class Totals(NamedTuple):
    """What the workers of an operator have done since the start: tuples taken in, and processor time in nanoseconds."""

    tuples: int
    useful_ns: int


@dataclass(frozen=True)
class OperatorDemand:
    """What an operator needs of a processor.

    Attributes:
        operator: the operator; the first one of a chain stands for all of it.
        useful_ns: nanoseconds of a processor for each tuple that it takes in.
        selectivity: number of tuples that it takes in for each tuple of the sources.
    """

    operator: str
    useful_ns: float
    selectivity: float


def demands_of(
    before: Mapping[str, Totals], after: Mapping[str, Totals], sources: Collection[str]
) -> tuple[OperatorDemand, ...]:
    """What the operators have needed between two moments.

    Args:
        before: operator to its totals at the first one.
        after: the same at the second one.
        sources: the sources.

    Returns:
        The demand of each operator; empty if the sources have delivered nothing, or if totals have fallen, as when
        workers have left or were restored.
    """
    passed = {
        name: Totals(now.tuples - before[name].tuples, now.useful_ns - before[name].useful_ns)
        for name, now in after.items()
        if name in before
    }
    delivered = sum(passed[name].tuples for name in sources if name in passed)
    if delivered <= 0 or any(min(one) < 0 for one in passed.values()):
        return ()
    return tuple(
        OperatorDemand(name, one.useful_ns / one.tuples, one.tuples / delivered)
        for name, one in passed.items()
        if one.tuples
    )


def cores_needed(demands: Iterable[OperatorDemand], rate: float) -> float:
    """The number of cores that these demands keep busy.

    Args:
        demands: the demand of each operator.
        rate: target rate of all sources together, in tuples per second.
    """
    return sum(one.useful_ns * one.selectivity for one in demands) * rate / 1e9


def hosts_needed(cores: float, busy_share: float = BUSY_SHARE) -> int:
    """The number of hosts for so many busy cores.

    Args:
        cores: number of busy cores.
        busy_share: share of a host's core that is to be used.
    """
    return max(1, math.ceil(cores / busy_share - 1e-9))
