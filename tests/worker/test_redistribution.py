"""At any number of workers a checkpoint's state is restored once, where the rows of its keys go."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.connectors.source import Split, in_turn, restored_positions, splits_of
from fries_nb.dataflow.graph import Graph, Kind, Operator
from fries_nb.errors import CheckpointError
from fries_nb.operators.instance import Instance
from fries_nb.operators.pickled_states import loaded_states, part_of_states
from fries_nb.protocol.checkpoints import Checkpoint, Position, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import BINS, Binning, bins_of_keys, routing_table
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import Redistribution, restore

KEYS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
    st.lists(st.integers(2**63, 2**64 - 1), unique=True),
    st.lists(st.floats(allow_nan=False), unique=True),
    st.lists(st.text(), unique=True),
    st.lists(st.one_of(st.none(), st.booleans()), unique=True),
    st.lists(st.one_of(st.none(), st.decimals(allow_nan=False, allow_infinity=False, places=3)), unique=True),
    st.lists(st.datetimes(), unique=True),
)


@given(KEYS, st.integers(1, 9))
def test_state_is_routed_as_rows_are(keys: list[object], workers: int) -> None:
    """The bin of a key in state is that of the rows that have it, whatever its type: 1,024 of them."""
    assert BINS == 1024
    try:
        kind = pa.uint64() if keys and isinstance(keys[0], int) and keys[0] >= 2**63 else None
        batch = pa.record_batch({"k": pa.array(keys, kind)})
    except pa.ArrowInvalid:  # decimals too far apart for one column
        return
    if keys:
        of_rows = Binning(("k",)).of(batch)
        assert bins_of_keys(batch.column(0).to_pylist()).tolist() == of_rows.tolist()
        assert set(routing_table(workers)[of_rows].tolist()) <= set(range(workers))


def of(workers: int) -> Graph:
    """The operator with so many workers."""
    return Graph("one", (Operator("M", key=("k",), workers=workers),), ())


def taken(workers: int, keys: range, ended: tuple[int, ...] = ()) -> tuple[Checkpoint, dict[WorkerId, Snapshot]]:
    """A checkpoint of an operator M: each worker has the states of its own keys."""
    owner = routing_table(workers)
    held = {}
    for index in range(workers):
        instance = Instance(WorkerId("M", index), Operator("M", key=("k",)), None, audit=False)
        mine = [key for key in keys if owner[bins_of_keys([key])[0]] == index]
        instance.state.load({key: [key] for key in mine})
        instance.begin_at(len(mine), ("u1",))
        held[WorkerId("M", index)] = saved(instance)
    gone = {WorkerId("M", index) for index in ended}
    record = Checkpoint(
        "r", 1, 1, {str(one): "file" for one in held if one not in gone}, tuple(map(str, gone)), workers={"M": workers}
    )
    return record, {worker: snapshot for worker, snapshot in held.items() if worker not in gone}


@pytest.mark.parametrize("seed", range(30))
def test_every_key_is_restored_once_and_where_its_rows_go(seed: int) -> None:
    """From any number of workers to any other, and to the same."""
    chance = random.Random(seed)
    before, after = chance.randint(1, 6), chance.randint(1, 6)
    keys = range(chance.choice((0, 3, 500)))
    record, held = taken(before, keys)
    redistribution, owner = Redistribution(record, of(after)), routing_table(after)
    found: list[int] = []
    for index in range(after):
        worker = WorkerId("M", index)
        snapshot = redistribution.snapshot(worker, {one: held[one] for one in redistribution.read_from(worker)})
        assert snapshot is not None
        assert (snapshot.operator, snapshot.index, snapshot.applied) == ("M", index, ("u1",))
        restored = Instance(worker, Operator("M", key=("k",)), None, audit=False)
        for_key = (loaded_states(parts, {}).items() for parts in snapshot.bins.values())
        restored.state.load({key: state for held in for_key for key, state in held})
        assert all(owner[bins_of_keys([key])[0]] == index for key in restored.state.live)
        found += restored.state.live
    assert sorted(found) == list(keys)


def test_a_worker_counts_on_from_its_own_snapshot_and_a_new_one_from_none() -> None:
    """So the trace of a worker goes on, and that of a newcomer begins."""
    record, held = taken(2, range(100))
    grown = Redistribution(record, of(3))
    assert [grown.snapshot(WorkerId("M", index), held).processed for index in range(3)] == [
        held[WorkerId("M", 0)].processed, held[WorkerId("M", 1)].processed, 0
    ]  # fmt: skip
    same = Redistribution(record, of(2))
    assert same.snapshot(WorkerId("M", 1), held) is held[WorkerId("M", 1)]
    assert same.read_from(WorkerId("M", 1)) == [WorkerId("M", 1)]


def test_an_operator_has_ended_at_another_number_of_workers_if_all_had() -> None:
    """With the same number each worker by itself."""
    record, held = taken(2, range(10), ended=(0,))
    same, other = Redistribution(record, of(2)), Redistribution(record, of(3))
    assert [same.had_ended(WorkerId("M", index)) for index in (0, 1)] == [True, False]
    assert not any(other.had_ended(WorkerId("M", index)) for index in range(3))
    assert same.snapshot(WorkerId("M", 0), held) is None
    assert other.read_from(WorkerId("M", 2)) == [WorkerId("M", 1)]
    over, _ = taken(2, range(10), ended=(0, 1))
    assert all(Redistribution(over, of(3)).had_ended(WorkerId("M", index)) for index in range(3))
    assert Redistribution(None, of(3)).read_from(WorkerId("M", 0)) == ()
    assert Redistribution(None, of(3)).snapshot(WorkerId("M", 0), {}) is None


def test_a_state_that_no_key_divides_and_a_snapshot_that_is_missing_are_refused() -> None:
    """Two workers' states under the one key ``None`` cannot both be one worker's."""
    one = Snapshot("M", 0, 5, bins={7: (part_of_states({None: [1]})[0],)})
    two = Snapshot("M", 1, 5, bins={7: (part_of_states({None: [2]})[0],)})
    record = Checkpoint("r", 4, 1, {"M[0]": "a", "M[1]": "b"}, workers={"M": 2})
    held = {WorkerId("M", 0): one, WorkerId("M", 1): two}
    with pytest.raises(CheckpointError, match="state of M is not divided by a key: it can be restored at 2 workers"):
        Redistribution(record, of(1)).snapshot(WorkerId("M", 0), held)
    for workers in (1, 2):
        with pytest.raises(CheckpointError, match=r"checkpoint 4 lacks the snapshot of M\[0\]"):
            Redistribution(record, of(workers)).snapshot(WorkerId("M", 0), {WorkerId("M", 1): two})


def test_an_instance_goes_on_with_the_keys_of_several() -> None:
    """Two workers' keys, restored into one."""
    record, held = taken(2, range(40))
    worker = WorkerId("M", 0)
    shrunk = Redistribution(record, of(1)).snapshot(worker, held)
    instance = Instance(worker, Operator("M", key=("k",)), None, audit=False)
    assert shrunk is not None
    restore(instance, shrunk, ())
    assert (len(instance.state), instance.applied) == (40, shrunk.applied)
    assert {key for parts in shrunk.bins.values() for key in loaded_states(parts, {})} == set(range(40))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4), (4, 4)])
