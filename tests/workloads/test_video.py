"""The video pipeline: the same rows as the plain loop, in order, in the seeded cluster, and through changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.planning import cover
from fries_nb.protocol.topology import chains
from fries_nb.simulation import Cluster
from fries_nb.simulation.faults import Faults
from fries_nb.workloads.video import (
    CLIP,
    GROUP,
    TASKS,
    Decoder,
    Encoder,
    Marquee,
    Merger,
    Overlay,
    Partitioner,
    Server,
    VideoFeed,
    video_flow,
    video_reference,
)

Row = dict[str, Any]
FEED = VideoFeed(streams=8, height=24, width=32, seed=5)
FRAMES = 6
OURS = [Partitioner(), Decoder(), Merger(), Overlay(), Encoder(), Server()]
NEWS = (Marquee("BREAKING NEWS", speed=5, colour=(255, 0, 0)),)
COLUMNS = ("group", "number", "size", "checksum")


def in_order(rows: list[Row], tasks: list[Any]) -> Iterator[Row]:
    """Call the tasks one after the other, as one worker of each would."""
    states: dict[tuple[str, int], Any] = {}
    for row in rows:
        current: Row | None = dict(row)
        for name, task in zip(TASKS, tasks, strict=True):
            if current is None:
                break
            if hasattr(task, "process"):
                current = task.process(current, states.setdefault((name, current["group"]), task.initial_state()))
            else:
                current = task(current)
        if current is not None:
            yield current


def packets(frames: int = FRAMES, feed: VideoFeed = FEED) -> list[Row]:
    """The source's rows."""
    return [feed(value) for value in range(frames * feed.streams)]


def by_frame(rows: Any) -> dict[tuple[int, int], Row]:
    """Group and number to the row, which there is one of; hidden columns are left out."""
    found = {(row["group"], row["number"]): {name: row[name] for name in COLUMNS} for row in rows}
    assert len(found) == len(rows)
    return found


def reference(feed: VideoFeed = FEED, frames: int = FRAMES, **options: Any) -> dict[tuple[int, int], Row]:
    """The plain loop's rows."""
    return by_frame(list(video_reference(feed, frames, **options)))


def played(seed: int, frames: int = FRAMES, **options: Any) -> Cluster:
    """A seeded cluster with two workers of each task on two hosts."""
    graph = video_flow(fn.rate(None, count=1), fn.memory()).graph(workers=2)
    return Cluster(graph, {"Src": packets(frames)}, hosts=2, seed=seed, **options)


@pytest.mark.parametrize("feed", [FEED, VideoFeed(4, 16, 17), VideoFeed(12, 48, 40, seed=9)])
def test_the_tasks_in_order_do_what_the_plain_loop_does(feed):
    """All groups and numbers, past the end of a clip, whose first packet is a key packet again."""
    frames = CLIP + 2
    assert by_frame(list(in_order(packets(frames, feed), OURS))) == reference(feed, frames)


def test_streams_may_arrive_in_any_order_of_their_own():
    """A stream that is behind makes its group wait, and nothing is lost."""
    late = sorted(packets(), key=lambda row: (row["stream"] == 2, row["number"], -row["stream"]))
    found = list(in_order(late, OURS))
    assert by_frame(found) == reference()
    assert [row["number"] for row in found if row["group"] == 0] == list(range(FRAMES))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chaining", [True, False])
def test_the_cluster_does_what_the_plain_loop_does(seed, chaining):
    """With any interleaving, and several workers of each task."""
    cluster = played(seed, chaining=chaining)
    cluster.run()
    assert cluster.state == "finished", cluster.error
    assert by_frame(cluster.rows("Sink")) == reference()


@pytest.mark.parametrize("seed", range(3))
def test_a_host_may_be_lost(seed):
    """State of Decoder and Merger is in the checkpoints: each frame is there once."""
    cluster = played(seed, checkpoints=True, commit_interval_ns=2_000_000, faults=Faults(hazard=0.01, host_kills=2))
    cluster.run()
    assert cluster.recoveries
    assert by_frame(cluster.rows("Sink")) == reference()


@pytest.mark.parametrize("scheduler", ["fries", "epoch", "multiversion"])
@pytest.mark.parametrize("seed", range(2))
def test_each_frame_is_wholly_old_or_wholly_new(scheduler, seed):
    """Marquee and compression are changed together; Decoder and Merger, replaced as well, keep their state."""
    frames = 20
    cluster = played(seed, frames)
    cluster.until(lambda: any(server.processed for server in cluster.instances("Server")))
    change = {"Decoder": Decoder(), "Merger": Merger(), "Overlay": Overlay(NEWS), "Encoder": Encoder(1)}
    name = cluster.request(change, scheduler)
    cluster.run()
    assert cluster.outcomes[name].outcome == "done"
    assert judge(cluster.records()).serializable
    old, new = reference(frames=frames), reference(frames=frames, marquees=NEWS, level=1)
    found = by_frame(cluster.rows("Sink"))
    assert found.keys() == old.keys()
    assert all(row in (old[frame], new[frame]) for frame, row in found.items())
    assert any(row == new[frame] for frame, row in found.items())
    assert any(row == old[frame] for frame, row in found.items())


