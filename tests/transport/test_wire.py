"""Bytes between hosts: what is encoded comes back, what is damaged is refused in words."""

from __future__ import annotations

import contextlib
import string
from collections import deque
from enum import Enum
from typing import Any, get_args, get_origin

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.errors import LinkError
from fries_nb.progress.progress_graph import CountChange, GraphLocation
from fries_nb.protocol.frames import Bundle
from fries_nb.protocol.messages import Answer, ChannelId, Data, End, Marker, Reconfigure, SetRate, Tag, WorkerId
from fries_nb.transport.envelopes import (
    ControllerMessage,
    FromHost,
    HostMessage,
    Line,
    Part,
    Said,
    ToHost,
    ToWorker,
    Welcome,
    decode_from_host,
    decode_to_host,
    encode,
)
from fries_nb.transport.wire import (
    INLINE,
    MERGED,
    SCHEMAS,
    Arrival,
    Credit,
    DataFrame,
    Head,
    Packer,
    Payload,
    Routes,
    Unpacker,
    read_head,
)

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


# ---- the tests


WORKERS = [WorkerId(name, index) for name in ("A", "B") for index in range(3)]
CHANNELS = tuple(ChannelId(a, b) for a in WORKERS[:3] for b in WORKERS[3:])
ROUTES = Routes(CHANNELS)

batches = st.builds(
    lambda numbers, words: pa.RecordBatch.from_pydict(
        {"n": numbers[: len(words)], "w": words[: len(numbers)]},
        schema=pa.schema({"n": pa.int64(), "w": pa.string()}),
    ),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.lists(st.none() | st.text(max_size=500), max_size=20),
)
stamps = st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple)
payloads = (
    st.builds(Data, batches, stamps, version=st.integers(0, 2**31)) | values(Marker) | st.just(End())
)
some_channels = st.lists(st.sampled_from(CHANNELS), min_size=1, unique=True)
credits_of_channels = some_channels.flatmap(
    lambda channels: st.tuples(
        st.just(channels), st.builds(Credit, st.tuples(*[st.integers(0, 2**40) for _ in channels]))
    )
)


def batch(rows: int = 1) -> pa.RecordBatch:
    """So many rows of one column."""
    return column(x=list(range(rows)))


def column(**values: list[Any]) -> pa.RecordBatch:
    """A batch of these columns."""
    return pa.RecordBatch.from_pydict(values)


bundles = st.lists(st.integers(0, 3), min_size=1, max_size=len(CHANNELS)).map(
    lambda rows: (
        list(CHANNELS[: len(rows)]),
        Bundle(batch(sum(rows)), tuple(rows), tuple([9 * one for one in rows]), len(rows), {0: Tag(1, 2)}),
    )
)
posts = st.lists(st.tuples(some_channels, payloads) | credits_of_channels | bundles, max_size=20)


def pack(packer: Packer, *payloads: Payload) -> list[Part]:
    """One message with these payloads on the first channel."""
    [parts] = pack_all(packer, [((0,), payload) for payload in payloads])
    return parts


def pack_all(packer: Packer, posted: list[tuple[tuple[int, ...], Payload]]) -> list[list[Part]]:
    """All messages that these frames make."""
    waiting = deque(posted)
    messages = []
    while waiting:
        messages.append(packer.pack(waiting))
    return messages


def unpack(unpacker: Unpacker, parts: list[Part]) -> list[Arrival]:
    """What a message holds."""
    return unpacker.unpack(read_head(parts[0]), parts[1:])


@pytest.fixture
def packer() -> Packer:
    """Host 0 in incarnation 1, sending."""
    return Packer(ROUTES, sender=0, incarnation=1)


@pytest.fixture
def unpacker() -> Unpacker:
    """Another host, hearing host 0."""
    return Unpacker(ROUTES, sender=0)


# ---- envelopes


