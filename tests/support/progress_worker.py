"""A played worker of every operator of a dataflow: it knows each row and token with its own time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fries_nb.progress.exchange import WorkerCounts
from fries_nb.progress.progress_graph import GraphLocation
from fries_nb.progress.tokens import TokenBook
from fries_nb.simulation.network import LaneKind

if TYPE_CHECKING:
    from progress_played import Play

MOST_ROWS = 12


class PlayedWorker:
    """One worker of every operator, as rows, frames and tokens."""

    def __init__(self, play: Play, index: int) -> None:
        self.play, self.index, self.host = play, index, index % play.hosts
        self.counts = WorkerCounts(play.graph)
        self.books = {name: TokenBook(name, self.counts.changes) for name in play.graph.loops}
        self.bins = {name: [number * play.workers + index for number in range(4)] for name in play.graph.loops}
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
            self.use_token(*self.next_token())
        sent = [self.cut(channel) for channel in list(self.buffers) if draw.random() < self.play.haste]
        if draw.random() < 0.5:
            self.play.send(sent)
            sent = []
        for book in self.books.values():
            assert book.take_lost() == []
        self.hand_over()
        self.play.send(sent)

    def hand_over(self) -> None:
        self.play.lanes.links[self.host].record(self.counts.hand_over())

    def load(self) -> None:
        self.in_hand = self.inbox.popleft()

    def process_row(self) -> None:
        edge, stamp, rows = self.in_hand
        time = rows.pop()
        self.emit(edge.to, time)
        if self.play.busy and self.bins[edge.to] and self.play.draw.random() < (0.1 if self.play.is_apart else 0.3):
            self.keep(edge.to, self.play.later(time))
        if not rows:
            self.in_hand = None
            self.use_up(edge, stamp)

    def use_up(self, edge, stamp) -> None:
        self.counts.used_up(edge.location, stamp)

    def keep(self, operator, time, bin=None) -> None:
        with self.books[operator].bound():
            bin = self.play.draw.choice(self.bins[operator]) if bin is None else bin
            self.tokens.append((operator, self.books[operator].keep(bin, time)))

    def next_token(self):
        """Any token, or in some plays mostly the earliest, so that frontiers follow closely."""
        if self.play.is_apart and self.play.draw.random() < 0.5:
            return min(self.tokens, key=lambda held: sum(self.books[held[0]].time_of(held[1])))
        return self.play.draw.choice(self.tokens)

    def use_token(self, operator, token) -> None:
        book, chance = self.books[operator], self.play.draw.random()
        with book.bound():
            if self.play.busy and chance < 0.6:
                self.emit(operator, book.time_of(token))
            if not self.play.busy or chance > (0.95 if self.play.is_apart else 0.75):
                self.tokens.remove((operator, token))
                token.drop()
            elif chance > 0.3:
                book.move(token, self.play.later(book.time_of(token)))

    def emit(self, operator, time) -> None:
        """Send rows made of one of this time, or hold the right to."""
        draw = self.play.draw
        for edge in self.play.observer.out[operator]:
            if self.play.busy and self.play.rows < MOST_ROWS and draw.random() < (0.5 if edge.feedback else 0.7):
                self.append((edge, draw.randrange(self.play.workers)), self.play.later(time))

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

    def give(self, operator, bin, other: PlayedWorker) -> None:
        """A bin with its tokens moves to another worker."""
        saved = self.books[operator].release([bin])[bin]
        self.tokens = [(name, token) for name, token in self.tokens if (name, token._id.bin) != (operator, bin)]
        self.bins[operator] = [own for own in self.bins[operator] if own != bin]
        self.play.network.put((LaneKind.STATE, (other.index, operator, bin)), saved)
        self.hand_over()

    def receive(self, operator, bin, saved) -> None:
        """A bin has come from another worker."""
        self.bins[operator].append(bin)
        self.books[operator].receive({bin: saved})
        self.refer(operator, bin, saved)
        self.hand_over()

    def take(self, operator, bin, saved) -> None:
        """Begin with a bin of a checkpoint."""
        self.books[operator].load({bin: saved})
        self.refer(operator, bin, saved)

    def refer(self, operator, bin, saved) -> None:
        """A state that refers to each token of a bin."""
        self.tokens += [(operator, self.books[operator].find((bin, number))) for number in saved.times]
