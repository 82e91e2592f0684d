"""A seeded play of operators that hold tokens and send rows over several hosts, judged by an omniscient observer.

The observer knows every row and token with its own time, and follows paths location by location: it shares no code
with counts, summaries or trackers.
"""

from __future__ import annotations

import random
from collections import deque
from functools import cache

from fries_nb.errors import DataflowError
from fries_nb.progress.change_batch import CountChange, GraphLocation
from fries_nb.progress.exchange import HostProgress, ProgressState, first_counts
from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
from fries_nb.progress.times import start_time
from fries_nb.progress.tokens import TokenBook, token_counts
from fries_nb.progress.worker_counts import WorkerCounts
from fries_nb.testing.draws import Draws
from fries_nb.testing.network import LaneKind, SeededNetwork
from fries_nb.testing.progress_lanes import ProgressLanes

MOST_ROWS = 12


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
    return any(all(a <= b for a, b in zip(element, time, strict=True)) for element in frontier)


class PlayedWorker:
    """One worker of every operator, as rows, frames and tokens."""

    def __init__(self, play: Play, index: int) -> None:
        self.play, self.index, self.host = play, index, index % play.hosts
        self.counts = WorkerCounts(play.graph)
        self.books = {name: TokenBook(name, self.counts.changes) for name in play.graph.loops}
        self.tokens: list = []  # handles, with their operator
        self.inbox: deque = deque()
        self.in_hand = None  # edge, stamp, rows left
        self.buffers: dict = {}  # (edge, receiver) to times of rows

    def slice(self) -> None:
        """One slice: some rows, some tokens, some frames sent; then all counts are handed over."""
        draw = self.play.draw
        if self.in_hand is None and self.inbox:
            self.load()
        for _ in range(draw.randint(0, 2)):
            if self.in_hand is not None:
                self.process_row()
        if self.tokens and draw.random() < 0.6:
            self.use_token(*draw.choice(self.tokens))
        sent = [self.cut(channel) for channel in list(self.buffers) if draw.random() < (0.4 if self.play.busy else 1)]
        if draw.random() < 0.5:
            self.play.send(sent)
            sent = []
        for book in self.books.values():
            assert book.take_lost() == []
        self.play.lanes.record(self.host, self.counts.hand_over())
        self.play.send(sent)

    def load(self) -> None:
        self.in_hand = self.inbox.popleft()

    def process_row(self) -> None:
        edge, stamp, rows = self.in_hand
        time = rows.pop()
        self.emit(edge.to, time)
        if self.play.busy and self.play.draw.random() < 0.3:
            self.keep(edge.to, later(self.play.draw, time))
        if not rows:
            self.in_hand = None
            self.use_up(edge, stamp)

    def use_up(self, edge, stamp) -> None:
        self.counts.used_up(edge.location, stamp)

    def keep(self, operator, time, bin=None) -> None:
        with self.books[operator].bound():
            bin = self.play.draw.randrange(4) * self.play.workers + self.index if bin is None else bin
            self.tokens.append((operator, self.books[operator].keep(bin, time)))

    def use_token(self, operator, token) -> None:
        book, draw, chance = self.books[operator], self.play.draw, self.play.draw.random()
        with book.bound():
            if self.play.busy and chance < 0.6:
                self.emit(operator, book.time_of(token))
            if not self.play.busy or chance > 0.75:
                self.tokens.remove((operator, token))
                token.drop()
            elif chance > 0.3:
                book.move(token, later(draw, book.time_of(token)))

    def emit(self, operator, time) -> None:
        """Send rows made of one of this time, or hold the right to."""
        draw = self.play.draw
        for edge in self.play.observer.out[operator]:
            if self.play.busy and self.play.rows < MOST_ROWS and draw.random() < (0.5 if edge.feedback else 0.7):
                self.append((edge, draw.randrange(self.play.workers)), later(draw, time))

    def append(self, channel, time) -> None:
        if not self.counts.fits(channel, channel[0].location, time):
            self.play.send([self.cut(channel)])
        self.counts.append(channel, channel[0].location, time)
        self.buffers.setdefault(channel, []).append(self.play.observer.over(channel[0], time))
        self.play.rows += 1

    def cut(self, channel):
        return channel, self.counts.cut(channel), self.buffers.pop(channel)

    def held(self):
        """All that is really outstanding here: rows and tokens, each with its own time."""
        for operator, token in self.tokens:
            yield GraphLocation(operator), self.books[operator].times[token._id]
        waiting = [*self.inbox, *([self.in_hand] if self.in_hand else [])]
        yield from ((edge.location, time) for edge, _, rows in waiting for time in rows)
        yield from ((edge.location, time) for (edge, _), rows in self.buffers.items() for time in rows)


