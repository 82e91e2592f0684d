"""A trace on its way to the driver: nothing is lost, and a long one costs the driver next to nothing to take in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import Ran, RanMany, Record, Updated
from fries_nb.transport.envelopes import FromHost, PackedRun, Records, decode_from_host, encode, pack, unpack

identities = st.integers(min_value=0, max_value=2**63 - 1)
records = st.one_of(
    st.builds(RanMany, st.lists(identities, max_size=20).map(tuple), st.text(), st.integers(0, 99)),
    st.builds(Ran, identities | st.text(), st.text(), st.integers(0, 99)),
    st.builds(Updated, st.text(), st.text(), st.integers(0, 99)),
)


@given(st.lists(records))
def test_records_arrive_as_they_were(trace: list[Record]) -> None:
    """Packed, encoded, decoded, unpacked: the same records in the same order."""
    letter = FromHost(1, 0, Records(WorkerId("A", 0), tuple(map(pack, trace))))
    message = decode_from_host(encode(letter)).message
    assert isinstance(message, Records)
    assert [unpack(record) for record in message.records] == trace


def test_a_run_of_operations_is_one_object() -> None:
    """The driver decodes no integer of it: at tens of millions a second it would miss its pulses."""
    packed = pack(RanMany(tuple(range(100_000)), "A"))
    assert isinstance(packed, PackedRun)
    assert len(packed.transactions) == 800_000
