"""Each reaction and each verdict of a monitor, from measurements that are given by hand, on a manual clock."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from fries_nb.constraints import sequences
from fries_nb.constraints.chain_candidates import longest_series
from fries_nb.constraints.constraint_monitor import ConstraintMonitor
from fries_nb.constraints.reactions import ChainOperators, ConstraintStatus, ConstraintVerdict, Reaction, ResizeBuffer
from fries_nb.constraints.windows import RunningMeans
from fries_nb.dataflow import Edge, Graph, Operator, Partitioning, constraint_of
from fries_nb.measurements import (
    BufferMeasured,
    ChainMeasured,
    ChannelMeasured,
    Measured,
    Measurements,
    QueueMeasured,
    TaskMeasured,
)
from fries_nb.messages import ChannelId, WorkerId
from fries_nb.planning.constraint_setup import constraint_setup
from fries_nb.topology.topology import Topology

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
VIOLATED, MET, UNJUDGED = ConstraintStatus.VIOLATED, ConstraintStatus.MET, ConstraintStatus.NOT_YET_JUDGED


class Watch:
    """A monitor of A -> B -> C with a second's clock: source S, forward A -> B, hash B -> C, sink Z."""

    def __init__(
        self,
        sequence=("A", "B", "C"),
        limit_ms: float = 300.0,
        workers: int = 1,
        hosts: int = 1,
        chaining: bool = False,
        **given,
    ) -> None:
        names = ("S", "A", "B", "C", "Z")
        operators = tuple(Operator(name, workers=workers) for name in names)
        edges = (
            Edge("S", "A", Partitioning.HASH), Edge("A", "B"), Edge("B", "C", Partitioning.HASH), Edge("C", "Z"),
        )  # fmt: skip
        graph = Graph("flow", operators, edges)
        self.topology = Topology.dealt(graph, hosts, chaining)
        setup = constraint_setup(self.topology, [constraint_of(graph, list(sequence), limit_ms, **given)])
        self.monitor = ConstraintMonitor(self.topology, setup[0][0])
        self.now = START

    def __call__(self, *measured: Measured, seconds: float = 1.0, clock_error_ms: float = 0.0) -> ConstraintVerdict:
        """Some time later these measurements arrive; returns the verdict, and keeps the instructions."""
        self.now += round(seconds * SECOND)
        if measured:
            self.monitor.receive(Measurements(self.now, measured, clock_error_ms))
        *self.instructions, verdict = self.monitor.judge(self.now)
        assert isinstance(verdict, ConstraintVerdict)
        return verdict

    instructions: list[Reaction]


def task(name: str, latency: float, index: int = 0, processor: float = 0.1, samples: int = 1) -> TaskMeasured:
    """A task's latency."""
    return TaskMeasured(WorkerId(name, index), latency, samples, processor)


def channel(ends: str, sender: int = 0, receiver: int = 0) -> ChannelId:
    """The channel between two operators, by their letters."""
    return ChannelId(WorkerId(ends[0], sender), WorkerId(ends[1], receiver))


def sample(ends: str, latency: float, *indices: int, samples: int = 1) -> ChannelMeasured:
    """A channel's latency."""
    return ChannelMeasured(channel(ends, *indices), latency, samples)


def buffer(
    ends: str, wait: float, size: int = 32_768, version: int = 0, rows: int = 10, **ends_at: int
) -> BufferMeasured:
    """A buffer's waiting time."""
    return BufferMeasured(channel(ends, **ends_at), wait, rows, size, version)


TASKS = (task("A", 10.0), task("B", 20.0), task("C", 30.0))


# ---- verdicts


def test_met_with_the_numbers():
    """Mean, worst, each element, and why."""
    verdict = Watch()(*TASKS, sample("AB", 40.0), sample("BC", 50.0), buffer("AB", 4.0), buffer("BC", 5.0))
    assert (verdict.status, verdict.mean_ms, verdict.worst_ms, verdict.tasks_ms) == (MET, 150.0, 150.0, 60.0)
    assert [(one.element, one.mean_ms, one.worst_ms, one.buffer_ms) for one in verdict.elements] == [
        ("A", 10.0, 10.0, 0.0), ("A -> B", 40.0, 40.0, 4.0), ("B", 20.0, 20.0, 0.0), ("B -> C", 50.0, 50.0, 5.0),
        ("C", 30.0, 30.0, 0.0),
    ]  # fmt: skip
    assert verdict.worst == (WorkerId("A", 0), WorkerId("B", 0), WorkerId("C", 0))
    assert verdict.reason == "the worst sequence, A[0] -> B[0] -> C[0], takes 150 ms, at most 300 ms"
    assert (verdict.sequence, verdict.limit_ms, verdict.rows) == ("A -> B -> C", 300.0, 10.0)


