"""Taps at any step of changes, moves, checkpoints, chains and kills, with hosts and driver as on Spark."""

from __future__ import annotations

from collections import Counter

import cloudpickle
import pytest
from soak import SOAK, first_tried

import fries_nb as fn
from fries_nb.driver.open_questions import OVER, Asked, Looked, Withdrawn
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.protocol.messages import LookAtRows
from fries_nb.protocol.trace import place_of
from fries_nb.running.row_table import seen_rows
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.threaded_hosts import JoiningThreads
from fries_nb.worker import row_taps
from fries_nb.worker.events import WorkerTick
from fries_nb.worker.row_taps import RowTap

ROWS = 150
LASTS_NS = 15_000_000
"""Nanoseconds after which a tap ends by itself; about a tenth of a run."""
MOST = 40
"""Number of taps of a run; more would fill the network."""
half: list[int] = []
"""Has an entry while a tuple is half processed."""


class Twice:
    """Counts the rows of a key in two steps, and can be changed."""

    between = staticmethod(lambda: None)

    def __init__(self, version=0):
        self.version = version

    def process(self, row, state):
        """Between the two lines a tuple is half processed."""
        half.append(1)
        state["first"] = state.get("first", 0) + 1
        type(self).between()
        half.pop()
        return row


def counted():
    """Rows are counted by key; behind are maps that may share their worker."""
    flow = fn.Dataflow("tapped")
    keyed = flow.source("S", fn.rate(None, count=1), workers=2).map("K", Twice(), key="customer", workers=2)
    keyed.map("M", dict, workers=2).sink("out", fn.memory(), workers=2)
    return flow.graph()


def even(row):
    """The condition of all taps; never tried while a tuple is half processed."""
    assert not half, "the condition is tried inside of a tuple"
    return row["id"][-1] in "02468"


class Tapping(JoiningThreads):
    """Somebody taps operators now and then; some askers wait no longer after a while, others are never heard again."""

    rechains, often = 0.03, 0.02
    taps, withdraws = 0.01, 0.003

    def __init__(self, *args, **settings):
        self.answers: list[Looked] = []
        self.asked: dict[int, str] = {}  # number of a tap to its operator
        super().__init__(*args, **settings)

    def step(self):
        """Ask first, now and then; change the function, too, and have workers report, which wakes them."""
        flows = self.state == "running"
        if flows and len(self.asked) < min(MOST, len(self.answers) + 2) and self.random.random() < self.taps:
            number, of = len(self.asked) + 1, self.random.choice(list(self.graph.by_name))
            self.asked[number] = of
            most, branch = self.random.choice([1, 4, 1_000]), self.random.choice([None, None, 0])
            self._say(Asked(of, LookAtRows(number, most, cloudpickle.dumps(even), LASTS_NS, branch)))
        if flows and self.random.random() < self.withdraws:
            told = {answer.number for answer in self.answers}
            for number in [one for one in self.asked if one not in told][:1]:
                self._say(Withdrawn(number))
        if flows and not self.open and self.random.random() < 0.01:
            self.request({"K": Twice(len(self.asked))})
        if flows and self.hosts.started and self.random.random() < 0.005:  # more would fill the network
            tapped = [one for one in self.hosts.members() if not all(tap.has_ended for tap in one[1]._taps)]
            for loop, worker in tapped[:1]:
                loop.post(worker, WorkerTick())
        return super().step()

    def _told(self, event):
        if isinstance(event, Looked):
            self.answers.append(event)
        super()._told(event)


def play(seed, kills=0):
    """Play a seed, and check all that was found; says what has happened."""
    faults = Faults(hazard=0.002, host_kills=kills)
    cluster = Tapping(
        counted(), {"S": source_rows("S", ROWS, customers=20)}, hosts=2, seed=seed, commit_interval_ns=40_000_000,
        checkpoints=True, faults=faults,
    )  # fmt: skip
    half.clear()
    cluster.run()
    cluster.settle()
    assert cluster.state == "finished", cluster.error
    assert len(cluster.rows("out")) == ROWS
    met = Counter(end.outcome for end in cluster.rescaled)
    met["recovered"] = len(cluster.recoveries)
    return met + check(cluster)