@given(st.integers(0, 2**40), values(HostMessage))
def test_host_messages_round_trip(incarnation: int, message: HostMessage) -> None:
    """Whatever a host says is read back equal."""
    letter = FromHost(incarnation, 3, message)
    assert decode_from_host(encode(letter)) == letter


@given(st.integers(0, 2**40), values(ControllerMessage))
def test_controller_messages_round_trip(incarnation: int, message: ControllerMessage) -> None:
    """Whatever the controller says is read back equal."""
    letter = ToHost(incarnation, message)
    assert decode_to_host(encode(letter)) == letter


@given(st.lists(values(Answer), max_size=5))
def test_answers_keep_their_order(answers: list[Answer]) -> None:
    """Answers travel in one envelope in the order in which the workers gave them."""
    decoded = decode_from_host(encode(FromHost(1, 0, Said(tuple(answers)))))
    assert decoded.message == Said(tuple(answers))


@given(st.integers(0, 200))
def test_cut_control_message(length: int) -> None:
    """A control message cut off anywhere is refused."""
    encoded = encode(ToHost(1, ToWorker(WORKERS[0], SetRate(2.0))))
    if length < len(encoded):
        with pytest.raises(LinkError, match=f"got {length} bytes that are not the controller's message"):
            decode_to_host(encoded[:length])


def test_wrong_direction() -> None:
    """A host's message is none of the controller's."""
    with pytest.raises(LinkError, match="not a host's message"):
        decode_from_host(encode(ToHost(1, Welcome({0: "tcp://a:1"}))))


@given(st.binary(max_size=100))
def test_garbage_is_a_link_error(garbage: bytes) -> None:
    """Random bytes give a message or a ``LinkError`` and nothing else."""
    for decode in (decode_from_host, decode_to_host, read_head):
        with contextlib.suppress(LinkError):
            decode(garbage)


# ---- frames


@given(posts)
def test_frames_round_trip(posts: list[tuple[list[ChannelId], Payload]]) -> None:
    """Frames come back equal, in order, each with all its channels."""
    packer, unpacker = Packer(ROUTES, 0, 1), Unpacker(ROUTES, 0)
    got: list[Arrival] = []
    for parts in pack_all(packer, [(ROUTES.numbers(channels), payload) for channels, payload in posts]):
        got += unpack(unpacker, parts)
    assert got == [Arrival(tuple(channels), payload) for channels, payload in posts]


def test_marker_to_many_channels_travels_once(packer: Packer, unpacker: Unpacker) -> None:
    """A marker on all channels is one frame, whose bytes hold the marker once."""
    marker = Marker(1, frozenset({"A"}), Reconfigure("the-change", frozenset({"A"})))
    [[head]] = pack_all(packer, [(ROUTES.numbers(CHANNELS), marker)])
    assert len(read_head(head).frames) == 1
    assert bytes(head).count(b"the-change") == 1
    assert unpack(unpacker, [head]) == [Arrival(CHANNELS, marker)]


def test_schema_travels_once(packer: Packer, unpacker: Unpacker) -> None:
    """The schema is in the first batch's frame only, and again when it changes; metadata counts."""
    plain, other = column(x=[1]), column(y=["a"])
    noted = plain.replace_schema_metadata({"note": "1"})
    defined = []
    for each in (plain, plain, other, plain, other, noted, noted):
        parts = pack(packer, Data(each))
        [frame] = read_head(parts[0]).frames
        assert isinstance(frame, DataFrame)
        defined.append(bool(frame.definition))
        [arrival] = unpack(unpacker, parts)
        assert isinstance(arrival.frame, Data)
        assert arrival.frame.batch.equals(each, check_metadata=True)
    assert defined == [True, False, True, False, False, True, False]


