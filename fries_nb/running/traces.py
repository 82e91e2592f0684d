"""The trace of a run: of each region what ran, then what its workers wrote. Each region's source tuples are its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from fries_nb.dataflow.regions import Region
from fries_nb.trace import Emitted, Ran, RanMany, Record, TraceFlow, WorkerRecord, flow_of
from fries_nb.transport.packing import Packed, unpack


@dataclass(frozen=True)
class Part:
    """The trace of one region, as its driver keeps it.

    Attributes:
        resumed: it began at a checkpoint of an earlier run, whose trace is not here.
        finished: all its workers have ended.
    """

    region: Region
    packed: Iterable[Packed]
    resumed: bool
    finished: bool


@dataclass(frozen=True)
class RunTrace:
    """The records of a run as they were at a moment, read on each iteration."""

    parts: tuple[Part, ...]

    def __iter__(self) -> Iterator[Record]:
        for number, part in enumerate(self.parts):
            named = _namer(number, part.region)
            yield _flow(named, flow_of(part.region.graph, part.resumed, part.finished))
            for packed in part.packed:
                yield in_region(number, named, unpack(packed))


def _namer(number: int, region: Region) -> Callable[[str], str]:
    """What the trace calls a region's operators: the ends at which the dataflow was cut may be in several regions."""
    own = frozenset(region.own)
    return lambda name: name if name in own or not number else f"{number + 1}/{name}"


def _flow(named: Callable[[str], str], flow: TraceFlow) -> TraceFlow:
    links = tuple(msgspec.structs.replace(link, source=named(link.source), to=named(link.to)) for link in flow.links)
    workers = {named(operator): workers for operator, workers in flow.workers.items()}
    return msgspec.structs.replace(flow, workers=workers, links=links)


def in_region(number: int, named: Callable[[str], str], record: WorkerRecord) -> WorkerRecord:
    """A record of a further region: its source tuples are not those of the first, whatever their numbers.

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