@pytest.mark.parametrize("ended", [(), (0,)])
@pytest.mark.parametrize("step", [1, 7])
def test_every_split_is_read_on_by_one_worker(before: int, after: int, ended: tuple[int, ...], step: int) -> None:
    """From where it was; the splits of a worker that had ended were read, and one that was not begun is not named."""
    ended = ended if before > 1 else ()
    splits = in_turn([Split(number, first=number, step=step) for number in range(16 * before)], before)
    held, known = {}, {}
    for index in range(before):
        mine = {one.number: None if one.number % 3 else Position(9) for one in splits_of(splits, index, before)[1:]}
        known |= dict.fromkeys([one.number for one in splits_of(splits, index, before)]) if index in ended else mine
        if index not in ended:
            held[WorkerId("S", index)] = Snapshot("S", index, 7, positions=mine)
    names = {str(one): "file" for one in held}
    record = Checkpoint("r", 1, 1, names, tuple(f"S[{index}]" for index in ended), workers={"S": before})
    redistribution = Redistribution(record, Graph("one", (Operator("S", kind=Kind.SOURCE, workers=after),), ()))
    assert (redistribution.workers_then("S"), redistribution.ended("S")) == (before, list(ended))
    found: dict[int, Position | None] = {}
    for index in range(after):
        snapshot = redistribution.snapshot(WorkerId("S", index), held)
        restored = snapshot.positions if snapshot is not None else {}
        positions = restored_positions(splits, index, after, restored, redistribution.ended("S"), before)
        assert positions.keys() <= {one.number for one in splits_of(splits, index, after)}
        assert not found.keys() & positions.keys()
        found |= positions
    assert found == known