def test_violated_with_the_cause():
    """The element with the largest share is named; two workers differ, and the worst sequence is that of the worse."""
    watch = Watch(workers=2)
    tasks = [replace_index(one, index) for one in TASKS for index in (0, 1)]
    samples = [sample("AB", 10.0, 0, 0), sample("AB", 20.0, 1, 1)]
    samples += [sample("BC", 30.0 + 400 * (b == 1 and c == 0), b, c) for b in (0, 1) for c in (0, 1)]
    verdict = watch(*tasks, *samples)
    assert verdict.status is VIOLATED
    assert verdict.worst == (WorkerId("A", 1), WorkerId("B", 1), WorkerId("C", 0))
    assert verdict.reason == "A[1] -> B[1] -> C[0] takes 510 ms, at most 300 ms: 430 ms of it at B -> C"
    assert verdict.worst_ms == 510.0
    assert verdict.mean_ms < verdict.worst_ms


def replace_index(measured: TaskMeasured, index: int) -> TaskMeasured:
    """The same of another worker."""
    return TaskMeasured(WorkerId(measured.worker.operator, index), measured.latency_ms, 1, measured.processor)


def test_not_yet_judged_names_what_is_missing():
    """Elements without any sample; with all of them it is judged."""
    watch = Watch()
    assert watch().reason == "no sample yet of A, B, C, A -> B, B -> C"
    verdict = watch(*TASKS, sample("AB", 1.0))
    assert (verdict.status, verdict.reason) == (UNJUDGED, "no sample yet of B -> C")
    assert (verdict.mean_ms, verdict.worst_ms, verdict.elements) == (None, None, ())
    assert watch(sample("BC", 1.0)).status is MET


def test_samples_end_with_the_window():
    """After it nothing is judged, and not what was."""
    watch = Watch(window_s=5)
    assert watch(*TASKS, sample("AB", 400.0), sample("BC", 1.0)).status is VIOLATED
    assert watch(seconds=4.9).status is VIOLATED
    assert watch(seconds=0.1).status is UNJUDGED


def test_samples_weigh_by_their_number(monkeypatch):
    """99 quick rows and a slow one; a mean of means would be a violation."""
    measured = (*TASKS, sample("AB", 10.0, samples=99), sample("BC", 1.0))
    watch = Watch(limit_ms=100.0)
    watch(*measured)
    assert watch(sample("AB", 1_010.0)).worst_ms == pytest.approx(81.0)
    monkeypatch.setattr(RunningMeans, "add", lambda *given, add=RunningMeans.add: add(*given[:4], [1] * len(given[4])))
    mutant = Watch(limit_ms=100.0)
    mutant(*measured)
    assert mutant(sample("AB", 1_010.0)).status is VIOLATED


def test_only_elements_of_the_sequence_count():
    """An edge at the end counts without the operator behind it; sources and sinks have no latency."""
    from fries_nb import edge

    watch = Watch(sequence=("B", edge("B", "C")))
    assert watch(task("B", 20.0), sample("BC", 50.0)).worst_ms == 70.0
    assert watch(task("C", 500.0), task("A", 500.0), sample("AB", 500.0)).worst_ms == 70.0
    assert Watch(sequence=("B",))(task("B", 20.0)).worst_ms == 20.0
    assert Watch(sequence=("S", "A"))(sample("SA", 7.0), task("A", 2.0), task("S", 99.0)).worst_ms == 9.0


def test_a_stalled_path_is_violated():
    """Rows wait, none is taken: from the first report on, though older samples are in the window."""
    watch = Watch()
    assert watch(*TASKS, sample("AB", 1.0), sample("BC", 1.0)).status is MET
    verdict = watch(task("A", 10.0), sample("AB", 1.0), QueueMeasured(channel("BC"), 40, 0.0))
    assert (verdict.status, verdict.worst_ms, verdict.mean_ms) == (VIOLATED, inf, inf)
    assert verdict.reason.endswith("has no end, at most 300 ms: rows wait at B -> C, and none is taken")
    assert watch(sample("BC", 1.0)).worst_ms == 62.0