def test_ever_new_schemas_stay_bounded(packer: Packer, unpacker: Unpacker) -> None:
    """More schemas than there are numbers still arrive whole: numbers are used again, newly defined."""
    many = [column(**{f"c{number}": [number]}) for number in range(2 * SCHEMAS + 5)]
    for each in (*many, *many[-3:], *many[:3]):
        [arrival] = unpack(unpacker, pack(packer, Data(each)))
        assert arrival.frame == Data(each)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([["a"], ["b", "a"], []]).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array([{"p": [1]}, None, {"p": []}]),
        pa.array([b"x" * INLINE] * 3),
        pa.nulls(3),
    ],
    ids=["dictionary", "list of dictionary", "nested", "large", "null"],
)
def test_any_column(packer: Packer, unpacker: Unpacker, values: pa.Array) -> None:
    """Batches of any Arrow type travel, dictionaries and slices included, and only the slice does."""
    whole = pa.RecordBatch.from_arrays([values], names=["c"])
    for each in (whole, whole.slice(1, 1), whole.slice(0, 0)):
        [arrival] = unpack(unpacker, pack(packer, Data(each)))
        assert isinstance(arrival.frame, Data)
        assert arrival.frame.batch.equals(each)


def test_large_batch_is_read_where_it_lies(packer: Packer, unpacker: Unpacker) -> None:
    """A large batch is a part of its own, and its columns point into that part; a small one lies in the head."""
    large, small = batch(INLINE), batch(1)
    parts = pack(packer, Data(small), Data(large))
    assert len(parts) == 2
    body = bytes(parts[1])
    start = pa.py_buffer(body).address
    arrivals = unpack(unpacker, [parts[0], body])
    assert [arrival.frame for arrival in arrivals] == [Data(small), Data(large)]
    assert isinstance(arrivals[1].frame, Data)
    [_, values] = arrivals[1].frame.batch.column(0).buffers()
    assert start <= values.address < start + len(body)