def later(draw: random.Random, time):
    """The same time, or one with a later version or moment."""
    return (time[0] + draw.choice([0, 0, 0, 1]), max(time[1], 0) + draw.choice([0, 0, 1, 2]), *time[2:])


class Play:
    """A run of some slices, a crash perhaps, and the end; ``broken`` is the first law that does not hold."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.graph = drawn_graph(self.draw)
        self.observer = Observer(self.graph)
        self.listeners = [name for name in self.graph.loops if self._is_end(name) or self.draw.random() < 0.5]
        self.busy, self.broken, self.announced = True, "", 0
        sources = {name: 3 for name in self.graph.loops if name == "S" or self.draw.random() < 0.2}
        self._start()
        for number in range(3):
            for name in sources:
                worker = self.players[number % self.workers]
                worker.keep(name, start_time(len(self.graph.loops[name])), bin=100 + number)
                worker.counts.changes.take()  # it is among the first counts
                self.first[worker.host] += first_counts(self.graph, {name: 1})

    def _is_end(self, name) -> bool:
        return not any(edge.source == name and not edge.feedback for edge in self.graph.edges)

    def _start(self) -> None:
        self.hosts, self.workers = self.draw.randint(1, 3), self.draw.randint(1, 4)
        self.rows, self.last, self.known = 0, {}, {}
        self.draws = Draws(self.draw)
        self.network = SeededNetwork(self.draws)
        self.lanes = ProgressLanes(self.network)
        for host in range(self.hosts):
            self.lanes.join(HostProgress(host, self.graph, self.listeners, range(self.hosts)))
        self.first: dict[int, list[CountChange]] = {host: [] for host in range(self.hosts)}
        for host in self.first:
            self.draws.add(host)
        self.players = [PlayedWorker(self, index) for index in range(self.workers)]
        for worker in self.players:
            self.draws.add(worker)

    def send(self, frames) -> None:
        """Put frames on the lanes of their channels."""
        for (edge, receiver), stamp, rows in frames:
            self.network.put((LaneKind.FRAMES, (edge, receiver, len(self.lanes.hosts))), (edge, stamp, rows))

    def step(self) -> None:
        """One event, then every law."""
        drawn = self.draws.draw()
        if isinstance(drawn, PlayedWorker):
            drawn.slice()
        elif isinstance(drawn, int):
            self.begin(drawn)
        else:
            self._deliver(drawn)
        self.check()

    def begin(self, host) -> None:
        """A host begins, with the first counts of its workers, which may have handed over steps already."""
        self.draws.discard(host)
        self.lanes.begin(host, self.first.pop(host))

    def _deliver(self, lane) -> None:
        if lane[0] is LaneKind.PROGRESS:
            self.lanes.deliver(lane)
        else:
            edge, stamp, rows = self.network.take(lane)
            self.players[lane[1][1]].inbox.append((edge, stamp, rows))

    def held(self):
        """All rows and tokens that are outstanding."""
        for worker in self.players:
            yield from worker.held()
        for (kind, _), queue in self.network._lanes.items():
            if kind is LaneKind.FRAMES:
                yield from ((edge.location, time) for edge, _, rows in queue for time in rows)

    def check(self) -> None:
        """Safety, and that no frontier goes back."""
        held = set(self.held())
        self.rows = sum(bool(location.to) for location, _ in held)
        for host, progress in self.lanes.hosts.items():
            self._check_announced(host, progress)
            for listener in self.listeners:
                frontier = progress.frontier(listener).elements
                for location, time in held:
                    for image in self.observer.images(location, time).get(listener, ()):
                        if not below(frontier, image):
                            self.broken = self.broken or f"unsafe: {listener} at {host} is past {location} {time}"
                before = self.last.get((host, listener))
                if before is not None and not all(below(before, element) for element in frontier):
                    self.broken = self.broken or f"back: {listener} at {host}"
                self.announced += before is not None and before != frontier
                self.last[host, listener] = frontier

    def _check_announced(self, host, progress) -> None:
        """What a host announces is what it knows: nothing before it is open, then every frontier, then each change."""
        known = self.known.setdefault(host, {})
        known.update(progress.advanced())
        expected = {one: progress.frontier(one) for one in self.listeners} if progress.is_open else {}
        if known != expected:
            self.broken = self.broken or f"announced at {host}: {known}; expected {expected}"

    def settle(self) -> None:
        """Deliver all counts, until none is on its way."""
        for host in list(self.first):
            self.begin(host)
            self.check()
        while lanes := [lane for lane, _ in self.network.waiting() if lane[0] is LaneKind.PROGRESS]:
            self._deliver(self.draw.choice(lanes))
            self.check()

    def exact(self) -> None:
        """When all counts have arrived, a frontier is that of what is really outstanding (rows, under their stamps)."""
        self.settle()
        stamps = [(GraphLocation(operator), worker.books[operator].times[token._id]) for worker in self.players
                  for operator, token in worker.tokens]  # fmt: skip
        for worker in self.players:
            frames = [*worker.inbox, *([worker.in_hand] if worker.in_hand else [])]
            stamps += [(edge.location, stamp) for edge, stamp, _ in frames]
            stamps += [worker.counts._buffers[channel] for channel in worker.buffers]
        for (kind, _), queue in self.network._lanes.items():
            stamps += [(edge.location, stamp) for edge, stamp, _ in queue] if kind is LaneKind.FRAMES else []
        for progress in self.lanes.hosts.values():
            for listener in self.listeners:
                images = [image for one in stamps for image in self.observer.images(*one).get(listener, ())]
                least = {image for image in images if not any(o != image and below([o], image) for o in images)}
                if set(progress.frontier(listener).elements) != least:
                    self.broken = self.broken or f"inexact: {listener} at {progress.host}"

    def crash(self) -> None:
        """All hosts are lost; tokens and frames are those of a checkpoint, divided among other workers."""
        frames = [(edge, stamp, rows) for worker in self.players
                  for edge, stamp, rows in [*worker.inbox, *([worker.in_hand] if worker.in_hand else [])]]  # fmt: skip
        for worker in self.players:
            cut = [worker.cut(channel) for channel in list(worker.buffers)]
            frames += [(edge, stamp, rows) for (edge, _), stamp, rows in cut]
        for (kind, _), queue in self.network._lanes.items():
            frames += list(queue) if kind is LaneKind.FRAMES else []
        saved: dict = {name: {} for name in self.graph.loops}
        for worker in self.players:
            for name, book in worker.books.items():
                saved[name].update(book.saved())
        self._start()
        for name, bins in saved.items():
            for bin, tokens in bins.items():
                worker = self.players[bin % self.workers]
                self.first[worker.host] += token_counts(name, [tokens])
                worker.books[name].load({bin: tokens})
                found = [worker.books[name].find((bin, number)) for number in tokens.times]
                worker.tokens += [(name, token) for token in found]
        for edge, stamp, rows in frames:
            self.first[self.draw.randrange(self.hosts)].append(CountChange(edge.location, stamp, 1))
            self.send([((edge, self.draw.randrange(self.workers)), stamp, rows)])
        self.check()

    def newcomer(self) -> None:
        """A host joins with another's view, in which some frames may be missing that are on their way to it."""
        self.settle()  # without range requests, the view it starts with has to include all that was sent before
        server = self.draw.choice(list(self.lanes.hosts.values()))
        state: ProgressState = server.state()
        self.lanes.join(HostProgress.joining(len(self.lanes.hosts), self.graph, self.listeners, state))
        self.check()

    def run(self, steps: int = 60) -> str:
        """Play to the end; returns the first broken law, or an empty string."""
        half = self.draw.randrange(steps)
        for number in range(steps):
            self.step()
            if number == half:
                {0: self.crash, 1: self.newcomer, 2: self.exact}.get(self.draw.randrange(4), lambda: None)()
        self.exact()
        self.busy = False
        for _ in range(3_000):
            if not list(self.held()):
                break
            self.step()
        else:
            return self.broken or "rows are left"
        for worker in self.players:
            worker.slice()  # hands over what is left
        self.exact()
        for progress in self.lanes.hosts.values():
            if progress.waiting or progress.state().counts or any(progress.frontier(one) for one in self.listeners):
                self.broken = self.broken or f"host {progress.host} is not at zero"
        return self.broken


def played(seed: int) -> str:
    """The first broken law of a play, or an empty string; an error is one as well."""
    return Play(seed).run()