def test_a_queue_counts_as_its_length_over_its_rate():
    """500 rows at a thousand a second wait for half a second; a short queue does not make a channel quicker."""
    watch = Watch()
    assert watch(*TASKS, sample("AB", 1.0), QueueMeasured(channel("BC"), 500, 1_000.0)).worst_ms == 561.0
    assert watch(sample("BC", 100.0)).worst_ms == 161.0
    assert watch(QueueMeasured(channel("BC"), 5, 1_000.0)).worst_ms == 161.0
    assert watch(QueueMeasured(channel("BC"), 0, 0.0)).worst_ms == 161.0, "an empty queue is no stall"


def test_a_stall_is_found_without_any_sample_behind_it():
    """Behind the stalled worker nothing was ever measured; a mutant that waits for it never judges."""
    measured = (task("A", 10.0), QueueMeasured(channel("AB"), 40, 0.0))
    assert Watch()(*measured).status is VIOLATED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fries_nb.constraints.measured_allocation.with_stalls", lambda layers, queued: layers)
        assert Watch()(*measured).status is UNJUDGED
    assert sequences.with_stalls is not None


def test_a_limit_below_the_tasks_is_said_after_the_first_window():
    """With the numbers."""
    watch = Watch(limit_ms=50.0, window_s=5)
    measured = (*TASKS, sample("AB", 100.0), sample("BC", 1.0))
    assert watch(*measured).reason == "A[0] -> B[0] -> C[0] takes 161 ms, at most 50 ms: 100 ms of it at A -> B"
    for _ in range(4):
        assert "takes 161 ms" in watch(*measured).reason
    verdict = watch(*measured)
    expected = "the limit of 50 ms is below the task latencies: A 10 ms + B 20 ms + C 30 ms = 60 ms"
    assert (verdict.reason, verdict.tasks_ms, verdict.status) == (expected, 60.0, VIOLATED)


def test_clocks_that_differ_prevent_a_judgement():
    """By more than a tenth of the limit in sum over the channels between hosts; forward ones are on one host."""
    measured = [replace_index(one, index) for one in TASKS for index in (0, 1)]
    measured += [sample("AB", 1.0, index, index) for index in (0, 1)]
    measured += [sample("BC", 900.0, b, c) for b in (0, 1) for c in (0, 1)]
    watch = Watch(workers=2, hosts=2, window_s=5)
    verdict = watch(*measured, clock_error_ms=31.0)
    assert (verdict.status, watch.instructions) == (UNJUDGED, [])
    assert "differ by up to 31 ms along the sequence, more than a tenth of the limit of 300 ms" in verdict.reason
    assert watch(*measured, seconds=5, clock_error_ms=30.0).status is VIOLATED
    assert Watch(workers=2, hosts=1)(*measured, clock_error_ms=900.0).status is VIOLATED


def test_violated_windows_are_counted_from_the_first_violation():
    """A verdict within the limit ends the count."""
    watch = Watch(window_s=2)
    high, low = (*TASKS, sample("AB", 900.0), sample("BC", 1.0)), (*TASKS, sample("AB", 1.0), sample("BC", 1.0))
    assert [watch(*high).violated_windows for _ in range(6)] == [0, 0, 1, 1, 2, 2]
    assert watch(*low, seconds=2).violated_windows == 0
    assert [watch(*high, seconds=2).violated_windows for _ in range(3)] == [0, 1, 2]


# ---- buffers


def test_all_buffers_above_the_limit_shrink_and_no_others():
    """A sequence within the limit keeps its buffers, though it shares a task with one that is above."""
    watch = Watch(workers=2, sequence=("B", "C"))
    tasks = [replace_index(one, index) for one in TASKS[1:] for index in (0, 1)]
    pairs = [(b, c) for b in (0, 1) for c in (0, 1)]
    samples = [sample("BC", 500.0 if (b, c) == (1, 0) else 100.0, b, c) for b, c in pairs]
    waits = [buffer("BC", 100.0, sender=b, receiver=c) for b, c in pairs]
    watch(*tasks, *samples, *waits)
    assert watch.instructions == [ResizeBuffer(channel("BC", 1, 0), int(32_768 * 0.98**50), 0)]