def test_frames_are_merged_up_to_a_size(packer: Packer, unpacker: Unpacker) -> None:
    """Many small frames make one message; a backlog of large ones makes several, each within reach of the limit."""
    assert len(pack_all(packer, [((0,), Credit((1,)))] * 500)) == 1
    unpacker._number = 1
    each = Data(batch(MERGED // 32))
    messages = pack_all(packer, [((0,), each)] * 9)
    assert len(messages) == 3
    assert [arrival.frame for parts in messages for arrival in unpack(unpacker, parts)] == [each] * 9


# ---- damage


def test_lost_message(packer: Packer, unpacker: Unpacker) -> None:
    """A gap in the count of messages is an error, not a quiet loss."""
    unpack(unpacker, pack(packer, End()))
    pack(packer, End())
    with pytest.raises(LinkError, match=r"got message 2 of host 0; expected message 1; .*frames were lost"):
        unpack(unpacker, pack(packer, End()))


def test_wrong_number_of_parts(packer: Packer) -> None:
    """Parts that the head does not announce, or that are missing, are refused."""
    parts = pack(packer, Data(batch(INLINE)))
    with pytest.raises(LinkError, match="got 0 batches from host 0; its head announced 1"):
        unpack(Unpacker(ROUTES, 0), parts[:1])
    with pytest.raises(LinkError, match="got 2 batches"):
        unpack(Unpacker(ROUTES, 0), [*parts, b"more"])


def test_unknown_schema(packer: Packer, unpacker: Unpacker) -> None:
    """A batch of a schema that was never defined is refused."""
    pack(packer, Data(batch()))
    parts = pack(packer, Data(batch()))
    unpacker._number = 1
    with pytest.raises(LinkError, match="batch of schema 0 from host 0; it has defined none"):
        unpack(unpacker, parts)


@given(st.data())
def test_cut_batch(data: st.DataObject) -> None:
    """A batch cut off anywhere is refused, and so is a head."""
    parts = pack(Packer(ROUTES, 0, 1), Data(batch(INLINE)))
    body, head = bytes(parts[1]), bytes(parts[0])
    with pytest.raises(LinkError, match="bytes from host 0 that are not an Arrow batch"):
        unpack(Unpacker(ROUTES, 0), [head, body[: data.draw(st.integers(0, len(body) - 100))]])
    with pytest.raises(LinkError, match="not the head of a frame message"):
        read_head(head[: data.draw(st.integers(0, len(head) - 1))])


@given(st.binary(max_size=300))
def test_garbage_batch(garbage: bytes) -> None:
    """Random bytes in place of a batch or of a schema are refused."""
    head = read_head(pack(Packer(ROUTES, 0, 1), Data(batch(INLINE)))[0])
    with pytest.raises(LinkError):
        Unpacker(ROUTES, 0).unpack(head, [garbage])
    for schema in (0, -1):
        damaged = DataFrame((0,), 0, 0, schema, garbage, garbage)
        with pytest.raises(LinkError):
            Unpacker(ROUTES, 0).unpack(msgspec.structs.replace(head, frames=(damaged,)), [])


def test_credit_for_other_channels_than_those_named(packer: Packer, unpacker: Unpacker) -> None:
    """Each channel has its own credit: one too few or too many is refused."""
    [parts] = pack_all(packer, [((0, 1), Credit((5,)))])
    with pytest.raises(LinkError, match="got 1 credits for 2 channels from host 0; expected one for each"):
        unpack(unpacker, parts)


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        (Bundle(batch(3), (1, 1), (5, 5)), r"a bundle of 3 rows from host 0; its frame announced \(1, 1\)"),
        (Bundle(batch(1), (2, -1), (5, 5)), r"announced \(2, -1\)"),
        (Bundle(batch(3), (3,), (5, 5)), "got 1 numbers of rows for 2 channels"),
        (Bundle(batch(3), (1, 2), (5,)), "got 1 sizes for 2 channels"),
    ],
)
def test_a_bundle_that_does_not_add_up(packer: Packer, unpacker: Unpacker, bundle: Bundle, words: str) -> None:
    """Rows would go to the wrong worker, or credit to the wrong channel."""
    [parts] = pack_all(packer, [((0, 1), bundle)])
    with pytest.raises(LinkError, match=words):
        unpack(unpacker, parts)


def test_oversized(packer: Packer) -> None:
    """A frame above the limit is refused at either end, by both sizes."""
    small = Packer(ROUTES, 0, 1, limit=1000)
    with pytest.raises(LinkError, match=r"a frame of \d+ bytes; expected at most 1000"):
        pack(small, Data(batch(1000)))
    parts = pack(packer, Data(batch(INLINE)))
    with pytest.raises(LinkError, match="expected at most 1000"):
        Unpacker(ROUTES, 0, limit=1000).unpack(read_head(parts[0]), parts[1:])
    with pytest.raises(LinkError, match="expected at most 10"):
        read_head(parts[0], limit=10)


def test_other_channels() -> None:
    """Hosts that list the channels differently notice it at the first message."""
    parts = pack(Packer(ROUTES, 0, 1), End())
    with pytest.raises(LinkError, match="host 0 lists other channels"):
        unpack(Unpacker(Routes(CHANNELS[::-1]), 0), parts)


@pytest.mark.parametrize("number", [-1, len(CHANNELS)])
def test_channel_number_out_of_range(number: int, packer: Packer, unpacker: Unpacker) -> None:
    """A channel number that names no channel is refused."""
    [parts] = pack_all(packer, [((number,), End())])
    with pytest.raises(LinkError, match=f"channel number {number}; expected 0 to 8"):
        unpack(unpacker, parts)


def test_head_says_who_and_when(packer: Packer) -> None:
    """The head tells incarnation, sender and count before anything else is read."""
    pack(packer, End())
    head = read_head(pack(packer, End())[0])
    assert isinstance(head, Head)
    assert (head.incarnation, head.sender, head.number, head.routes) == (1, 0, 1, ROUTES.checksums[1])
