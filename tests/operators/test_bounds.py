"""What is bounded inside a worker: what a frame keeps alive, what one tuple becomes, what a slice costs."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_bench import Bench

from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.graph import Emits, Kind, Operator, Partitioning
from fries_nb.dataflow.updates import Update
from fries_nb.errors import OperatorError
from fries_nb.operators.batches import MOST_PER_SLICE, SLICE_NS, AdaptiveBatchSize
from fries_nb.operators.executors import InterruptFlag, executor_of
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import ChannelId, Data, Rehearsed, WorkerId
from fries_nb.protocol.topology import OutEdge
from fries_nb.worker.outbox import Outbox

# ---- frames


def whole_batch() -> pa.RecordBatch:
    """Eight megabytes, as a source decodes them."""
    numbers = pa.array(range(500_000), type=pa.int64())
    return pa.RecordBatch.from_pydict({"n": numbers, "m": numbers})


def over_a_link(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As it comes out of one message."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


@pytest.mark.parametrize("partitioning", [Partitioning.FORWARD, Partitioning.HASH, Partitioning.BROADCAST])
@pytest.mark.parametrize(
    "cut",
    [
        lambda batch: [batch.slice(start, 10) for start in range(0, 500_000, 10_000)],
        lambda batch: [over_a_link(batch.slice(0, 100_000)).slice(0, 2_000).select(["n"])],
    ],
    ids=["slices", "a column of a message"],
)
def test_a_frame_keeps_alive_what_it_costs(
    cut: Callable[[pa.RecordBatch], list[pa.RecordBatch]], partitioning: Partitioning
) -> None:
    """Credit of some kilobytes held megabytes, for slices of large batches."""
    count = 1 if partitioning is Partitioning.FORWARD else 3
    channels = tuple(ChannelId(WorkerId("A", 0), WorkerId("B", index)) for index in range(count))
    outbox = Outbox([OutEdge("B", partitioning, ("n",), 0, channels)])
    for channel in channels:
        outbox.credit(channel, 1 << 30)
    before = pa.total_allocated_bytes()
    frames: list[Data] = []
    for part in cut(whole_batch()):
        outbox.add(0, part)
        outbox.flush()
        frames += [send.frame for send in outbox.sends() if isinstance(send.frame, Data)]
        del part
    gc.collect()
    cost = sum(frame.size for frame in frames)
    assert sum(frame.batch.num_rows for frame in frames) >= 500
    assert pa.total_allocated_bytes() - before <= 2 * cost + 5_000 * len(frames)


def test_a_frame_that_is_a_whole_batch_is_not_copied() -> None:
    """By reference, as between workers of one host."""
    channel = ChannelId(WorkerId("A", 0), WorkerId("B", 0))
    outbox = Outbox([OutEdge("B", Partitioning.FORWARD, (), 0, (channel,))])
    outbox.credit(channel, 1 << 30)
    batch = whole_batch()
    outbox.add(0, batch)
    [send] = outbox.sends()
    assert isinstance(send.frame, Data)
    assert send.frame.batch.column("n").buffers()[1].address == batch.column("n").buffers()[1].address


# ---- one tuple that becomes many

CHILDREN = 20_000


def multiplies(row: dict[str, Any]) -> Any:
    """Many children of a tuple, one of tuple 0; tuple 7 fails at its end."""
    for child in range(CHILDREN if row["n"] else 1):
        yield {"n": row["n"], "child": child}
    if row["n"] == 7:
        raise ValueError("at the very end")


def one_to_many(name: str, function: Any) -> Operator:
    """An operator that multiplies."""
    return Operator(name, Emits.ONE_TO_MANY, kind=Kind.FLAT_MAP, function=function)


def numbers(*values: int) -> pa.RecordBatch:
    """A batch of these tuples."""
    return pa.RecordBatch.from_pydict({"n": list(values), DUE: list(values), TRANSACTION: list(values)})


def test_the_children_of_one_tuple_are_not_kept_as_rows() -> None:
    """Five hundred bytes a row were ten megabytes here."""
    chain = [one_to_many("F", multiplies), Operator("M", function=lambda row: row | {"twice": 2 * row["child"]})]
    instances = [Instance(WorkerId(one.name, 0), one, one.function, audit=False) for one in chain]
    running = executor_of(instances, InterruptFlag(), 1, "")
    running.load("S", numbers(1))
    gc.collect()
    tracemalloc.start()
    assert running.advance(1) == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    batches = [batch for _, batch in running.results()]
    assert [child for batch in batches for child in batch.column("child").to_pylist()] == list(range(CHILDREN))
    assert {due for batch in batches for due in batch.column(DUE).to_pylist()} == {1}
    assert max(batch.num_rows for batch in batches) < CHILDREN
    assert peak < 5 << 20


def test_nothing_of_a_tuple_leaves_before_it_is_done() -> None:
    """A generator that fails after many children: what was made of them stays here."""
    bench = Bench(one_to_many("M", multiplies))
    bench.arrive(0, Data(numbers(1), size=100))
    bench.run()
    sent = [row for row in bench.sent if isinstance(row, dict)]
    assert len(sent) == CHILDREN
    bench.arrive(0, Data(numbers(7), size=100))
    bench.run()
    assert bench.worker.failed
    assert len([row for row in bench.sent if isinstance(row, dict)]) == CHILDREN


def fails_at_last(row: dict[str, Any]) -> dict[str, Any]:
    """On the last child of tuple 5."""
    return row if row["n"] != 5 or row["child"] < CHILDREN - 1 else row | {"x": row["gone"]}


def test_under_guard_all_of_a_tuple_is_taken_back() -> None:
    """What was made of it before it failed, however much, is not there when the old configuration tries it again."""
    chain = [one_to_many("F", multiplies), Operator("M", function=fails_at_last)]
    instances = [Instance(WorkerId(one.name, 0), one, one.function, audit=False) for one in chain]
    instances[1].guarded = "g1"
    running = executor_of(instances, InterruptFlag(), 1, "")
    running.load("S", numbers(1, 5))
    with pytest.raises(OperatorError):
        running.advance(2)
    assert {row["n"] for _, batch in running.results() for row in batch.to_pylist()} == {1}
    instances[1].function, instances[1].guarded = dict, ""
    running.rebuild()
    running.advance(1)
    assert [row["n"] for _, batch in running.results() for row in batch.to_pylist()] == [5] * CHILDREN


class Counted:
    """A keyed operator behind it, with one key for all."""

    def initial_state(self) -> list[int]:
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state[0] += 1
        return row | {"count": state[0]}


def peak_of(operators: list[Operator], under_guard: str = "") -> tuple[int, list[dict[str, Any]]]:
    """The most memory that a tuple takes, behind a small one, and what it becomes."""
    instances = [Instance(WorkerId(one.name, 0), one, one.function, audit=False) for one in operators]
    for instance in instances:
        instance.has_dead_letters = is_letters(instance.operator.on_error)
        instance.guarded = "u1" if instance.operator.name == under_guard else ""
    running = executor_of(instances, InterruptFlag(), 1, "")
    running.load("S", numbers(0, 1))
    running.advance(1)
    running.results()
    gc.collect()
    tracemalloc.start()
    assert running.advance(1) == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, [row for _, batch in running.results() for row in batch.to_pylist()]


def is_letters(policy: Any) -> bool:
    """Whether an operator sets tuples aside."""
    return policy not in ("fail", "pause")


@cache
def plain_peak() -> tuple[int, list[dict[str, Any]]]:
    """The same of a tuple that is multiplied, and no more."""
    return peak_of([one_to_many("F", multiplies)])


@cache
def plain_chain_peak() -> tuple[int, list[dict[str, Any]]]:
    """The same of a tuple that goes through a chain."""
    return peak_of(chain_behind())


def chain_behind() -> list[Operator]:
    """Operators behind one that multiplies, one of them with a state."""
    return [
        one_to_many("F", multiplies),
        Operator("C", function=Counted(), key=("n",)),
        Operator("M", function=lambda row: row | {"twice": 2 * row["child"]}),
    ]


@pytest.mark.parametrize("guarded", ["", "F"])
@pytest.mark.parametrize("policy", ["fail", "pause", "dead"])
def test_a_tuple_that_may_have_to_be_taken_back_costs_little_more_than_another(policy: str, guarded: str) -> None:
    """Whatever it becomes: a guard on its operator, or what this does about failures, keeps no rows of all that."""
    plain, expected = plain_peak()
    assert len(expected) == CHILDREN
    peak, rows = peak_of([replace(one_to_many("F", multiplies), on_error=policy)], guarded)
    assert rows == expected
    assert peak <= 3 * plain


@pytest.mark.parametrize("guarded", ["F", "C", "M"])
def test_nor_does_a_chain_under_guard(guarded: str) -> None:
    """Wherever the change is: in front, behind, or at an operator with a state, which is copied once."""
    plain, expected = plain_chain_peak()
    assert [row["count"] for row in expected] == list(range(1, CHILDREN + 1))
    peak, rows = peak_of(chain_behind(), guarded)
    assert rows == expected
    assert peak <= 3 * plain


def test_a_rehearsal_costs_less_than_the_tuple_itself() -> None:
    """Of all that the new function would make of it a few rows are asked for."""
    plain, _ = plain_peak()
    bench = Bench(one_to_many("F", lambda row: [row]))
    bench.arrive(0, Data(numbers(1), size=100))
    bench.run()
    gc.collect()
    tracemalloc.start()
    bench.prepare("F", "u1", Update(multiplies))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    [answer] = bench.answers(Rehearsed)
    assert (answer.error, answer.tuples) == ("", 1)
    assert peak <= plain


def mixed(row: dict[str, Any]) -> Any:
    """Of tuple 7 many rows of text, the last of which fails; of others numbers."""
    for _ in range(CHILDREN if row["n"] == 7 else 2):
        yield row | {"x": "text" if row["n"] == 7 else row["n"]}
    if row["n"] == 7:
        raise ValueError("at the very end")


@pytest.mark.parametrize("behind", [False, True])
def test_a_large_tuple_that_is_set_aside_leaves_no_type_behind(behind: bool) -> None:
    """Neither a row nor what was learnt of its columns: the tuples around it are whole numbers."""
    chain = [replace(one_to_many("F", mixed), on_error="dead"), *[Operator("M", function=dict)] * behind]
    instances = [Instance(WorkerId(one.name, 0), one, one.function, audit=False) for one in chain]
    instances[0].has_dead_letters = True
    running = executor_of(instances, InterruptFlag(), 1, "")
    for number in (7, 7, 1, 2):
        running.load("S", numbers(number))
        assert running.advance(1) == 1
        found = [row["x"] for _, batch in running.results() for row in batch.to_pylist()]
        assert found == ([] if number == 7 else [number, number])
    letters = [row for letter in instances[0].take_letters() for row in letter.to_pylist()]
    assert [letter["error"] for letter in letters] == ["F failed on a tuple: ValueError: at the very end"] * 2


def test_under_guard_the_rows_in_front_of_a_large_tuple_that_fails_are_whole_numbers() -> None:
    """They become a batch of their own, by their own types, in the midst of the tuple that is taken back."""
    instance = Instance(WorkerId("F", 0), one_to_many("F", halves), halves, audit=False)
    instance.guarded = "u1"
    running = executor_of([instance], InterruptFlag(), 1, "")
    running.load("S", numbers(1, 2, 7, 3))
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        running.advance(4)
    [(_, batch)] = running.results()
    assert batch.select(["n", "x"]).to_pylist() == [{"n": 1, "x": 1}, {"n": 2, "x": 2}]
    assert batch.schema.field("x").type == pa.int64()
    assert running.remaining == 2


def halves(row: dict[str, Any]) -> Any:
    """Of tuple 7 many fractions, and a failure; of others one whole number."""
    if row["n"] != 7:
        return [row | {"x": row["n"]}]
    return (row | {"x": child / 2 if child < CHILDREN else 1 // 0} for child in range(CHILDREN + 1))


def as_many(row: dict[str, Any]) -> Any:
    """As many children as its number says; of an odd number the last one is no row."""
    yield from ({"n": row["n"], "child": child / 2} for child in range(row["n"]))
    if row["n"] % 2:
        yield "no row"


@pytest.mark.parametrize("guarded", ["F", "M"])
@pytest.mark.parametrize("before", [[], [2], [4096], [5000, 10], [10, 3000, 3000]])
def test_under_guard_the_tuples_before_stay(before: list[int], guarded: str) -> None:
    """Whether rows of theirs waited when those of the one that failed became too many, or not."""
    chain = [one_to_many("F", as_many), Operator("M", function=lambda row: row | {"twice": 2 * row["child"]})]
    instances = [Instance(WorkerId(one.name, 0), one, one.function, audit=False) for one in chain]
    for instance in instances:
        instance.guarded = "g1" if instance.operator.name == guarded else ""
    running = executor_of(instances, InterruptFlag(), 1, "")
    running.load("S", numbers(*before, 9_001, 6))
    with pytest.raises(OperatorError, match="F yielded str"):
        running.advance(100)
    expected = [(n, child) for n in before for child in range(n)]
    rows = [row for _, batch in running.results() for row in batch.to_pylist()]
    assert [(row["n"], row["twice"]) for row in rows] == expected
    instances[0].function = lambda row: [{"n": row["n"], "child": "text"}]
    for instance in instances:
        instance.guarded = ""
    running.rebuild()
    running.advance(100)
    rows = [row for _, batch in running.results() for row in batch.to_pylist()]
    assert [(row["n"], row["twice"]) for row in rows] == [(9_001, "texttext"), (6, "texttext")]


def test_a_failure_far_into_a_tuple_is_the_generators() -> None:
    """By its name, with its own words."""
    instance = Instance(WorkerId("F", 0), one_to_many("F", multiplies), multiplies, audit=False)
    running = executor_of([instance], InterruptFlag(), 1, "")
    running.load("S", numbers(7))
    with pytest.raises(OperatorError, match="F failed on a tuple: ValueError: at the very end"):
        running.advance(1)


# ---- slices


def worked(slices: AdaptiveBatchSize, tuples: int, fixed: int, each: int) -> tuple[int, list[int]]:
    """How long so many tuples take, and each slice, where a slice costs this much and a tuple that much (ns)."""
    took: list[int] = []
    while tuples:
        taken = min(slices.quota, tuples)
        took.append(fixed + each * taken)
        slices.learn(took[-1], taken)
        tuples -= taken
    return sum(took), took


def test_wide_rows_do_not_make_slices_of_one_tuple() -> None:
    """500 columns: to cut and to assemble them takes twenty times as long as the tuples of a slice."""
    total, _ = worked(AdaptiveBatchSize(), 5_000, fixed=5_000_000, each=200_000)
    assert total < 3 * 5_000 * 200_000


@given(
    st.integers(0, 30_000_000), st.integers(100, 50_000_000), st.integers(0, 30_000_000), st.integers(100, 50_000_000)
)
def test_a_slice_is_long_enough_and_short_enough_whatever_work_costs(
    fixed: int, each: int, then: int, dearer: int
) -> None:
    """It becomes short also when work becomes dear, as by another function."""
    slices = AdaptiveBatchSize()
    for _ in range(40):
        worked(slices, slices.quota, fixed, each)
    quota = slices.quota
    assert quota == MOST_PER_SLICE or 16 * each * quota >= fixed or fixed + each * quota <= 4 * SLICE_NS
    for _ in range(40):
        worked(slices, slices.quota, then, dearer)
    assert dearer * slices.quota <= max(8 * SLICE_NS, 8 * then, dearer)


@pytest.mark.parametrize("lost", [1, 2])
def test_slices_that_lost_the_processor_do_not_shorten_those_after_them(lost: int) -> None:
    """One or two in twenty wait 20 ms for another thread or program: the work of their tuples is no dearer for it."""
    slices, quotas = AdaptiveBatchSize(), []
    for number in range(400):
        quotas.append(slices.quota)
        stalled = 20_000_000 if number % 20 >= 20 - lost else 0
        slices.learn(300_000 + 50 * slices.quota + stalled, slices.quota)
    assert min(quotas[40:]) >= MOST_PER_SLICE // 2
    assert sum(quota == MOST_PER_SLICE for quota in quotas[40:]) >= 300


def test_what_was_learned_from_slices_that_lost_the_processor_is_forgotten_at_once() -> None:
    """Three in a row are believed; the next one, which is as fast as ever, says that they were not to be."""
    slices, quotas = AdaptiveBatchSize(), []
    for number in range(60):
        stalled = 20_000_000 if 40 <= number < 43 else 0
        slices.learn(300_000 + 50 * slices.quota + stalled, slices.quota)
        quotas.append(slices.quota)
    assert quotas[41:45] == [MOST_PER_SLICE, MOST_PER_SLICE // 2, MOST_PER_SLICE, MOST_PER_SLICE]
