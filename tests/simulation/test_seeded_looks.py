"""Looks into states at any step of changes, moves, checkpoints, chains and kills, with hosts and driver as on Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from soak import SOAK, caught, first_tried

import fries_nb as fn
from fries_nb.driver.open_questions import OVER, Asked, Looked, Looks
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.operators.pickled_states import loads
from fries_nb.protocol.messages import LookAtRows, LookAtState, RowsSeen, StateSeen, WorkerId
from fries_nb.protocol.trace import place_of
from fries_nb.running.row_table import seen_rows
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.threaded_hosts import JoiningThreads
from fries_nb.worker import looks as worker_looks
from fries_nb.worker.events import Directed
from fries_nb.worker.looks import StateLook

ROWS = 150
EVERY = 1 << 30


class Twice:
    """Counts the rows of a key twice, in two steps, and can be changed."""

    def __init__(self, version=0):
        self.version = version

    def initial_state(self):
        """None yet."""
        return {"first": 0, "second": 0}

    def process(self, row, state):
        """Between the two lines a copy would be torn."""
        state["first"] += 1
        state["second"] += 1
        return row


def counted():
    """Rows are counted by key; behind is a map that may share their worker."""
    flow = fn.Dataflow("looked")
    keyed = flow.source("S", fn.rate(None, count=1), workers=2).map("K", Twice(), key="customer", workers=2)
    keyed.map("M", dict, workers=2).sink("out", fn.memory(), workers=2)
    return flow.graph()


@pytest.fixture(autouse=True)
def few_keys_a_piece(monkeypatch):
    """So that much happens between two pieces."""
    monkeypatch.setattr(worker_looks, "PIECE_NS", 0)
    monkeypatch.setattr(worker_looks, "BETWEEN_LOOKS", 6)


class Looking(JoiningThreads):
    """Somebody looks at the states now and then, and at some keys."""

    rechains, often = 0.03, 0.02
    looks, of_rows = 0.05, 0.2

    def __init__(self, *args, **settings):
        self.answers: list[Looked] = []
        self.asked_at: dict[int, int] = {}  # question to the number of recoveries by then
        super().__init__(*args, **settings)

    def step(self):
        """Ask first, now and then; and change the function, too."""
        is_open = len(self.asked_at) > len(self.answers) + 1  # more would fill the network
        if self.state == "running" and not is_open and self.random.random() < self.looks:
            self.asked_at[len(self.asked_at) + 1] = len(self.recoveries)
            if self.random.random() < self.of_rows:
                of = self.random.choice(list(self.graph.by_name))
                self._say(Asked(of, LookAtRows(len(self.asked_at), most=5)))
            else:
                self._say(Asked("K", LookAtState(len(self.asked_at), most=EVERY)))
        if self.state == "running" and not self.open and self.random.random() < 0.01:
            self.request({"K": Twice(len(self.asked_at))})
        return super().step()

    def _told(self, event):
        if isinstance(event, Looked):
            self.answers.append(event)
        super()._told(event)


class Moving(Looking):
    """Bins move all the time."""

    rechains, often, of_workers = 0.0, 0.1, 0.7
    looks, of_rows = 0.2, 0.0
    at_once = (300,)


class Rechained(Looking):
    """Only chains change."""

    rechains, often = 0.05, 0.0


def play(seed, kills=0, of=Looking):
    """Play a seed, and check all that was seen; says what has happened."""
    faults = Faults(hazard=0.002, host_kills=kills)
    cluster = of(
        counted(), {"S": source_rows("S", ROWS, customers=20)}, hosts=2, seed=seed, commit_interval_ns=40_000_000,
        checkpoints=True, faults=faults,
    )  # fmt: skip
    cluster.run()
    cluster.settle()
    assert cluster.state == "finished", cluster.error
    assert len(cluster.rows("out")) == ROWS
    check(cluster)
    met = Counter(end.outcome for end in cluster.rescaled)
    met["again"] = sum(len(one.parts) > 4 for one in cluster.answers)
    met["seen"] = sum(bool(one.parts) for one in cluster.answers)
    met["recovered"] = len(cluster.recoveries)
    return met


def check(cluster):
    """No copy is torn, no key that was seen is missing later, and no count goes back unless the hosts began again."""
    numbers = [one.number for one in cluster.answers]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) == set(cluster.asked_at), "a question has no answer"
    before: dict[int, dict[object, int]] = {}
    for answer in cluster.answers:
        if answer.error:
            assert answer.error == OVER
            continue
        if any(isinstance(part, RowsSeen) for part in answer.parts):
            check_rows(answer.parts)
            continue
        found = {key: state for part in answer.parts for key, state in (loads(one, {}) for one in part.pieces)}
        for key, state in found.items():
            assert state["first"] == state["second"], f"question {answer.number} has a torn copy of {key}"
        of = cluster.asked_at[answer.number]
        if of == len(cluster.recoveries) or not cluster.recoveries:
            last = before.setdefault(of, {})
            missing = [key for key, count in last.items() if count > found.get(key, {"first": 0})["first"]]
            assert not missing, f"question {answer.number}: {missing} went back"
            last |= {key: state["first"] for key, state in found.items()}


def check_rows(parts):
    """Each worker has told at most as many rows of each side as were asked for, all of them rows of the source."""
    assert len({part.worker for part in parts}) == len(parts)
    known = {row["id"] for row in source_rows("S", ROWS, customers=20)}
    for part in parts:
        for side in ("in", "out"):
            rows = [row for row in seen_rows([part], int, lambda row, _: place_of(row)) if row.side == side]
            assert len(rows) <= 5
            assert {row.values["id"] for row in rows} <= known
            assert not rows or side == "out" or part.worker.operator != "S"
            assert not rows or side == "in" or part.worker.operator != "out"


@pytest.mark.parametrize("kills", [0, 2])
def test_a_look_shows_each_key_once_as_some_row_has_left_it(kills):
    """Whatever moves meanwhile, and however chains are fused and split."""
    met = Counter[str]()
    for seed in range(2 * SOAK):
        met += play(seed, kills)
    assert met["seen"] > 8 * SOAK
    assert met["done"]
    assert not kills or met["recovered"]


def test_a_look_is_taken_by_the_thread_that_runs_the_worker(monkeypatch):
    """Between two turns of another one it could meet a state inside a tuple."""
    inside = []
    advance = StateLook.advance

    def observed(look):
        [worker] = [one for one in running if look.instance in one.worker.instances and one.inside]
        inside.append(worker)
        return advance(look)

    running, turn = [], HostedWorker.turn

    def noted(worker):
        running.append(worker)
        try:
            return (yield from turn(worker))
        finally:
            running.remove(worker)

    monkeypatch.setattr(HostedWorker, "turn", noted)
    monkeypatch.setattr(StateLook, "advance", observed)
    play(3)
    assert len(inside) > 20


def _forgets_the_rest(worker, rest):
    made = type(worker)(rest, worker._environment, worker._carry_out, worker._sinks.part(rest.wiring.workers))
    worker._looks.clear()
    return made


@pytest.mark.parametrize("broken", [None, ("split_off", _forgets_the_rest)])
def test_a_worker_answers_however_its_chain_changes(monkeypatch, broken):
    """What it was asked goes with its operator; if that is forgotten, there are questions without an answer."""
    asked, answered, take, seen = set(), set(), HostedWorker._pass, Looks.seen

    def taken(worker, event):
        if isinstance(event, Directed) and isinstance(event.control, LookAtState):
            asked.add((event.worker, event.control.number))
        take(worker, event)

    def noted(looks, told):
        if told.is_last:
            answered.add((told.worker, told.number))
        seen(looks, told)

    monkeypatch.setattr(worker_looks, "BETWEEN_LOOKS", 1)
    monkeypatch.setattr(HostedWorker, "_pass", taken)
    monkeypatch.setattr(Looks, "seen", noted)
    if broken is not None:
        monkeypatch.setattr(HostedWorker, *broken)
    lost = 0
    for seed in range(4):
        play(seed, of=Rechained)
        lost += len(asked - answered)
        asked.clear()
        answered.clear()
    assert bool(lost) is (broken is not None)


BROKEN = {
    "state on its way is missing": (Looks, "moves", lambda looks, *_: None),
    "answers of lost hosts are awaited": (Looks, "lost", lambda looks: None),
}
SHOWN = dict(zip(BROKEN, (8, 1), strict=True))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_look_is_caught(monkeypatch, name):
    """Without this rule a question has no answer, or one that lacks keys."""
    monkeypatch.setattr(*BROKEN[name])
    kills = 2 * (name == "answers of lost hosts are awaited")
    assert caught(first_tried(SHOWN[name], 60), lambda seed: play(seed, kills, Moving), Exception) is not None


# ---- the driver's part


def part(number, worker, *, is_last=True, error=""):
    """A part of an answer without keys."""
    return StateSeen(number, worker, 0, is_last=is_last, error=error)


def test_answers_to_earlier_rounds_count_no_more():
    """Each round has a number of its own."""
    workers, sent, told = [WorkerId("K", 0), WorkerId("K", 1)], [], []
    looks = Looks(lambda _: list(workers), lambda worker, look: sent.append((worker, look.number)), told.append)
    looks.ask(Asked("K", LookAtState(7, 1)))
    assert sent == []  # no host has begun
    looks.again()
    assert sent == [(workers[0], 1), (workers[1], 1)]
    looks.seen(part(1, workers[0]))
    gone = workers.pop()
    looks.again()
    looks.seen(part(1, gone))
    assert (sent[2:], told) == ([(workers[0], 2)], [])
    looks.seen(part(2, workers[0], is_last=False))
    looks.seen(part(2, workers[0], error="torn"))
    [answer] = told
    assert (answer.number, answer.error, len(answer.parts)) == (7, "torn", 3)


def test_after_three_rounds_an_answer_is_given_as_it_is():
    """State may move all the time; each round waits until what was on its way has come."""
    sent, told, worker = [], [], WorkerId("K", 0)
    looks = Looks(lambda _: [worker], lambda _, look: sent.append(look.number), told.append)
    looks.again()
    looks.ask(Asked("K", LookAtState(1, 1)))
    for number in (1, 2, 3):
        looks.moves(number, {worker})
        looks.moves(number, {worker})  # the marker goes to each head
        assert (sent, told) == ([*range(1, number + 1)], [])
        looks.seen(part(number, worker))
        if number < 3:
            assert len(sent) == number
        looks.arrived(number, worker)
    assert (sent, len(told), len(told[0].parts)) == ([1, 2, 3], 1, 3)


def test_what_is_asked_while_state_moves_is_asked_again():
    """Whether it comes or its marker is cancelled."""
    sent, told, worker = [], [], WorkerId("K", 0)
    looks = Looks(lambda _: [worker], lambda _, look: sent.append(look.number), told.append)
    looks.again()
    looks.moves(9, {worker, WorkerId("K", 1)})
    looks.ask(Asked("K", LookAtState(1, 1)))
    looks.arrived(9, worker)
    looks.seen(part(1, worker))
    assert (sent, told) == ([1], [])
    looks.arrived(9)
    assert sent == [1, 2]
    looks.seen(part(2, worker))
    assert len(told) == 1


def test_what_is_asked_of_a_run_that_is_over_is_answered_at_once():
    """By the end."""
    told = []
    looks = Looks(lambda _: [WorkerId("K", 0)], lambda *_: None, told.append)
    looks.close()
    looks.ask(Asked("K", LookAtState(4, 1)))
    assert told == [Looked(4, (), OVER)]
