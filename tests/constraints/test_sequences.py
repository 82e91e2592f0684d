"""The worst and the mean of layers against all their sequences, listed one by one."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from soak import SOAK

from fries_nb.constraints.sequences import (
    STALLED_MS,
    SequenceLayers,
    WorstSequence,
    latency_through,
    mean_latency,
    with_stalls,
    without_edges,
    worst_sequence,
)

SEEDS = range(100 * SOAK)
NAN = float("nan")


def drawn(seed: int, missing: float = 0.15) -> SequenceLayers:
    """Up to five layers of up to four workers; whole numbers, so that sums are exact."""
    draws = random.Random(seed)

    def value() -> float:
        return NAN if draws.random() < missing else float(draws.randint(0, 50))

    sizes = [draws.randint(1, 4)]
    edges = []
    for _ in range(draws.randint(0, 4)):
        if draws.random() < 0.5:
            edges.append(np.array([value() for _ in range(sizes[-1])]))
            sizes.append(sizes[-1])
        else:
            sizes.append(draws.randint(1, 4))
            edges.append(np.array([[value() for _ in range(sizes[-1])] for _ in range(sizes[-2])]))
    return SequenceLayers(tuple(np.array([value() for _ in range(size)]) for size in sizes), tuple(edges))


def sequences(layers: SequenceLayers) -> dict[tuple[int, ...], float]:
    """All sequences that can be judged, and their latencies."""
    found = {}
    for positions in product(*(range(task.size) for task in layers.tasks)):
        latency = sum(task[place] for task, place in zip(layers.tasks, positions, strict=True))
        for number, edge in enumerate(layers.edges):
            before, after = positions[number : number + 2]
            if edge.ndim == 1:
                latency += edge[before] if before == after else NAN
            else:
                latency += edge[before, after]
        if not np.isnan(latency):
            found[positions] = float(latency)
    return found


def test_the_worst_sequence_is_that_of_the_list():
    """Its latency is the largest, and its workers have that latency."""
    judged = 0
    for seed in SEEDS:
        layers = drawn(seed)
        listed, worst = sequences(layers), worst_sequence(layers)
        assert (worst is None) == (not listed), seed
        if worst is not None:
            assert worst.latency_ms == max(listed.values()) == listed[worst.positions], seed
            judged += 1
    assert judged > len(SEEDS) / 2


def test_the_latency_through_an_element_is_that_of_its_worst_sequence():
    """For every task and every channel."""
    for seed in SEEDS:
        layers = drawn(seed)
        listed, through = sequences(layers), latency_through(layers)
        for number, task in enumerate(through.tasks):
            for place, latency in enumerate(task):
                own = [value for positions, value in listed.items() if positions[number] == place]
                assert latency == max(own, default=-np.inf), seed
        for number, edge in enumerate(through.edges):
            for ends, latency in np.ndenumerate(edge):
                pair = ends * 2 if edge.ndim == 1 else ends
                own = [value for positions, value in listed.items() if positions[number : number + 2] == pair]
                assert latency == max(own, default=-np.inf), seed


def test_the_mean_is_that_of_rows_that_are_followed_one_by_one():
    """Rows enter at the anchor in proportion, and take each channel in proportion, both ways."""
    for seed in SEEDS:
        layers, draws = drawn(seed, missing=0.0), random.Random(seed)
        rows = SequenceLayers(
            tuple(np.array([float(draws.randint(1, 9)) for _ in task]) for task in layers.tasks),
            tuple(
                np.array([float(draws.randint(1, 9)) for _ in edge.flat]).reshape(edge.shape) for edge in layers.edges
            ),
        )
        anchor = draws.randrange(len(layers.tasks))
        found = mean_latency(layers, rows, anchor)
        expected = followed(layers, rows, anchor)
        assert found is not None
        assert found.latency_ms == pytest.approx(expected), seed
        assert found.latency_ms == pytest.approx(sum(found.tasks) + sum(found.edges))
        assert min(sequences(layers).values()) - 1e-9 <= found.latency_ms <= max(sequences(layers).values()) + 1e-9


def followed(layers: SequenceLayers, rows: SequenceLayers, anchor: int) -> float:
    """The mean over all sequences, each with the product of the shares of its channels."""
    total = weight = 0.0
    for positions, latency in sequences(layers).items():
        share = entering(rows, anchor)[positions[anchor]]
        for number, edge in enumerate(rows.edges):
            if edge.ndim == 2:
                before, after = positions[number : number + 2]
                share *= edge[before, after] / (edge[before].sum() if number >= anchor else edge[:, after].sum())
        total += share * latency
        weight += share
    return total / weight


def entering(rows: SequenceLayers, anchor: int) -> np.ndarray:
    """Rows at each worker of the anchor, by its out-edge, else its in-edge, else the task."""
    if anchor < len(rows.edges):
        edge = rows.edges[anchor]
        return edge if edge.ndim == 1 else edge.sum(axis=1)
    if anchor:
        edge = rows.edges[anchor - 1]
        return edge if edge.ndim == 1 else edge.sum(axis=0)
    return rows.tasks[0]


def test_weights_decide_the_mean():
    """Of a quick channel with 99 rows and a slow one with a single row."""
    layers = SequenceLayers((np.zeros(1), np.zeros(2)), (np.array([[10.0, 1_010.0]]),))
    rows = SequenceLayers((np.zeros(1), np.zeros(2)), (np.array([[99.0, 1.0]]),))
    mean = mean_latency(layers, rows, anchor=0)
    assert (mean.latency_ms, mean.edges, mean.rows) == (20.0, (20.0,), 100.0)
    unknown = SequenceLayers(rows.tasks, (np.zeros((1, 2)),))
    assert mean_latency(layers, unknown, anchor=0).latency_ms == 510.0


def test_a_stalled_channel_makes_the_mean_infinite_however_few_rows_were_sent_on_it():
    """Four of 133 rows: a share of what stands for an infinite latency would read as thirty million seconds."""
    layers = SequenceLayers((np.zeros(1), np.zeros(2)), (np.array([[10.0, STALLED_MS]]),))
    shares = {(129.0, 4.0): np.inf, (133.0, 0.0): 10.0}
    for (quick, stalled), latency_ms in shares.items():
        rows = SequenceLayers((np.zeros(1), np.zeros(2)), (np.array([[quick, stalled]]),))
        mean = mean_latency(layers, rows, anchor=0)
        assert (mean.latency_ms, mean.tasks, mean.edges) == (latency_ms, (0.0, 0.0), (latency_ms,))


def test_what_is_not_judged_is_not_in_the_mean():
    """A channel without a sample takes no share, however many rows it carried."""
    layers = SequenceLayers((np.zeros(1), np.array([1.0, NAN])), (np.array([[10.0, 20.0]]),))
    rows = SequenceLayers((np.zeros(1), np.zeros(2)), (np.array([[1.0, 99.0]]),))
    mean = mean_latency(layers, rows, anchor=0)
    assert (mean.latency_ms, mean.rows) == (11.0, 100.0)
    nothing = SequenceLayers((np.array([NAN]), np.zeros(2)), layers.edges)
    assert mean_latency(nothing, rows, anchor=0) is None
    assert worst_sequence(nothing) is None


def test_a_stalled_worker_makes_its_sequences_judged():
    """Rows wait in front of B[0], which takes none: it has no sample, nor has what follows; B[1] is as before."""
    tasks = (np.array([1.0]), np.array([NAN, 2.0]), np.array([3.0]))
    edges = (np.array([[STALLED_MS, 5.0]]), np.array([[NAN], [4.0]]))
    layers = SequenceLayers(tasks, edges)
    assert worst_sequence(layers) == WorstSequence(15.0, (0, 1, 0))
    stalled = with_stalls(layers, (np.array([[True, False]]), np.zeros((2, 1), dtype=bool)))
    assert worst_sequence(stalled) == WorstSequence(STALLED_MS + 4, (0, 0, 0))


def test_nothing_far_from_a_queue_is_filled():
    """A sequence that meets no queue stays as it is; in front of a queue a missing task counts as 0."""
    edges = (np.array([NAN, NAN]), np.array([7.0, 8.0]))
    layers = SequenceLayers((np.array([NAN, NAN]), np.array([NAN, 1.0]), np.array([1.0, 1.0])), edges)
    filled = with_stalls(layers, (np.zeros(2, dtype=bool), np.array([True, False])))
    assert worst_sequence(filled) == WorstSequence(8.0, (0, 0, 0))
    assert np.isnan(filled.tasks[0]).tolist() == [False, True]
    assert with_stalls(layers, (np.zeros(2, dtype=bool),) * 2) is layers


def test_tasks_alone():
    """Channels count as nothing, but those without a value are still on no sequence."""
    layers = SequenceLayers((np.array([1.0]), np.array([2.0, 50.0])), (np.array([[9.0, NAN]]),))
    assert worst_sequence(without_edges(layers)) == WorstSequence(3.0, (0, 0))


def test_half_a_billion_sequences_are_two_arrays():
    """m=800 with two hash edges: the worst of 512 million, planted, is found."""
    draws, m = np.random.default_rng(5), 800
    tasks = [draws.uniform(1, 2, m) for _ in range(4)]
    edges = [draws.uniform(1, 9, (m, m)), draws.uniform(1, 9, m), draws.uniform(1, 9, (m, m))]
    edges[0][17, 400] = 50.0
    edges[2][400, 799] = 60.0
    layers = SequenceLayers(tuple(tasks), tuple(edges))
    worst = worst_sequence(layers)
    assert worst.positions == (17, 400, 400, 799)
    through = latency_through(layers)
    assert through.edges[0].max() == pytest.approx(worst.latency_ms)
    rows = SequenceLayers(tuple(tasks), tuple(edges))
    assert mean_latency(layers, rows, anchor=1).latency_ms < worst.latency_ms
