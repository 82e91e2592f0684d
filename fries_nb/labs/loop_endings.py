"""Loops that end: rules of termination to break and to write, played over all orders of events that a seed may draw.

The loop has two workers of its head and two of its body, joined by four channels in each direction. A row goes round as
often as its number says. To find out whether the loop is empty, a marker goes from both workers of the head through
both of the body and back: an *attempt*. A rule sees what the attempt has seen, and says whether the loop may end.

>>> def impatient(seen):
...     return all(seen.input_ended) and seen.quiet > 3
>>> endings = [play(impatient, seed) for seed in range(20)]
>>> sum(ending.left > 0 for ending in endings) > 0
True
>>> check_broken_rule(impatient, next(seed for seed, ending in enumerate(endings) if ending.left))
Right. With seed ... the loop ended while it held ...
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.errors import LabError
from fries_nb.labs.answers import Passed, answered, number_in, result_of, wrong
from fries_nb.simulation import Cluster

SEEDS = 150
ROWS = (3, 0, 2, 1)
"""How many rounds each row goes, after its first."""
OVERLOOKED = {
    "patient": ("nothing, it only waits", "it asks for no place at all; look at what ends it"),
    "by_itself": ("rows that came back at another head", "look at came_back, where one number may not be 0"),
    "trusting": ("rows in hand", "look at busy when it ends"),
    "hasty": ("rows that have not entered yet", "look at input_ended when it ends"),
}
"""What the wrong rules of the lab overlook, and where to look for it."""
MOST_STEPS = 3_000
MARKER = -1
WORKERS = (0, 1)


@dataclass(frozen=True)
class AttemptSeen:
    """What one attempt has seen.

    Attributes:
        input_ended: for each worker of the head, whether no row could enter any more when it passed the marker on.
        came_back: for each worker of the head, how many rows it took from the body between passing the marker on
            and its return.
    """

    input_ended: tuple[bool, ...]
    came_back: tuple[int, ...]
    busy: tuple[bool, ...]  # for each worker of the body, whether it held rows when it passed the marker on
    quiet: int  # how many steps of any kind have passed since a row last came back anywhere


Rule = Callable[[AttemptSeen], bool]


@dataclass(frozen=True)
class LoopEnding:
    """How a loop ended: how many rows it still held and where, and what the last attempt has seen."""

    ended: bool
    left: int
    where: str
    attempts: int
    seen: AttemptSeen | None


class PlayedLoop:
    """The loop, while it is played.

    Args:
        seed: determines the order of events.
    """

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)
        self.inputs = [deque(ROWS[worker::2]) for worker in WORKERS]
        self.there = {way: deque[int]() for way in product(WORKERS, WORKERS)}  # head, body
        self.back = {way: deque[int]() for way in product(WORKERS, WORKERS)}  # body, head
        self.held: list[deque[int]] = [deque(), deque()]
        self.quiet = 0
        self._lazy = self._draws.random() < 0.5  # rows are held for long
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """The marker leaves both workers of the head, each at a time of its own."""
        self.to_start, self.returned, self.passed = set(WORKERS), set[tuple[int, int]](), set[int]()
        self.input_ended, self.came_back, self.busy = [False, False], [0, 0], [False, False]

    def seen(self) -> AttemptSeen | None:
        """What the attempt has seen, once all markers are back."""
        if len(self.returned) < len(self.back):
            return None
        return AttemptSeen(tuple(self.input_ended), tuple(self.came_back), tuple(self.busy), self.quiet)

    def rows(self) -> dict[str, int]:
        """The number of rows in each place."""
        queues = [*self.there.values(), *self.back.values()]
        moving = sum(row != MARKER for queue in queues for row in queue)
        return {"not read yet": sum(map(len, self.inputs)), "in hand": sum(map(len, self.held)), "on their way": moving}

    def step(self) -> None:
        """One event of those that are possible."""
        self.quiet += 1
        possible = [partial(self._enter, worker) for worker in WORKERS if self.inputs[worker]]
        possible += [partial(self._start, worker) for worker in sorted(self.to_start)]
        possible += [partial(self._release, worker) for worker in WORKERS if self.held[worker] and self._lets_go()]
        possible += [partial(self._take, *way) for way, queue in self.there.items() if queue and queue[0] != MARKER]
        possible += [partial(self._pass_on, worker) for worker in WORKERS if self._is_aligned(worker)]
        possible += [partial(self._return, *way) for way, queue in self.back.items() if queue]
        if possible:
            self._draws.choice(possible)()

    def _lets_go(self) -> bool:
        return not self._lazy or self._draws.random() < 0.1

    def _is_aligned(self, body: int) -> bool:
        return all(self.there[head, body] and self.there[head, body][0] == MARKER for head in WORKERS)

    def _enter(self, head: int) -> None:
        self.there[head, self._draws.choice(WORKERS)].append(self.inputs[head].popleft())

    def _start(self, head: int) -> None:
        self.to_start.discard(head)
        self.input_ended[head] = not self.inputs[head]
        for body in WORKERS:
            self.there[head, body].append(MARKER)

    def _take(self, head: int, body: int) -> None:
        self.held[body].append(self.there[head, body].popleft())

    def _release(self, body: int) -> None:
        rounds = self.held[body].popleft()
        if rounds:
            self.back[body, self._draws.choice(WORKERS)].append(rounds - 1)

    def _pass_on(self, body: int) -> None:
        for head in WORKERS:
            self.there[head, body].popleft()
            self.back[body, head].append(MARKER)
        self.busy[body] = bool(self.held[body])

    def _return(self, body: int, head: int) -> None:
        row = self.back[body, head].popleft()
        if row == MARKER:
            self.returned.add((body, head))
            return
        self.quiet = 0
        self.came_back[head] += head not in self.to_start and (body, head) not in self.returned
        self.there[head, self._draws.choice(WORKERS)].append(row)


def play(rule: Rule, seed: int) -> LoopEnding:
    """Play a loop until the rule ends it.

    ``rule``: whether the loop may end, by what an attempt has seen.

    Returns:
        How it ended.
    """
    loop, attempts = PlayedLoop(seed), 1
    for _ in range(MOST_STEPS):
        loop.step()
        seen = loop.seen()
        if seen is None:
            continue
        if result_of(rule, seen):
            rows = loop.rows()
            where = ", ".join(f"{count} {place}" for place, count in rows.items() if count)
            return LoopEnding(True, sum(rows.values()), where, attempts, seen)
        loop.begin_attempt()
        attempts += 1
    return LoopEnding(False, 0, "", attempts, seen)


def check_broken_rule(rule: Rule, seed: Any) -> Passed:
    """Check that a rule ends a loop too early.

    ``seed``: a seed with which it does.

    Raises:
        LabError: it does not with this seed.
    """
    answered(seed, "a number, the seed")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise LabError(f"got {seed!r}; expected a number, the seed")
    ending = play(rule, seed)
    if not ending.left:
        name = getattr(rule, "__name__", "rule")
        hint = f"{name}: which order of events does the rule not think of? look at .left of play({name}, seed)"
        why = f"with seed {seed} the loop was empty when it ended, or never ended; try other seeds, in a loop"
        raise wrong(("broken rule", name), hint, why)
    return Passed(f"With seed {seed} the loop ended while it held {ending.where}. The attempt had seen {ending.seen}.")


def check_overlooked(answer: Any) -> Passed:
    """Check what the four wrong rules of the lab overlook.

    ``answer``: the rule's name to one of ``OVERLOOKED``.

    Raises:
        LabError: one is missing or wrong.
    """
    answered(answer, "a dict from the name of each rule to one of the texts")
    if not isinstance(answer, Mapping):
        raise LabError(f"got {answer!r}; expected a dict from the name of each rule to one of the texts")
    for rule, (right, why) in OVERLOOKED.items():
        given = answer.get(rule)
        answered(given, f'{{"{rule}": "..."}}, with one of the texts for each rule')
        if given not in [text for text, _ in OVERLOOKED.values()]:
            raise LabError(f"got {given!r} for {rule}; expected one of the four texts")
        if given != right:
            hint = f"{rule}: where can a row be that nothing in the rule looks at?"
            raise wrong(("overlooked", rule), hint, f"{rule} does not overlook {given}: {why}")
    return Passed("A rule has to look at all of these places, at all workers, and at no clock.")


def check_ending(rule: Rule | None) -> Passed:
    """Check that a rule ends every loop, and none too early.

    Raises:
        LabError: it ends one too early, or never.
    """
    answered(rule, "a function of what an attempt has seen")
    assert rule is not None
    hint = "list all the places where a row can be; does the rule look at each of them, at all workers?"
    for seed in range(SEEDS):
        ending = play(rule, seed)
        if not ending.ended:
            raise wrong("ending", hint, f"with seed {seed} it never ends the loop, which has long been empty: the last "
                        f"of {ending.attempts} attempts has seen {ending.seen}")  # fmt: skip
        if ending.left:
            raise wrong("ending", hint, f"with seed {seed} it ends the loop although it holds rows, {ending.where}; "
                        f"the attempt has seen {ending.seen}")  # fmt: skip
    return Passed(f"It ended {SEEDS} loops, each of them empty, and without a clock.")


_HALVING_STEPS = 4_000
"""Steps of a run in memory in which a right loop has long ended."""


def check_halving(flow: DataflowBuilder | None, longest: Any) -> Passed:
    """Check a dataflow that halves numbers in a loop until they are below 1, by running it in memory.

    ``flow``: the dataflow; the loop has to let each row out, with its columns ``value`` and ``rounds``. ``longest``:
    how many rounds the row that stays longest goes.

    Raises:
        LabError: there is no loop, it does not end, or rows are missing or wrong.
    """
    answered(flow, "a dataflow with a loop")
    if not isinstance(flow, DataflowBuilder):
        raise LabError(f"got {flow!r}; expected a dataflow")
    graph = flow.graph(workers=2)
    if not graph.heads:
        raise LabError("the dataflow has no loop; declare one by stream.iterate(name, body)")
    if not any(graph.operator(name).traits.is_sink for name in graph.sinks):
        raise LabError('the rows that leave the loop go nowhere; expected .sink("out", fn.memory()) behind it')
    hint = "follow one number by hand: on which stream of the split does it leave, and when?"
    rows = [{"value": float(number), "rounds": 0} for number in range(1, 21)]
    cluster = Cluster(graph, {graph.sources[0]: rows}, seed=1)
    cluster.steps(_HALVING_STEPS)
    if cluster.state == "running":
        why = (
            "the loop does not end, since rows go round in it for ever; the first stream of the split goes back, and "
            "False is 0: most likely the two are exchanged, or the condition is never true"
        )
        raise wrong("halving", hint, why)
    if cluster.state != "finished":
        raise LabError(f"the run failed: {cluster.error}")
    out = cluster.rows(graph.sinks[0])
    if len(out) != len(rows):
        why = f"{len(rows)} rows went in and {len(out)} came out; expected each of them to leave once"
        raise wrong("halving", hint, why)
    lacking = [name for name in ("value", "rounds") if not all(isinstance(row.get(name), float | int) for row in out)]
    if lacking:
        raise LabError(f"a row left without a number as {lacking[0]!r}; expected row | {{...}} in the map of the loop")
    high = [row["value"] for row in out if not 0 < row["value"] < 1]
    if high:
        raise wrong("halving", hint, f"a row left with the value {high[0]}; expected to go round until it is below 1: "
                    "branch 0 of the split goes back, and False is 0")  # fmt: skip
    most = max(row["rounds"] for row in out)
    if number_in(longest, "the rounds of the row that stays longest") != most:
        hint = "which of the numbers stays longest, and how often is it halved?"
        raise wrong("longest", hint, f"the row that stays longest goes {most} rounds; halve 20 until it is below 1")
    attempts = sum(loop.attempts for loop in cluster.controller.loops.values())
    return Passed(f"{len(out)} rows left, after {most} rounds at most. The loop ended in attempt {attempts}.")
