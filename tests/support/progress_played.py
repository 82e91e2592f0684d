"""A seeded play of operators that hold tokens and send rows over several hosts, judged by an omniscient observer."""

from __future__ import annotations

import random
from types import SimpleNamespace

from progress_observer import Observer, below, drawn_graph, ends_of, least_of
from progress_worker import PlayedWorker

from fries_nb.host.host_progress import PARTING_NS
from fries_nb.progress.exchange import HostProgress, ProgressFrame, first_counts
from fries_nb.progress.progress_graph import CountChange, GraphLocation
from fries_nb.progress.times import start_time
from fries_nb.progress.tokens import token_counts
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.cluster import ManualClock
from fries_nb.simulation.network import Draws, LaneKind, SeededNetwork
from fries_nb.simulation.seeded_progress import ProgressLinks
from fries_nb.simulation.virtual_threads import VirtualEnvironment, VirtualThreads


class Play:
    """A run of some slices, a crash perhaps, and the end; ``broken`` is the first law that does not hold."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.graph = drawn_graph(self.draw)
        self.observer = Observer(self.graph)
        ends = ends_of(self.graph)
        self.listeners = [name for name in self.graph.loops if name in ends or self.draw.random() < 0.5]
        self.busy, self.broken, self.announced = True, "", 0
        style = self.draw.choice(["apart", "apart", "still", "any"])
        self.is_apart, self.is_still = style == "apart", style == "still"
        others = 0 if self.is_apart else 0.2
        sources = {name: 3 for name in self.graph.loops if name == "S" or self.draw.random() < others}
        self._start()
        for number in range(3):
            for name in sources:
                worker = self.players[number % self.workers]
                worker.keep(name, start_time(len(self.graph.loops[name])), bin=100 + number)
                worker.counts.changes.take()  # it is among the first counts
                self.first[worker.host] += first_counts(self.graph, {name: 1})

    def _start(self) -> None:
        self.hosts, self.workers = self.draw.randint(1, 3), self.draw.randint(1, 2 if self.is_apart else 4)
        self.rows, self.last, self.known, self.haste = 0, {}, {}, 0.1 if self.is_apart else 0.4
        self.draws, self.asked = Draws(self.draw), []
        self.network = SeededNetwork(self.draws)
        self.clock = ManualClock()
        environment = VirtualEnvironment(VirtualThreads(self.draws, self.clock), self.clock, self.draw)
        self.lanes = ProgressLinks(self.network, environment)
        for host in range(self.hosts):
            self.add(HostProgress(host, self.graph, self.listeners, range(self.hosts)), range(self.hosts))
        self.first: dict[int, list[CountChange]] = {host: [] for host in range(self.hosts)}
        for host in self.first:
            self.draws.add(host)
        self.players = [PlayedWorker(self, index) for index in range(self.workers)]
        for worker in self.players:
            self.draws.add(worker)

    def add(self, view, others):
        """A host, of which each operator has a worker that is notified of what is announced."""
        known = self.known[view.host] = {}
        hears = {name: (name,) for name in self.graph.loops}
        link = self.lanes.add(view, others, hears, lambda _, event: known.update({event.operator: event.frontier}))
        link.place(self.topology_of(view.host))
        return link

    def topology_of(self, host):
        """Where the notified workers are."""
        return SimpleNamespace(workers_on=lambda hosts: [WorkerId(name, host) for name in self.graph.loops])

    def send(self, frames) -> None:
        """Put frames on the lanes of their channels."""
        for (edge, receiver), stamp, rows in frames:
            self.network.put((LaneKind.FRAMES, (edge, receiver, len(self.lanes.views))), (edge, stamp, rows))

    def step(self) -> None:
        """One event, then every law."""
        drawn = self.draws.draw()
        if isinstance(drawn, PlayedWorker):
            drawn.slice()
        elif isinstance(drawn, int):
            self.begin(drawn)
        elif drawn[0] in ("listen", "admit", "part"):
            self.ask(drawn)
        else:
            self._deliver(drawn)
        self.check()

    def begin(self, host) -> None:
        """A host begins, with the first counts of its workers, which may have handed over steps already."""
        self.draws.discard(host)
        self.lanes.links[host].begin(self.first.pop(host))

    def later(self, time):
        """The same time, or one with a later version or moment; in some plays never with both, in some hardly ever."""
        version, moment = self.draw.choice([0, 0, 0, 1]), self.draw.choice([0, 0, 1, 2])
        if self.is_still:
            version, moment = 0, self.draw.choice([0, 0, 0, 0, 0, 1])
        elif self.is_apart:
            version, moment = self.draw.choice([(0, 0), (1, 0), (0, 1), (0, 2)])
        return (time[0] + version, max(time[1], 0) + moment, *time[2:])

    def _deliver(self, lane) -> None:
        if lane[0] is LaneKind.PROGRESS:
            progress, frame = self.lanes.views.get(lane[1][1]), self.network._lanes[lane][0]
            self.lanes.deliver(lane)
            again = progress is not None and isinstance(frame, ProgressFrame) and not frame.is_last
            if again and self.draw.random() < 0.1 and progress.receive(frame) is not None:
                self.broken = self.broken or "a frame that came twice had an effect"
        elif lane[0] is LaneKind.STATE:
            worker, operator, bin = lane[1]
            self.players[worker].receive(operator, bin, self.network.take(lane))
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
        for operator, _, saved in self._on_their_way():
            yield from ((GraphLocation(operator), tuple(time)) for time in saved.times.values())

    def _on_their_way(self):
        """The bins that move, as operator, number and tokens."""
        for (kind, place), queue in self.network._lanes.items():
            if kind is LaneKind.STATE:
                yield from ((*place[1:], saved) for saved in queue)

    def check(self) -> None:
        """Safety, and that no frontier goes back."""
        held = set(self.held())
        self.rows = sum(bool(location.to) for location, _ in held)
        arriving: dict = {}  # operator to what can arrive there, each time with one of what it comes of
        for place in held:
            for listener, images in self.observer.images(*place).items():
                arriving.setdefault(listener, {}).update(dict.fromkeys(images, place))
        for host, progress in self.lanes.views.items():
            self._check_announced(host, progress)
            for listener in progress.listeners:
                frontier = progress.frontier(listener).elements
                for image, (location, time) in arriving.get(listener, {}).items():
                    if not below(frontier, image):
                        self.broken = self.broken or f"unsafe: {listener} at {host} is past {location} {time}"
                before = self.last.get((host, listener))
                if before is not None and not all(below(before, element) for element in frontier):
                    self.broken = self.broken or f"back: {listener} at {host}"
                self.announced += before is not None and before != frontier
                self.last[host, listener] = frontier

    def _check_announced(self, host, progress) -> None:
        """What a host announces is what it knows: nothing before it is open, then every frontier, then each change."""
        known = self.known[host]
        expected = {one: progress.frontier(one) for one in progress.listeners} if progress.is_open else {}
        if known != expected:
            self.broken = self.broken or f"announced at {host}: {known}; expected {expected}"

    def settle(self) -> None:
        """Deliver all counts, until none is on its way."""
        for host in list(self.first):
            self.begin(host)
            self.check()
        for asked in list(self.asked):
            self.ask(asked)
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
        for name, _, saved in self._on_their_way():
            stamps += [(GraphLocation(name), time) for time in saved.times.values()]
        for progress in self.lanes.views.values():
            for listener in progress.listeners:
                images = [image for one in stamps for image in self.observer.images(*one).get(listener, ())]
                if set(progress.frontier(listener).elements) != least_of(set(images)):
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
        for operator, bin, tokens in self._on_their_way():
            saved[operator][bin] = tokens
        self._start()
        for name, bins in saved.items():
            for bin, tokens in bins.items():
                worker = self.players[bin % self.workers]
                self.first[worker.host] += token_counts(name, [tokens])
                worker.take(name, bin, tokens)
        for edge, stamp, rows in frames:
            self.first[self.draw.randrange(self.hosts)].append(CountChange(edge.location, stamp, 1))
            self.send([((edge, self.draw.randrange(self.workers)), stamp, rows)])
        self.check()

    def newcomer(self) -> None:
        """A host joins, with a worker; the others admit it at any moment, and frames are on their way to all."""
        if self.first:
            return  # a host joins a run that has begun
        new, self.hosts = self.hosts, self.hosts + 1
        for asked in [one for one in self.asked if one[0] != "part"]:
            self.ask(asked)  # all have the same listeners, and hosts join one after the other
        members, listeners = list(self.lanes.views), self.lanes.views[0].listeners
        for host in members:
            self._want("admit", host, new)
        self.add(HostProgress.joining(new, self.graph, listeners), ()).join(members, self.topology_of(new))
        worker = PlayedWorker(self, self.workers)
        worker.host, worker.bins = new, {name: [] for name in self.graph.loops}
        self.workers += 1
        self.players.append(worker)
        self.draws.add(worker)
        self.check()

    def leave(self) -> None:
        """A host leaves, and its workers go on elsewhere: at once, or if they hold anything, when all have heard."""
        stay = {0, *(one[1] for one in self.asked), *(one[2] for one in self.asked), *self.first}
        leaving = [host for host, view in self.lanes.views.items() if host not in stay and view.is_open]
        if not leaving:
            return
        host = self.draw.choice(leaving)
        leavers = [worker for worker in self.players if worker.host == host]
        others = [other for other in self.lanes.views if other != host]
        for worker in leavers:
            self.lanes.links[host].record(worker.counts.hand_over())
        self.lanes.links[host].leave([host])
        self.lanes.remove(host)
        for other in others:
            self._want("part", other, host)
        if any(True for worker in leavers for _ in worker.held()):
            self.settle()
        for worker in leavers:
            worker.host = self.draw.choice(others)
        self.check()

    def move(self) -> None:
        """Some bins move to other workers, at this host or another."""
        for worker in self.players:
            other = self.draw.choice(self.players)
            held = [(name, bin) for name, book in worker.books.items() for bin in book.saved()]
            if held and other is not worker:
                worker.give(*self.draw.choice(held), other)
        self.check()

    def listen(self) -> None:
        """One operator more is asked for by each host, sooner or later."""
        asked = self.draw.choice(list(self.graph.loops))
        for host in self.lanes.views:
            self._want("listen", host, asked)

    def _want(self, *asked) -> None:
        self.asked.append(asked)
        self.draws.add(asked)

    def ask(self, asked) -> None:
        """A host asks for an operator, admits another host, or hears that one has left."""
        self.draws.discard(asked)
        self.asked.remove(asked)
        what, host, of = asked
        link, view = self.lanes.links[host], self.lanes.views[host]
        if what == "listen":
            link._broadcast(view.listen(of))
            link._announce(view)
        elif what == "admit":
            link.admit([of])
            link.settle()
        else:
            link.part([of])

    def run(self, steps: int = 60) -> str:
        """Play to the end; returns the first broken law, or an empty string."""
        events = [self.crash, self.newcomer, self.newcomer, self.leave, self.move, self.move, self.listen, self.exact]
        due = {self.draw.randrange(steps): self.draw.choice(events) for _ in range(self.draw.randrange(4))}
        for number in range(steps):
            self.step()
            if number in due:
                due[number]()
        self.exact()
        self.busy, self.haste = False, 1
        for _ in range(30_000):  # a worker of the slowest pace has one draw of hundreds
            if not list(self.held()):
                break
            self.step()
        else:
            return self.broken or "rows are left"
        for worker in self.players:
            worker.slice()  # hands over what is left
        self.exact()
        for host, progress in self.lanes.views.items():
            self.clock.advance(2 * PARTING_NS)
            self.lanes.links[host].check()
            if progress.waiting or progress.state().counts or any(progress.frontier(one) for one in progress.listeners):
                self.broken = self.broken or f"host {host} is not at zero"
        return self.broken


def played(seed: int) -> str:
    """The first broken law of a play, or an empty string; an error is one as well."""
    return Play(seed).run()
