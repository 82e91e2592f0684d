"""How many hosts a dataflow needs at the rates of its sources, in the manner of DS2 (Kalavri et al., OSDI 2018).

An operator costs so many nanoseconds of a processor for each tuple that it takes in, and takes in so many tuples for
each one of the sources (its selectivity). At a target rate of the sources, these products sum up to a number of busy
cores. A host is one process with one interpreter lock, so it has one core, of which ``BUSY_SHARE`` is to be used. What
the hosts need for sending and receiving does not count. The target rate is what the sources are to deliver, and a
selectivity is that of the path: what arrives at an operator for each tuple that the operators above have processed. So
the answer is the same whether or not the dataflow keeps up: no trials are needed.

>>> before = {"S": Totals(1_000, 1_000, 2_000_000), "FM": Totals(1_000, 1_000, 300_000_000)}
>>> after = {"S": Totals(3_000, 3_000, 6_000_000), "FM": Totals(1_600, 2_800, 480_000_000)}  # 1,200 are queued
>>> demands = demands_of(before, after, {"S": (), "FM": ("S",)})
>>> for one in demands:
...     print(one.operator, one.useful_ns, round(one.selectivity, 2))
S 2000.0 1.0
FM 300000.0 0.9
>>> cores = cores_needed(demands, rate=6_000)
>>> round(cores, 3), hosts_needed(cores), hosts_needed(cores=0.1)
(1.632, 3, 1)

Functions that wait, for a service or a disk, need no processor, but a worker each: so many have to stay.

>>> slow = OperatorDemand("FM", useful_ns=50_000, selectivity=1.0, busy_ns=10_000_000)
>>> round(slow.workers_needed(rate=100), 3)
1.25
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

BUSY_SHARE = 0.8
"""Share of a host's core that is to be used, so that there is room for peaks."""


class Totals(NamedTuple):
    """What the workers of an operator have done since the start.

    Attributes:
        processed: tuples taken in.
        arrived: these, and those that wait for it.
        useful_ns: processor time in nanoseconds.
        busy_ns: duration of their turns in nanoseconds, of workers with slow tuples only.
    """

    processed: int
    arrived: int
    useful_ns: int
    busy_ns: int = 0


@dataclass(frozen=True)
class OperatorDemand:
    """What an operator needs of a processor.

    Attributes:
        operator: the operator; the first one of a chain stands for all of it.
        useful_ns: nanoseconds of a processor for each tuple that it takes in.
        selectivity: number of tuples that arrive at it for each tuple of the sources.
        busy_ns: nanoseconds for which a worker with slow tuples is busy with each, waits included; 0 for other workers.
    """

    operator: str
    useful_ns: float
    selectivity: float
    busy_ns: float = 0.0

    def workers_needed(self, rate: float, busy_share: float = BUSY_SHARE) -> float:
        """The number of workers that such slow tuples keep busy for that share of the time; 0 if they are quick.

        Args:
            rate: target rate of all sources together, in tuples per second.
            busy_share: share of a worker's time that is to be used.
        """
        return self.busy_ns * self.selectivity * rate / 1e9 / busy_share


def demands_of(
    before: Mapping[str, Totals], after: Mapping[str, Totals], upstream: Mapping[str, Collection[str]]
) -> tuple[OperatorDemand, ...]:
    """What the operators have needed between two moments.

    Args:
        before: operator to its totals at the first one.
        after: the same at the second one.
        upstream: operator to those whose output it takes in, in topological order; none for sources.

    Returns:
        The demand of each operator; empty if the sources have delivered nothing, if totals have fallen, as when workers
        have left or were restored, or if an operator has taken in nothing though tuples wait for it: then it is inside
        a call that takes longer, and it is not known yet what a tuple costs.
    """
    passed = {
        name: Totals(*(end - begin for begin, end in zip(before[name], now, strict=True)))
        for name, now in after.items()
        if name in before
    }
    delivered = sum(passed[name].processed for name, above in upstream.items() if not above and name in passed)
    if delivered <= 0 or any(min(one.processed, one.useful_ns, one.busy_ns) < 0 for one in passed.values()):
        return ()
    if any(not passed[name].processed and after[name].arrived > after[name].processed for name in passed):
        return ()
    selectivity: dict[str, float] = {}
    for name, above in upstream.items():
        if name not in passed:  # it had not reported at the first moment
            continue
        known = [one for one in above if one in selectivity]
        sent = sum(passed[one].processed for one in known)
        if not above:
            selectivity[name] = passed[name].processed / delivered
        elif sent:
            selectivity[name] = max(0, passed[name].arrived) / sent * sum(selectivity[one] for one in known)
    return tuple(
        OperatorDemand(name, one.useful_ns / one.processed, selectivity[name], one.busy_ns / one.processed)
        for name, one in passed.items()
        if one.processed and name in selectivity
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
