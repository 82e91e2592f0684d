"""Path summaries, the minimal ones of a graph, and trackers, against an observer that walks edge by edge."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from progress_observer import Observer, below, drawn_graph, ends_of, least_of, unshrunk

from fries_nb.errors import DataflowError, ProtocolError
from fries_nb.progress.progress_graph import ChangeBatch, CountChange, FlowEdge, GraphLocation, ProgressGraph
from fries_nb.progress.times import PathSummary, identity, minimal, precedes
from fries_nb.progress.tracker import Tracker

GRAPHS = 150
NUMBERS = st.integers(0, 3)


@st.composite
def summaries(draw, length=None):
    """Summaries of paths; from times of this length, if given."""
    keep = draw(st.integers(1, 4 if length is None else length))
    return PathSummary(tuple(draw(st.lists(NUMBERS, min_size=keep, max_size=keep))),
                       tuple(draw(st.lists(NUMBERS, max_size=2))))  # fmt: skip


def times(length):
    """Times of this length."""
    return st.tuples(*[st.integers(0, 5)] * length)


def fit(first: PathSummary, second: PathSummary) -> bool:
    """Whether the second path can begin where the first ends."""
    return second.keep <= first.keep + len(first.suffix)


@given(st.data())
def test_composition_is_what_it_does_to_times(data):
    """``then`` applies one path after the other, and is associative; the identity changes nothing."""
    one = data.draw(summaries())
    two = data.draw(summaries(one.keep + len(one.suffix)))
    three = data.draw(summaries(two.keep + len(two.suffix)))
    time = data.draw(times(data.draw(st.integers(one.keep, one.keep + 2))))
    assert one.then(two).apply(time) == two.apply(one.apply(time))
    assert one.then(two).then(three) == one.then(two.then(three))
    assert identity(len(time)).apply(time) == time
    assert one.then(identity(one.keep + len(one.suffix))) == one


@given(st.data())
def test_paths_keep_the_order_of_times_and_of_each_other(data):
    """A later time gives a later result; a preceding summary stays so, in front of and behind the same path."""
    one, two = data.draw(summaries()), data.draw(summaries())
    length = max(one.keep, two.keep)
    early = data.draw(times(length))
    late = tuple(part + more for part, more in zip(early, data.draw(times(length)), strict=True))
    assert precedes(one.apply(early), one.apply(late))
    if one.precedes(two):
        assert precedes(one.apply(early), two.apply(early))
        behind = data.draw(summaries(min(one.keep + len(one.suffix), two.keep + len(two.suffix))))
        assert one.then(behind).precedes(two.then(behind))
        front = data.draw(summaries())
        if fit(front, one) and fit(front, two):
            assert front.then(one).precedes(front.then(two))


@given(summaries(), summaries())
def test_one_summary_precedes_another_if_it_does_for_every_time(one, two):
    """Decided by two times: all components 0, and all large."""
    length = max(one.keep, two.keep)
    both = [(0,) * length, (100,) * length]
    assert one.precedes(two) == all(precedes(one.apply(time), two.apply(time)) for time in both)


@given(st.lists(summaries(), max_size=6))
def test_minimal_summaries_say_as_much_as_all(found):
    """Each one has a minimal one that precedes it, and no minimal one another."""
    least = minimal(found)
    assert all(any(one.precedes(other) for one in least) for other in found)
    assert not any(one.precedes(other) for one in least for other in least if one is not other)
    assert set(least) <= set(found)


WRONG_SUMMARIES = {
    "then": (lambda one, other: one, test_composition_is_what_it_does_to_times),
    "precedes": (lambda one, other: one.keep <= other.keep, test_paths_keep_the_order_of_times_and_of_each_other),
}


@pytest.mark.parametrize("name", WRONG_SUMMARIES)
def test_the_laws_of_summaries_see_a_mutant(name, monkeypatch):
    """A second path that is forgotten, or an order that looks at lengths alone, breaks a law."""
    wrong, law = WRONG_SUMMARIES[name]
    monkeypatch.setattr(PathSummary, name, wrong)
    with pytest.raises(AssertionError):
        unshrunk(law)()


def walks(graph: ProgressGraph, location: GraphLocation, time, most=2):
    """All times with which paths from here that use no edge more than ``most`` times arrive, with the operator."""
    observer = Observer(graph)
    start = [(location.to, time, ())] if location.to else [
        (edge.to, observer.over(edge, time), (edge,)) for edge in observer.out[location.operator]]  # fmt: skip
    while start:
        operator, now, used = start.pop()
        yield operator, now
        start += [(edge.to, observer.over(edge, now), (*used, edge))
                  for edge in observer.out[operator] if used.count(edge) < most]  # fmt: skip


def small_graphs(number: int):
    """Random graphs with few enough paths."""
    found, seed = [], 0
    while len(found) < number:
        graph = drawn_graph(random.Random(seed))
        found += [graph] if len(graph.edges) <= 7 else []
        seed += 1
    return found


def test_summaries_are_those_of_all_paths():
    """What paths do to a time is never before what a summary says, and some path does exactly that."""
    for graph in small_graphs(GRAPHS):
        tables = {listener: graph.summaries_to(listener) for listener in graph.loops}
        for location in graph.locations:
            for time in ((3, 7, 4, 9), (3, 7, 0, 0)):
                time = time[: graph.length_at(location)]
                arrived: dict = {listener: set() for listener in tables}
                for operator, now in walks(graph, location, time):
                    arrived[operator].add(now)
                for listener, table in tables.items():
                    found = {summary.apply(time) for summary in table.get(location, ())}
                    assert found <= arrived[listener]
                    assert least_of(found) == least_of(arrived[listener])


def drawn_changes(draw, graph, number):
    """Changes at random, also such as make counts negative."""
    for _ in range(number):
        location = draw.choice(graph.locations)
        rounds = [draw.randint(0, 2) for _ in range(graph.length_at(location) - 2)]
        yield CountChange(location, (draw.randint(0, 1), draw.randint(0, 3), *rounds), draw.choice([-2, -1, 1, 1, 2]))


def frontier_of(observer, counts, listener):
    """By brute force: what positive counts can result in."""
    images = [image for location, time, count in counts if count > 0
              for image in observer.images(location, time).get(listener, ())]  # fmt: skip
    return tuple(sorted(least_of(set(images))))


@pytest.mark.parametrize("seed", range(60))
def test_a_tracker_is_brute_force(seed):
    """Frontiers, what has changed, holders, minimal pointstamps, and listeners that come later; after every batch."""
    draw = random.Random(seed)
    graph = drawn_graph(draw)
    observer, tracker = Observer(graph), Tracker(graph, graph.loops)
    late = Tracker(graph, ends_of(graph))
    everything: list = []
    for _ in range(12):
        changes = list(drawn_changes(draw, graph, draw.randint(0, 5)))
        everything += changes
        before = {name: tracker.frontier(name) for name in graph.loops}
        advanced = tracker.update(changes)
        late.update(draw.sample(changes, len(changes)))
        late.listen(draw.choice(list(graph.loops)))
        for name in graph.loops:
            frontier = tracker.frontier(name)
            assert frontier.elements == frontier_of(observer, tracker.counts, name)
            assert advanced.get(name) == (frontier if frontier != before[name] else None)
            holders = {(one.operator, one.to, one.time) for one in tracker.holders(name)}
            assert holders == {(at.operator, at.to, time) for at, time, count in tracker.counts if count > 0
                               and set(observer.images(at, time).get(name, ())) & set(frontier.elements)}  # fmt: skip
        for name in late.listeners:
            assert late.frontier(name) == tracker.frontier(name)
        for at, time, count in tracker.counts:
            images = observer.images(at, time)
            is_minimal = any(set(images.get(name, ())) & set(tracker.frontier(name).elements) for name in graph.loops)
            assert tracker.is_minimal(at, time) == (count > 0 and is_minimal)
    assert set(tracker.counts) == {one for one in ChangeBatch(everything) if graph.leads_on(one.location)}
    restored = Tracker(graph, graph.loops, tracker.counts)
    assert all(restored.frontier(name) == tracker.frontier(name) for name in graph.loops)


CHANGES = st.lists(st.builds(CountChange, st.sampled_from([GraphLocation("A"), GraphLocation("A", "B")]),
                             st.tuples(st.integers(0, 1), st.integers(0, 2)), st.integers(-2, 2)))  # fmt: skip


@given(CHANGES, st.randoms(use_true_random=False), st.integers(0, 10))
def test_batches_commute_and_group(changes, shuffled, cut):
    """Neither the order of changes matters nor how they are grouped; none that is left is 0."""
    mixed = shuffled.sample(changes, len(changes))
    grouped = ChangeBatch(ChangeBatch(mixed[:cut]))
    net = [grouped.update(*one) for one in ChangeBatch(mixed[cut:])]
    whole = ChangeBatch(changes)
    assert sorted(grouped) == sorted(whole)
    assert all(one.delta == whole.get(one.location, one.time) != 0 for one in whole)
    assert len(net) <= len(changes)
    assert sorted(whole.take()) == sorted(grouped.take())
    assert not whole


def test_a_graph_refuses_what_has_no_meaning():
    """Unknown operators and edges, feedback without its loop, edges that nobody listens to, times of another depth."""
    graph = ProgressGraph({"S": (), "H": ("L",), "O": ()}, (FlowEdge("S", "H"), FlowEdge("H", "O")))
    tracker = Tracker(graph, ["O"])
    with pytest.raises(ProtocolError, match=r"time \(0, 1\) came for H; expected 3 components, one for each loop"):
        tracker.update([CountChange(GraphLocation("H"), (0, 1), 1)])
    with pytest.raises(ProtocolError, match="a count came for X, which is not in this dataflow"):
        tracker.update([CountChange(GraphLocation("X"), (0, 1), 1)])
    with pytest.raises(ProtocolError, match="H is not a listener, so its frontier is unknown; listeners are O"):
        tracker.frontier("H")
    with pytest.raises(ProtocolError, match="edge H->O leads to no listener"):
        Tracker(graph, ["H"])
    with pytest.raises(DataflowError, match="operator"):
        tracker.listen("X")
    with pytest.raises(DataflowError, match="edge"):
        graph.summary(GraphLocation("S", "O"))
    with pytest.raises(DataflowError, match="feedback edge S->H goes from outside of any loop to loop 'L'"):
        ProgressGraph(graph.loops, (FlowEdge("S", "H", feedback=True),))
    with pytest.raises(DataflowError, match="operator"):
        ProgressGraph(graph.loops, (FlowEdge("S", "X"),))


def test_below_is_componentwise():
    """The observer's order is that of times, so both may be compared."""
    space = [(a, b) for a in range(3) for b in range(3)]
    assert all(below([one], other) == precedes(one, other) for one in space for other in space)