class Unordered(Merger):
    """Tiles the pictures in the order in which they have arrived."""

    def process(self, row: Row, state: Any) -> Row | None:
        return super().process({**row, "stream": len(state.get(row["number"], ()))}, state)


class Careless(Merger):
    """Takes any four pictures."""

    def process(self, row: Row, state: Any) -> Row | None:
        return super().process({**row, "number": 0}, state)


class Forgetful(Decoder):
    """Keeps no picture."""

    def process(self, row: Row, state: Any) -> Row:
        return super().process(row, {})


class OneStream(Decoder):
    """Keeps one picture for all streams of a group."""

    def process(self, row: Row, state: Any) -> Row:
        return super().process({**row, "stream": 0}, state) | {"stream": row["stream"]}


@dataclass(frozen=True)
class Still(Overlay):
    """Its marquee does not move."""

    def __call__(self, row: Row) -> Row:
        return super().__call__({**row, "number": 0}) | {"number": row["number"]}


@pytest.mark.parametrize("mutant", [Unordered(), Careless(), Forgetful(), OneStream(), Still(), Encoder(1)])
def test_a_task_that_does_something_else_is_seen(mutant):
    """The comparison is not empty: with any of these it fails, or a task does."""
    name = next(name for name, kind in zip(TASKS, map(type, OURS), strict=True) if isinstance(mutant, kind))
    tasks = [mutant if task == name else ours for task, ours in zip(TASKS, OURS, strict=True)]
    late = sorted(packets(), key=lambda row: (row["number"], -row["stream"]))
    try:
        found = list(in_order(late, tasks))
    except ValueError:
        return
    assert sorted(map(str, found)) != sorted(map(str, reference().values()))


def test_the_graph_is_the_papers():
    """Keyed by stream, then by group; Merger, Overlay and Encoder can be chained."""
    graph = video_flow(FEED.source(25), fn.memory(), workers=3).graph()
    assert [(edge.source, edge.to, str(edge.partitioning), edge.key) for edge in graph.edges] == [
        ("Src", "Partitioner", "hash", ("stream",)),
        ("Partitioner", "Decoder", "hash", ("group",)),
        ("Decoder", "Merger", "hash", ("group",)),
        ("Merger", "Overlay", "forward", ()),
        ("Overlay", "Encoder", "forward", ()),
        ("Encoder", "Server", "hash", ("group",)),
        ("Server", "Sink", "forward", ()),
    ]
    assert ("Merger", "Overlay", "Encoder") in chains(graph)
    assert {operator.workers for operator in graph.operators if operator.name != "Src"} == {3}


def test_a_change_of_tasks_far_apart_synchronises_those_between():
    """No task is one-to-many, so one alone needs no marker."""
    graph = video_flow(FEED.source(25), fn.memory()).graph()
    assert [set(part.operators) for part in cover(graph, ["Merger"]).components] == [{"Merger"}]
    [part] = cover(graph, ["Decoder", "Encoder"]).components
    assert (set(part.operators), set(part.heads)) == ({"Decoder", "Merger", "Overlay", "Encoder"}, {"Decoder"})


def test_the_source_counts_frames_of_each_stream():
    """Rates and numbers are those of a stream."""
    assert (FEED.source(25).rate, FEED.source(25).count) == (200, None)
    assert (FEED.source(None, frames=3).rate, FEED.source(None, frames=3).count) == (None, 24)


@pytest.mark.parametrize(
    ("making", "said"),
    [
        (lambda: VideoFeed(6), rf"streams=6\): expected a multiple of {GROUP}"),
        (lambda: VideoFeed(0), rf"streams=0\): expected a multiple of {GROUP}"),
        (lambda: VideoFeed(4, height=8), r"height=8\): expected pixels, from 16"),
        (lambda: VideoFeed(4, width=5_000), r"width=5000\): expected pixels, from 16 to 4,096"),
        (lambda: Overlay(()), "expected at least one Marquee"),
    ],
)
def test_bad_numbers_are_refused(making, said):
    """Where they are given."""
    with pytest.raises(ValueError, match=said):
        making()


def test_a_lost_packet_is_an_error_that_names_the_frame():
    """A delta is not applied to another picture than that before it; a key packet begins again."""
    rows = [row for row in packets(3) if (row["stream"], row["number"]) != (1, 1)]
    with pytest.raises(ValueError, match="frame 2 of stream 1, after frame 0: got a delta packet without"):
        list(in_order(rows, OURS))
    decoder, state = Decoder(), {}
    first, last = ({**FEED(value * FEED.streams), "group": 0} for value in (0, CLIP))
    decoder.process(first, state)
    assert decoder.process(last, state)["number"] == CLIP
