"""Values of messages, drawn by their types."""

from __future__ import annotations

import string
from enum import Enum
from typing import Any, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.progress.progress_graph import CountChange, GraphLocation
from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.transport.envelopes import Line

names = st.text(string.ascii_letters, min_size=1, max_size=8)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
    Any: st.none() | st.integers(0, 9) | st.text(max_size=5),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that a message may hold."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is WorkerId:
        return st.builds(WorkerId, names, st.integers(0, 1000))
    if kind is Line:
        return st.builds(Line, names, st.text())
    if kind is ChannelId:
        return st.builds(ChannelId, values(WorkerId), values(WorkerId), st.integers(1, 9))
    if kind is CountChange:
        place = st.builds(GraphLocation, names, names, st.integers(0, 9))
        numbers = st.integers(-(2**63), 2**63 - 1)
        return st.builds(CountChange, place, st.lists(numbers, max_size=4).map(tuple), numbers)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if kind is LatencyConstraint:
        return st.builds(LatencyConstraint, st.lists(names, max_size=3).map(tuple), st.floats(1, 1e6))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)})
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is dict:
        return st.dictionaries(*map(values, arguments), max_size=3)
    if origin is frozenset:
        return st.frozensets(names, max_size=3)
    if arguments:
        return st.one_of(*map(values, arguments))
    return PLAIN[kind]
