"""The size of the output buffers of a constrained path: bounded where sizes are adapted or given, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from fries_nb.constraints.reactions import START_BYTES
from fries_nb.dataflow.constraints import constraint_of
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.host.constraint_watch import ConstraintWatch
from fries_nb.host.region_spec import Options, RegionSpec
from fries_nb.protocol.messages import WorkerId
from fries_nb.transport.sockets import make_keys
from fries_nb.worker.events import Event, Observe

GRAPH = Graph("pair", (Operator("A"), Operator("B")), (Edge("A", "B"),))
OPTIONS = Options(1, 1000, False, False, None, 10.0, 0, (constraint_of(GRAPH, ["A", "B"], latency_ms=300),))


@pytest.mark.parametrize(
    ("adapt", "buffer_bytes", "size"), [(True, 0, START_BYTES), (False, 0, 0), (False, 900, 900), (True, 900, 900)]
)
def test_a_measured_buffer_is_bounded_only_if_sizes_are_adapted_or_given(
    adapt: bool, buffer_bytes: int, size: int
) -> None:
    """Measuring alone leaves frames as large as they are without a constraint, and so costs no throughput by them."""
    options = replace(OPTIONS, adapt=adapt, buffer_bytes=buffer_bytes)
    region = RegionSpec("r", 1, GRAPH, {}, {}, {}, "", make_keys().hosts, "", options, cast(Any, None))
    posted: list[Event] = []
    watch = ConstraintWatch(
        region, 0, lambda _, event: posted.append(event), lambda *_: None, lambda _: None, lambda *_: None
    )
    watch.begin([(WorkerId("A", 0),), (WorkerId("B", 0),)], {0: "tcp://here:1"})
    assert {event.size for event in posted if isinstance(event, Observe)} == {size}