def test_a_size_is_asked_for_once_a_version():
    """Until the new version is reported, or a window has passed, in case the instruction was lost."""
    watch = Watch(window_s=5)
    measured = (*TASKS, sample("AB", 900.0), sample("BC", 1.0), buffer("AB", 800.0))
    watch(*measured)
    assert watch.instructions == [ResizeBuffer(channel("AB"), 11_933, 0)]
    for _ in range(4):
        watch(*measured)
        assert watch.instructions == []
    watch(*measured)
    assert watch.instructions == [ResizeBuffer(channel("AB"), 11_933, 0)]


def test_samples_of_the_earlier_size_are_dropped():
    """The interval of the change does not count for the channel either; the one after it does."""
    watch = Watch()
    rest = (*TASKS, sample("BC", 1.0))
    watch(*rest, sample("AB", 900.0), buffer("AB", 800.0))
    verdict = watch(*rest, sample("AB", 850.0), buffer("AB", 300.0, 11_933, version=1))
    assert (verdict.status, watch.instructions) == (VIOLATED, [])
    assert "the latency of 1 channels with smaller buffers is not known yet" in verdict.reason
    assert not verdict.exhausted
    verdict = watch(*rest, sample("AB", 310.0), buffer("AB", 290.0, 11_933, version=1))
    assert verdict.worst_ms == pytest.approx(10 + 20 + 30 + 310 + 1)
    assert watch.instructions == [ResizeBuffer(channel("AB"), 4_345, 1)]


def test_a_size_that_another_monitor_changed_is_taken_over():
    """The version that is reported counts, whoever raised it; reports of an older one are dropped."""
    watch = Watch()
    rest = (*TASKS, sample("BC", 1.0))
    watch(*rest, sample("AB", 100.0), buffer("AB", 80.0))
    watch(*rest, buffer("AB", 700.0, 40_000, version=3))
    watch(*rest, sample("AB", 900.0), buffer("AB", 60.0, 32_768, version=1))
    assert watch.instructions == [ResizeBuffer(channel("AB"), int(40_000 * 0.98**50), 3)]


def test_a_buffer_grows_while_a_fifth_is_spare():
    """Rows hardly wait at 200 bytes: it grows at 240 ms of 300, and not at 241."""
    rest = (*TASKS, sample("BC", 1.0), buffer("AB", 0.0, 200, version=7))
    watch = Watch()
    watch(*rest, sample("AB", 179.0))
    assert watch.instructions == [ResizeBuffer(channel("AB"), 220, 7)]
    watch = Watch()
    watch(*rest, sample("AB", 180.0))
    assert watch.instructions == []


def test_the_sender_counts_though_its_task_is_no_element():
    """A buffer shrinks only if rows wait for longer than in the sender's task, also at the outer end of an edge."""
    from fries_nb import edge

    for sender_ms, shrinks in ((90.0, False), (70.0, True)):
        watch = Watch(sequence=(edge("A", "B"), "B"))
        watch(task("A", sender_ms), task("B", 20.0), sample("AB", 400.0), buffer("AB", 80.0))
        assert any(isinstance(one, ResizeBuffer) for one in watch.instructions) is shrinks


def test_nothing_is_done_about_an_unknown_buffer():
    """A violation without measurements of buffers is told, and at once exhausted."""
    watch = Watch(workers=1)
    verdict = watch(*(replace_processor(one, 0.5) for one in TASKS), sample("AB", 900.0), sample("BC", 1.0))
    assert (watch.instructions, verdict.status, verdict.exhausted) == ([], VIOLATED, True)


def replace_processor(measured: TaskMeasured, processor: float) -> TaskMeasured:
    """The same with another share of a core."""
    return TaskMeasured(measured.worker, measured.latency_ms, 1, processor)


# ---- chains

HIGH = (*TASKS, sample("AB", 300.0), sample("BC", 1.0), buffer("AB", 1.0), buffer("BC", 5.0))


def test_tasks_are_chained_once_no_buffer_can_shrink():
    """A -> B is forward, B -> C a hash edge; asked once a window, and not exhausted while it is tried."""
    watch = Watch(window_s=3)
    verdict = watch(*HIGH)
    assert watch.instructions == [ChainOperators(("A", "B"), 0)]
    assert not verdict.exhausted
    assert [watch(*HIGH).exhausted for _ in range(2)] == [False, False]
    assert watch.instructions == []
    watch(*HIGH)
    assert watch.instructions == [ChainOperators(("A", "B"), 0)]


