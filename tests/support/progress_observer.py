"""Random dataflows with loops, and an observer that follows every path edge by edge.

It shares no code with counts, summaries or trackers.
"""

from __future__ import annotations

import random
from collections import deque
from functools import cache
from operator import le

from hypothesis import Phase, given, settings
from hypothesis.strategies import data

from fries_nb.errors import DataflowError
from fries_nb.progress.progress_graph import FlowEdge, GraphLocation, ProgressGraph


def drawn_graph(draw: random.Random) -> ProgressGraph:
    """A random graph of up to two nested loops, or two loops side by side."""
    scopes = [(), ("A",), ("A",), ("A", "B"), ("A", "B"), ("C",), ()]
    loops = {"S": (), **{f"o{n}": draw.choice(scopes) for n in range(draw.randint(2, 5))}}
    names, edges = list(loops), []
    for place, name in enumerate(names[1:], 1):
        edges.append(FlowEdge(names[draw.randrange(place)], name))
    for _ in range(draw.randint(0, 2)):
        first, second = sorted(draw.sample(range(len(names)), 2))
        edges.append(FlowEdge(names[first], names[second], branch=1))
    inside = [(a, b) for n, a in enumerate(names) for b in names[n + 1 :] if loops[a] and loops[a] == loops[b]]
    for first, second in draw.sample(inside, min(len(inside), draw.randint(0, 2))):
        edges.append(FlowEdge(second, first, branch=2, feedback=True))
    try:
        return ProgressGraph(loops, tuple(dict.fromkeys(edges)))
    except DataflowError:  # a cycle through feedback of an inner loop and out again: it is drawn anew
        return drawn_graph(draw)


def ends_of(graph: ProgressGraph) -> list[str]:
    """The operators that no forward edge leaves: each location leads to one of them."""
    senders = {edge.source for edge in graph.edges if not edge.feedback}
    return [name for name in graph.loops if name not in senders]


class Observer:
    """Where times can go, by walking the graph edge by edge."""

    def __init__(self, graph: ProgressGraph) -> None:
        self.loops = dict(graph.loops)
        self.out = {name: [edge for edge in graph.edges if edge.source == name] for name in graph.loops}
        self.images = cache(self.images)

    def over(self, edge: FlowEdge, time):
        """The time of a message at its receiver."""
        if edge.feedback:
            return (*time[:-1], time[-1] + 1)
        inner, outer = self.loops[edge.source], self.loops[edge.to]
        shared = 0
        while shared < min(len(inner), len(outer)) and inner[shared] == outer[shared]:
            shared += 1
        return (*time[: 2 + shared], *[0] * (len(outer) - shared))

    def images(self, location: GraphLocation, time) -> dict:
        """Operator to the minimal times at its input that a row or token here can result in."""
        found: dict = {}
        new = deque([(location.to, time)] if location.to else self._sent(location.operator, time))
        while new:
            operator, now = new.popleft()
            known = found.setdefault(operator, [])
            if not below(known, now):
                known[:] = [other for other in known if not below([now], other)] + [now]
                new.extend(self._sent(operator, now))
        return found

    def _sent(self, operator, time):
        return [(edge.to, self.over(edge, time)) for edge in self.out[operator]]


def below(frontier, time) -> bool:
    """Whether an element of a frontier is, component by component, at most the time."""
    for element in frontier:
        assert len(element) == len(time)
        if all(map(le, element, time)):
            return True
    return False


def least_of(times) -> set:
    """The minimal ones."""
    return {time for time in times if not any(o != time and below([o], time) for o in times)}


def unshrunk(law):
    """A law of one argument ``data``, to see whether it catches a mutant; without the search for the least example."""
    inner = law.hypothesis.inner_test
    return settings(phases=[Phase.generate], database=None)(given(data())(inner))
