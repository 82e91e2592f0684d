"""What a worker measures for constraints: tasks, channels, queues and buffers; and meters that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from worker_bench import Bench, data

import fries_nb as fn
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.protocol.messages import BufferMeasured, ChannelMeasured, Measured, QueueMeasured, Tag, TaskMeasured
from fries_nb.worker.events import Measure, Observe, TellMeasured
from fries_nb.worker.reports import ElementMeter

OBSERVED = Observe(senders=frozenset("A"), receivers=frozenset("Z"), tasks=frozenset("M"))
MS = 1_000_000


def observed(function: Callable[[Any], Any] = lambda row: row, *more: Operator) -> Bench:
    """A worker that measures."""
    bench = Bench(Operator("M", kind=Kind.MAP, function=function), *more)
    bench.worker.handle(OBSERVED)
    return bench


def measured(bench: Bench) -> list[Measured]:
    """What it tells at the end of an interval."""
    bench.worker.handle(Measure())
    return [one for told in bench.take() if isinstance(told, TellMeasured) for one in told.measured]


def clocked(bench: Bench, now_ns: list[int]) -> None:
    """Let a manual clock be the worker's."""
    bench.worker._clock = bench.worker._meter._clock = lambda: now_ns[0]


def test_a_worker_that_is_not_asked_measures_nothing() -> None:
    """And sends no report."""
    bench = Bench(Operator("M", kind=Kind.MAP, function=lambda row: row))
    bench.arrive(0, data(1, 2))
    bench.run()
    assert measured(bench) == []


def test_each_element_is_measured_once_an_interval() -> None:
    """The task, the channel by which a tagged row came, and the buffer of the results."""
    bench = observed()
    bench.arrive(0, replace(data(1, 2, 3), tag=Tag(1, 0)))
    bench.run()
    task, channel, buffer = measured(bench)
    assert isinstance(task, TaskMeasured)
    assert isinstance(channel, ChannelMeasured)
    assert isinstance(buffer, BufferMeasured)
    assert (str(task.worker), task.samples, str(channel.channel), channel.samples) == ("M[0]", 1, "A[0]->M[0]", 1)
    assert (str(buffer.channel), buffer.rows, buffer.version) == ("M[0]->Z[0]", 3, 0)
    assert measured(bench) == []


def test_a_channel_is_measured_when_its_tagged_row_is_processed_and_not_before() -> None:
    """A slice ends in front of it; the row waits meanwhile. Merged frames keep the tag's row."""
    bench, now = observed(), [0]
    clocked(bench, now)
    bench.arrive(0, data(1, 2))
    bench.arrive(0, replace(data(3, 4), tag=Tag(1, 2 * MS)))
    now[0] = 5 * MS
    bench.worker.run(limit=3)
    assert not any(isinstance(one, ChannelMeasured) for one in measured(bench))
    now[0] = 9 * MS
    bench.run()
    assert [one.latency_ms for one in measured(bench) if isinstance(one, ChannelMeasured)] == [7.0]


def test_rows_that_wait_without_a_sample_are_told_as_a_queue() -> None:
    """So that a stalled channel does not look as if it had no latency."""
    bench, now = observed(), [0]
    clocked(bench, now)
    bench.arrive(0, data(*range(40)))
    now[0] = 1000 * MS
    bench.worker.run(limit=10)
    bench.arrive(0, data(*range(50)))
    [queue] = [one for one in measured(bench) if isinstance(one, QueueMeasured)]
    assert (queue.rows, queue.rate) == (50, 40.0)


def test_a_task_that_waits_for_more_rows_has_the_latency_until_its_next_result() -> None:
    """As the paper defines it: from a row's entry to the next row that leaves (section 3.2.1)."""
    now = [0]
    bench = observed(lambda row: _pass_odd(row, now))
    clocked(bench, now)
    for number in (2, 4, 5):
        bench.arrive(0, data(number))
        bench.run()
    [task] = [one for one in measured(bench) if isinstance(one, TaskMeasured)]
    assert (task.latency_ms, task.samples) == (30.0, 1)


def _pass_odd(row: dict[str, Any], now: list[int]) -> dict[str, Any] | None:
    now[0] += 10 * MS
    return row if row["n"] % 2 else None


@pytest.mark.parametrize(("batched", "row_ms"), [(True, 0.25), (False, 10.0)])
def test_the_cost_of_a_row_is_not_the_latency_of_its_batch(batched: bool, row_ms: float) -> None:
    """The way back from lighter functions compares it with a rate of rows; each row shares the time of its slice."""
    now = [0]

    def predict(rows: Any) -> Any:
        now[0] += 10 * MS
        return rows

    bench = observed(fn.batched(predict) if batched else predict)
    clocked(bench, now)
    bench.arrive(0, data(*range(40)))
    bench.run()
    [task] = [one for one in measured(bench) if isinstance(one, TaskMeasured)]
    assert (task.rows, task.row_ms) == (40, row_ms)
    assert task.latency_ms >= 10.0
    assert measured(bench) == []


def test_each_operator_of_a_chain_counts_the_rows_that_it_takes_in() -> None:
    """One behind a filter has fewer, for which its worker needs the time of the whole chain."""
    now = [0]
    bench = observed(lambda row: _pass_odd(row, now), Operator("N", kind=Kind.MAP, function=lambda row: row))
    bench.worker.handle(replace(OBSERVED, tasks=frozenset("MN")))
    clocked(bench, now)
    bench.arrive(0, data(*range(8)))
    bench.run()
    tasks = [one for one in measured(bench) if isinstance(one, TaskMeasured)]
    assert [(one.worker.operator, one.rows, one.row_ms) for one in tasks] == [("M", 8, 10.0), ("N", 4, 20.0)]


def test_the_operators_of_a_chain_share_the_time_of_its_slices() -> None:
    """Rows leave a chain together, so the sum over its operators is what a row spends in it."""
    now = [0]
    bench = observed(lambda row: _pass_odd(row, now), Operator("N", kind=Kind.MAP, function=lambda row: row))
    bench.worker.handle(replace(OBSERVED, tasks=frozenset("MN")))
    clocked(bench, now)
    bench.arrive(0, data(1))
    bench.run()
    tasks = [one for one in measured(bench) if isinstance(one, TaskMeasured)]
    assert [(one.worker.operator, one.latency_ms) for one in tasks] == [("M", 5.0), ("N", 5.0)]


def _at_once(meter: ElementMeter, began_ns: int, taken: int) -> None:
    del taken
    reach(meter, began_ns, 1 << 30)


def _without_offsets(meter: ElementMeter, frames: Any) -> None:
    for frame in frames:
        loaded(meter, [frame])


def _every_slice(meter: ElementMeter, began_ns: int, ended_ns: int, taken: int, emits: bool) -> None:
    del emits
    sliced(meter, began_ns, ended_ns, taken, True)


reach, loaded, sliced = ElementMeter._reach, ElementMeter.loaded, ElementMeter.sliced


@pytest.mark.parametrize(
    ("name", "broken", "law"),
    [
        ("_reach", _at_once, test_a_channel_is_measured_when_its_tagged_row_is_processed_and_not_before),
        ("loaded", _without_offsets, test_a_channel_is_measured_when_its_tagged_row_is_processed_and_not_before),
        ("sliced", _every_slice, test_a_task_that_waits_for_more_rows_has_the_latency_until_its_next_result),
    ],
)
def test_a_wrong_meter_is_noticed(
    name: str, broken: Any, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one of the tests above."""
    monkeypatch.setattr(ElementMeter, name, broken)
    with pytest.raises(AssertionError):
        law()
