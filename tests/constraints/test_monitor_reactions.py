"""Each reaction of a monitor, from measurements that are given by hand, on a manual clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_setting import TASKS, Watch, buffer, channel, replace_index, replace_processor, sample, task

from fries_nb.constraints.constraint_monitor import ConstraintMonitor
from fries_nb.constraints.reactions import ChainOperators, ConstraintStatus, ResizeBuffer, longest_series
from fries_nb.dataflow import constraint_of, edge
from fries_nb.planning.constraint_setup import constraint_setup
from fries_nb.protocol.messages import ChainMeasured, QueueMeasured, WorkerId

VIOLATED, MET, UNJUDGED = ConstraintStatus.VIOLATED, ConstraintStatus.MET, ConstraintStatus.NOT_YET_JUDGED


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


def test_the_verdict_has_the_sizes_of_buffers():
    """Of an edge the smallest and the largest; none inside a chain, and none before they are reported."""
    watch = Watch(workers=2, sequence=("B", "C"))
    tasks = [replace_index(one, index) for one in TASKS[1:] for index in (0, 1)]
    samples = [sample("BC", 100.0, b, c) for b in (0, 1) for c in (0, 1)]
    verdict = watch(*tasks, *samples)
    assert [(one.smallest_bytes, one.largest_bytes) for one in verdict.elements] == [(0, 0)] * 3
    verdict = watch(buffer("BC", 9.0, 400, sender=0, receiver=0), buffer("BC", 9.0, 900, sender=1, receiver=0))
    assert [(one.smallest_bytes, one.largest_bytes) for one in verdict.elements] == [(0, 0), (400, 900), (0, 0)]
    chained = Watch(sequence=("A", "B"))
    verdict = chained(*TASKS, buffer("AB", 9.0, 400), sample("AB", 1.0))
    assert verdict.elements[1].largest_bytes == 400
    verdict = chained(ChainMeasured(("A", "B"), 0))
    assert verdict.elements[1].largest_bytes == 0


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


@pytest.mark.parametrize("adapts", [True, False])
def test_without_adaptation_a_violation_is_exhausted_at_once(adapts: bool):
    """The policy of the constraint need not wait for buffers that nobody shrinks; they would be asked for ever."""
    watch = Watch(window_s=5, adapts=adapts)
    measured = (*TASKS, sample("AB", 900.0), sample("BC", 1.0), buffer("AB", 800.0))
    verdicts, instructions = [], []
    for _ in range(12):
        verdicts.append(watch(*measured))
        instructions += watch.instructions
    assert {one.status for one in verdicts} == {VIOLATED}
    assert (bool(instructions), {one.exhausted for one in verdicts}) == (adapts, {not adapts})
    assert verdicts[-1].violated_windows == 2


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
    watch(*rest, buffer("AB", 30.0, 40_000, version=3))
    watch(*rest, sample("AB", 900.0), buffer("AB", 60.0, 32_768, version=1))
    assert watch.instructions == [ResizeBuffer(channel("AB"), int(40_000 * 0.98**30), 3)]


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
    for sender_ms, shrinks in ((90.0, False), (70.0, True)):
        watch = Watch(sequence=(edge("A", "B"), "B"))
        watch(task("A", sender_ms), task("B", 20.0), sample("AB", 400.0), buffer("AB", 80.0))
        assert any(isinstance(one, ResizeBuffer) for one in watch.instructions) is shrinks


def test_each_channel_is_compared_with_its_own_sender():
    """Of two senders whose buffers are alike, that with the quick task shrinks its buffers to both receivers."""
    watch = Watch(workers=2, sequence=("B", "C"))
    tasks = [task("B", 90.0, 0), task("B", 70.0, 1), task("C", 30.0, 0), task("C", 30.0, 1)]
    pairs = [(b, c) for b in (0, 1) for c in (0, 1)]
    waits = [buffer("BC", 80.0, sender=b, receiver=c) for b, c in pairs]
    watch(*tasks, *(sample("BC", 400.0, *pair) for pair in pairs), *waits)
    assert [one.channel for one in watch.instructions] == [channel("BC", 1, 0), channel("BC", 1, 1)]


def test_a_buffer_that_grows_does_not_keep_a_violation_standing():
    """Only smaller buffers promise that it may have ended."""
    watch = Watch(window_s=3)
    rest = (*TASKS, sample("AB", 1.0))
    watch(*rest, sample("BC", 1.0), buffer("AB", 0.0))
    assert [one.size for one in watch.instructions] == [36_044]
    assert watch(*rest, sample("BC", 900.0)).status is VIOLATED
    assert watch(*rest, sample("BC", 1.0, samples=99)).status is MET


def test_nothing_is_done_about_an_unknown_buffer():
    """A violation without measurements of buffers is told, and at once exhausted."""
    watch = Watch(workers=1)
    verdict = watch(*(replace_processor(one, 0.5) for one in TASKS), sample("AB", 900.0), sample("BC", 1.0))
    assert (watch.instructions, verdict.status, verdict.exhausted) == ([], VIOLATED, True)


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


def test_a_chain_that_is_not_made_leaves_the_remedies_exhausted():
    """A host may refuse it, since an operator is slow: it is asked again each window, and no longer waited for."""
    watch = Watch(window_s=3)
    assert [watch(*HIGH).exhausted for _ in range(9)] == [False] * 3 + [True] * 6
    assert watch.instructions == []
    watch(*HIGH)
    assert watch.instructions == [ChainOperators(("A", "B"), 0)]
    low = (*TASKS, sample("AB", 1.0, samples=99), sample("BC", 1.0), buffer("AB", 1.0), buffer("BC", 5.0))
    assert watch(*low, seconds=4).status is MET
    assert [watch(*HIGH, seconds=4).exhausted for _ in range(2)] == [False, True]


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


def test_a_queue_from_before_a_chain_is_forgotten():
    """It does not make the chain's tasks count as stalled."""
    watch = Watch(sequence=("A", "B"))
    assert watch(task("A", 10.0), QueueMeasured(channel("AB"), 40, 0.0)).status is VIOLATED
    verdict = watch(ChainMeasured(("A", "B"), 0))
    assert (verdict.status, verdict.reason) == (UNJUDGED, "no sample yet of B")


def test_the_processor_is_averaged_over_time_and_not_over_rows():
    """A tenth of a core for 99 rows, then nine tenths for one: half a core, which is too much beside B."""
    watch = Watch(sequence=("A", "B"))
    for rows, processor, chains in ((99, 0.1, 1), (1, 0.9, 0)):
        tasks = (task("A", 10.0, processor=processor, samples=rows), task("B", 20.0, processor=0.45))
        watch(*tasks, sample("AB", 400.0))
        assert len(watch.instructions) == chains
        watch.monitor._asked_chains.clear()


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
