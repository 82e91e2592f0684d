"""The trace of a run: for each region its description, then its workers' records.

The source tuples of different regions have different identities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fries_nb.dataflow.regions import Region
from fries_nb.protocol.trace import Emitted, Ran, RanMany, Record, TraceFlow, WorkerRecord, flow_of
from fries_nb.transport.envelopes import Packed, unpack


@dataclass(frozen=True)
class Part:
    """The trace of one region.

    Attributes:
        region: the region.
        packed: the records of its workers, packed.
        resumed: whether it was resumed from a checkpoint of an earlier run, whose trace is not included.
        before: the changes that this checkpoint includes.
        finished: whether all of its workers have ended.
        workers: operator to the largest number of workers that it has had, where hosts have joined.
    """

    region: Region
    packed: Iterable[Packed]
    resumed: bool
    before: tuple[str, ...]
    finished: bool
    workers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunTrace:
    """The records of a run at one moment; can be iterated repeatedly.

    Attributes:
        parts: the trace of each region so far.
    """

    parts: tuple[Part, ...]

    def __iter__(self) -> Iterator[Record]:
        for number, part in enumerate(self.parts):
            named = _namer(number, part.region)
            flow = flow_of(part.region.graph, part.resumed, part.finished, part.before)
            yield _flow(named, msgspec.structs.replace(flow, workers={**flow.workers, **part.workers}))
            for packed in part.packed:
                yield in_region(number, named, unpack(packed))


def _namer(number: int, region: Region) -> Callable[[str], str]:
    """A function from a region's operators to their names in the trace.

    Inputs and sinks at which the dataflow was cut may occur in several regions; their names are prefixed by the
    region's number.
    """
    own = frozenset(region.own)
    return lambda name: name if name in own or not number else f"{number + 1}/{name}"


def _flow(named: Callable[[str], str], flow: TraceFlow) -> TraceFlow:
    links = tuple(msgspec.structs.replace(link, source=named(link.source), to=named(link.to)) for link in flow.links)
    workers = {named(operator): workers for operator, workers in flow.workers.items()}
    return msgspec.structs.replace(flow, workers=workers, links=links)


def in_region(number: int, named: Callable[[str], str], record: WorkerRecord) -> WorkerRecord:
    """A record with names that are unique over regions: source tuples of later regions get the region's number.

    Args:
        number: index of the region; records of the first one are unchanged.
        named: maps operators to their names in the trace.
        record: the record.

    >>> in_region(1, str.lower, RanMany((7, 8), "FM"))
    RanMany(transactions=('2/7', '2/8'), operator='fm', worker=0, function=None)
    """
    if not number:
        return record
    changes: dict[str, Any] = {"operator": named(record.operator)}
    if isinstance(record, (RanMany, Emitted)):
        changes["transactions"] = tuple(f"{number + 1}/{one}" for one in record.transactions)
    elif isinstance(record, Ran):
        changes["transaction"] = f"{number + 1}/{record.transaction}"
    return msgspec.structs.replace(record, **changes)