def test_buffers_come_first():
    """While one on the worst sequence shrinks, nothing is chained."""
    watch = Watch()
    watch(*HIGH[:-2], buffer("AB", 280.0), buffer("BC", 0.0))
    assert [type(one) for one in watch.instructions] == [ResizeBuffer]
    watch(*HIGH[:-2], buffer("AB", 200.0, 11_933, 1), buffer("BC", 0.0))
    assert watch.instructions == []


def test_rows_pass_a_chain_without_waiting():
    """Its edge counts as 0, though samples of the time before are in the window; after a split they count again."""
    watch = Watch()
    watch(*HIGH)
    verdict = watch(ChainMeasured(("A", "B"), 0))
    assert (verdict.status, verdict.worst_ms, watch.instructions) == (MET, 61.0, [])
    assert [one.mean_ms for one in verdict.elements if one.element == "A -> B"] == [0.0]
    assert watch(ChainMeasured(("A",), 0), ChainMeasured(("B",), 0)).worst_ms == 361.0
    assert Watch(chaining=True)(*TASKS, sample("BC", 1.0)).worst_ms == 61.0


@pytest.mark.parametrize(
    ("processor", "hosts_of_b", "chained"),
    [(0.44, 0, True), (0.46, 0, False), (0.44, 1, False)],
    ids=["light", "nine tenths of a core", "another host"],
)
def test_the_conditions_of_a_chain(processor, hosts_of_b, chained):
    """One host, less than nine tenths of a core together."""
    watch = Watch()
    placement = {**watch.topology.placement, WorkerId("B", 0): hosts_of_b}
    topology = replace(watch.topology, placement=placement)
    constraint = constraint_of(topology.graph, ["A", "B"], 300)
    watch.monitor = ConstraintMonitor(topology, constraint_setup(topology, [constraint])[0][0])
    tasks = [task("A", 10.0, processor=processor), task("B", 20.0, processor=0.45)]
    verdict = watch(*tasks, sample("AB", 300.0), buffer("AB", 1.0))
    assert verdict.status is VIOLATED
    assert watch.instructions == ([ChainOperators(("A", "B"), 0)] if chained else [])
    assert verdict.exhausted is not chained


def test_the_longest_light_series_is_chained():
    """Rather than a heavy longer one; of equal ones the first; operators of a chain only together."""
    path = [WorkerId(name, 3) for name in "ABCD"]
    alone = [(name,) for name in "ABCD"]
    for joinable, processor, chains, expected in (
        ([True] * 3, [0.2] * 4, alone, "ABCD"),
        ([True] * 3, [0.2, 0.2, 0.2, 0.5], alone, "ABC"),
        ([True] * 3, [0.5, 0.3, 0.3, 0.5], alone, "AB"),
        ([True] * 3, [0.5, 0.5, 0.3, 0.5], alone, "BC"),
        ([True] * 3, [0.5] * 4, alone, ""),
        ([True, False, True], [0.1] * 4, alone, "AB"),
        ([False, False, True], [0.1] * 4, alone, "CD"),
        ([True] * 3, [0.2, float("nan"), 0.2, 0.2], alone, "CD"),
        ([True] * 3, [0.2] * 4, [("A", "B"), ("A", "B"), ("C",), ("D",)], "ABCD"),
        ([True] * 3, [0.2, 0.2, 0.2, 0.5], [("A", "B"), ("A", "B"), ("C",), ("D",)], "ABC"),
        ([True] * 3, [0.6, 0.2, 0.2, 0.2], [("A", "B"), ("A", "B"), ("C",), ("D",)], "CD"),
        ([True] * 3, [0.2] * 4, [("X", "A"), ("B",), ("C",), ("D",)], "BCD"),
        ([True] * 3, [0.2] * 4, [("A", "B", "C", "D")] * 4, ""),
        ([True] * 3, [0.6, 0.2, 0.2, 0.6], [("A",), ("B", "C"), ("B", "C"), ("D",)], ""),
    ):
        found = longest_series(path, joinable, chains, processor)
        assert found == (ChainOperators(tuple(expected), 3) if expected else None), (processor, chains)