def check(cluster):
    """Each tap has one answer, whose rows satisfy the condition, each once unless the run went back."""
    numbers = [one.number for one in cluster.answers]
    assert sorted(numbers) == sorted(cluster.asked), "a tap has no answer, or two"
    met, known = Counter(), {row["id"] for row in source_rows("S", ROWS, customers=20)}
    for answer in cluster.answers:
        assert answer.error in ("", OVER)
        met["over" if answer.error else "ended"] += 1
        rows = list(seen_rows(answer.parts, int, lambda row, _: place_of(row)))
        met["found"] += len(rows)
        found = Counter((row.side, row.values["id"]) for row in rows)
        assert all(id_ in known and even({"id": id_}) for _, id_ in found)
        assert cluster.recoveries or set(found.values()) <= {1}, f"{cluster.asked[answer.number]}: a row twice"
        counts = [part.counts for part in answer.parts]
        assert sum(one.came + one.went for one in counts) == len(rows)
        assert all(one.seen >= 0 <= one.dropped for one in counts)
        if not answer.error and not cluster.recoveries:
            assert sum(one.seen for one in counts) == sum(one.judged + one.dropped for one in counts)
        met["dropped"] += sum(one.dropped for one in counts)
    return met


@pytest.fixture
def watched(monkeypatch):
    """Each tap is advanced by the thread that runs its worker, and is over by its time, whoever asks."""
    begin, advance, turn, over = RowTap.__init__, RowTap.advance, HostedWorker.turn, {}

    def begun(tap, order, member, worker, budget, clock):
        begin(tap, order, member, worker, budget, clock)
        over[tap] = clock, clock() + order.lasts_ns

    def advanced(tap, worker, slices):
        mine = [one for one in running if one.worker is worker and one.inside and one.owner.is_mine]
        assert mine, "a tap is advanced by another thread than that of its worker"
        return advance(tap, worker, slices)

    def turned(worker):
        running.append(worker)
        try:
            began = {tap: over[tap][0]() >= over[tap][1] for tap in worker._taps}
            busy = yield from turn(worker)
        finally:
            running.remove(worker)
        late = [tap for tap in worker._taps if began.get(tap) and not tap.has_ended]
        assert not late or worker.worker.failed, "a tap goes on, though its time is over"
        return busy

    running = []
    monkeypatch.setattr(RowTap, "__init__", begun)
    monkeypatch.setattr(RowTap, "advance", advanced)
    monkeypatch.setattr(HostedWorker, "turn", turned)


@pytest.mark.parametrize("kills", [0, 2])
def test_taps_find_rows_that_satisfy_their_condition_and_end(watched, kills):
    """Whatever moves meanwhile, however chains are fused and split, and whether hosts are killed."""
    met = Counter()
    for seed in range(2 * SOAK):
        met += play(seed, kills)
    assert met["found"] > 12 * SOAK
    assert met["ended"] > 3 * SOAK
    assert met["done"]
    assert not kills or met["recovered"]


def test_rows_are_dropped_if_taps_have_no_time(watched, monkeypatch):
    """They are counted, and the run goes on; the first ones of each side are tried all the same."""
    monkeypatch.setattr(row_taps, "SAVED_NS", 0)
    met = play(0) + play(2)
    assert met["dropped"] > 50
    assert 0 < met["found"] < met["dropped"]


def _tried_by_whoever_posts(worker, event):
    post(worker, event)
    if worker._taps:
        worker._try_taps()


def _tried_within(worker):
    Twice.between = staticmethod(lambda: [tap._condition.holds({"id": "0"}, "in") for tap in worker._taps])
    try_taps(worker)


post, try_taps = HostedWorker.post, HostedWorker._try_taps
BROKEN = {
    "the condition is tried by another thread": (
        "a tap is advanced by another thread", HostedWorker, "post", _tried_by_whoever_posts,
    ),
    "the condition is tried inside of a tuple": ("inside of a tuple", HostedWorker, "_try_taps", _tried_within),
    "a tap whose asker is gone goes on": (
        "though its time is over", RowTap, "_is_over", lambda tap, worker: bool(tap._error or tap._condition.error),
    ),
    "a worker that has a tap begins it anew": (
        "a row twice", HostedWorker, "_begin_tap", lambda worker, member, order: worker._watch_passing(
            [*worker._taps, RowTap(order, member, worker.worker, row_taps.TapBudget(lambda: 0), lambda: 0)]
        ),
    ),
}  # fmt: skip

SHOWN = dict(zip(BROKEN, (0, 1, 0, 10), strict=True))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tap_is_caught(watched, monkeypatch, name):
    """Without this rule a row is found in a wrong moment or twice, or a tap does not end."""
    monkeypatch.setattr(Twice, "between", staticmethod(lambda: None))
    monkeypatch.setattr(*BROKEN[name][1:])
    with pytest.raises(AssertionError, match=BROKEN[name][0]):  # no other rule is broken
        sum((play(seed, seed % 2) for seed in first_tried(SHOWN[name], 40)), Counter())
