"""Frontiers to follow by hand: rows and tokens on a small dataflow, step by step, counted as on a cluster.

>>> board = ProgressBoard("source -> clean -> window", watched="window")
>>> board.read("source", 3, then=5)
>>> board.pass_on("clean", 3)
>>> board.use("window", 3)
>>> board.end("source")
>>> print(board)
0. source has a token for time 0, since it has read nothing
1. source reads a row of time 3, sends it on, and from now on reads nothing before 5
2. clean takes a row of time 3 and sends it on
3. window uses a row of time 3
4. source has come to its end
>>> check_frontiers(board, [0, 3, 3, 5, None])
Right. The frontier of window: 0, 3, 3, 5, None.
>>> check_frontiers(board, [0, 5, 3, 5, None])
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: after each step, ... (the next wrong answer is explained)
>>> check_frontiers(board, [0, 5, 3, 5, None])
Traceback (most recent call last):
fries_nb.errors.LabError: after step 1 the frontier is not 5 but 3: a row of time 3 is on its way from source to clean
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fries_nb.errors import LabError
from fries_nb.labs.answers import AnsweredSet, Passed, answered, listed, names_in, wrong
from fries_nb.labs.coverings import sketch
from fries_nb.progress.progress_graph import CountChange, FlowEdge, GraphLocation, ProgressGraph
from fries_nb.progress.tracker import Tracker

__all__ = ["ProgressBoard", "check_closed", "check_frontiers", "check_holders"]

LIST = "a list with one entry for each step, from step 0 on"


class ProgressBoard:
    """A dataflow, and what happens to rows and tokens in it; each operator but the last has one out-edge.

    Args:
        paths: the paths of the dataflow, such as ``"source -> clean -> window"``.
        watched: the operator whose frontier is to be followed.

    Attributes:
        texts: what happened, by step.
        frontiers: the frontier of the watched operator after each step; ``None`` if nothing can arrive any more.
        reasons: what holds it there, by step.
    """

    def __init__(self, *paths: str, watched: str) -> None:
        self._graph = sketch(*paths)
        edges = tuple(FlowEdge(edge.source, edge.to) for edge in self._graph.edges)
        self._tracker = Tracker(ProgressGraph(dict.fromkeys(self._graph, ()), edges), [watched])
        self._at = dict.fromkeys(self._graph.sources, 0)
        self.watched = watched
        self.texts, self.frontiers, self.reasons = list[str](), list[int | None](), list[str]()
        tokens = [_count(GraphLocation(source), 0, 1) for source in self._at]
        holds = "has" if len(tokens) == 1 else "have each"
        self._note(f"{listed(self._at)} {holds} a token for time 0, since {_it(tokens)} read nothing", tokens)

    def read(self, source: str, time: int, then: int) -> None:
        """A source reads a row of a time and sends it on; it reads nothing before ``then`` from now on."""
        [edge] = self._graph.out_edges(source)
        changes = [_count(GraphLocation(source, edge.to), time, 1), *self._moved(source, then)]
        text = f"{source} reads a row of time {time}, sends it on, and from now on reads nothing before {then}"
        self._note(text, changes)

    def end(self, source: str) -> None:
        """A source has come to its end."""
        self._note(f"{source} has come to its end", self._moved(source, None))

    def pass_on(self, operator: str, time: int, keeps: int | None = None) -> None:
        """An operator takes a row and sends it on; it may keep a token for a later time."""
        [edge] = self._graph.out_edges(operator)
        changes = [self._taken(operator, time), _count(GraphLocation(operator, edge.to), time, 1)]
        changes += [] if keeps is None else [_count(GraphLocation(operator), keeps, 1)]
        kept = "" if keeps is None else f", and keeps a token for time {keeps}"
        self._note(f"{operator} takes a row of time {time} and sends it on{kept}", changes)

    def use(self, operator: str, time: int) -> None:
        """An operator takes a row, and sends nothing."""
        self._note(f"{operator} uses a row of time {time}", [self._taken(operator, time)])

    def drop(self, operator: str, time: int) -> None:
        """An operator drops a token."""
        self._note(f"{operator} drops its token for time {time}", [_count(GraphLocation(operator), time, -1)])

    def __str__(self) -> str:
        return "\n".join(f"{step}. {text}" for step, text in enumerate(self.texts))

    def _moved(self, source: str, then: int | None) -> list[CountChange]:
        changes = [_count(GraphLocation(source), self._at[source], -1)]
        if then is not None:
            self._at[source] = then
            changes.append(_count(GraphLocation(source), then, 1))
        return changes

    def _taken(self, operator: str, time: int) -> CountChange:
        edges = (GraphLocation(edge.source, edge.to) for edge in self._graph.in_edges(operator))
        waiting = next((edge for edge in edges if self._tracker.count(edge, (0, time)) > 0), None)
        if waiting is None:
            raise LabError(f"no row of time {time} is on its way to {operator}")
        return _count(waiting, time, -1)

    def _note(self, text: str, changes: Iterable[CountChange]) -> None:
        self._tracker.update(changes)
        least = min((time[1] for time in self._tracker.frontier(self.watched).elements), default=None)
        self.texts.append(text)
        self.frontiers.append(least)
        self.reasons.append("nothing is left that could arrive")
        for holder in self._tracker.holders(self.watched)[:1]:
            row = f"a row of time {holder.time[1]} is on its way from {holder.operator} to {holder.to}"
            self.reasons[-1] = row if holder.to else f"{holder.operator} has a token for time {holder.time[1]}"

    @property
    def holders(self) -> set[str]:
        """The operators that hold the frontier now, by a token or by a row that they have sent."""
        return {holder.operator for holder in self._tracker.holders(self.watched)}


def check_frontiers(board: ProgressBoard, answer: Any) -> Passed:
    """Check the frontiers after each step.

    ``answer``: the frontiers, from step 0 on; ``None`` where nothing can arrive any more.

    Raises:
        LabError: one is wrong; says what holds the frontier.
    """
    _check_steps(answer, board.frontiers)
    for step, (given, right) in enumerate(zip(answer, board.frontiers, strict=True)):
        if given != right:
            hint = "after each step, list the tokens that are held and the rows on their way; the least time counts"
            why = f"after step {step} the frontier is not {given} but {right}: {board.reasons[step]}"
            raise wrong(("frontiers", *board.texts), hint, why)
    return Passed(f"The frontier of {board.watched}: {', '.join(map(str, board.frontiers))}.")


def check_closed(board: ProgressBoard, windows: Sequence[tuple[int, int]], answer: Any) -> Passed:
    """Check after which step each window can be closed.

    ``windows``: the windows, as begin and end; the end is no longer part of it. ``answer``: for each window, the first
    step after which no row of it can arrive.

    Raises:
        LabError: one is wrong; says what could still arrive, or since when nothing could.
    """
    answered(answer, "a dict from the begin of each window to the number of a step")
    if not isinstance(answer, Mapping):
        raise LabError(f"got {answer!r}; expected a dict from the begin of each window to the number of a step")
    for begin, end in windows:
        right = next(step for step, at in enumerate(board.frontiers) if at is None or at >= end)
        given, question = answer.get(begin), ("closed", begin, end, *board.texts)
        hint = f"after which step has the frontier come to the end of the window from {begin} to {end}?"
        if not isinstance(given, int):
            raise LabError(f"the window from {begin} to {end} has no step; got {given!r}")
        if given < right:
            at, reason = board.frontiers[max(given, 0)], board.reasons[max(given, 0)]
            why = f"after step {given} a row of time {at} may arrive in the window from {begin} to {end}: {reason}"
            raise wrong(question, hint, why)
        if given > right:
            raise wrong(question, hint, f"the window from {begin} to {end} can be closed earlier: no row of it can "
                        f"arrive any more after a step before {given}")  # fmt: skip
    return Passed("Each window is closed at once, and never too early.")


def check_holders(board: ProgressBoard, answer: Any) -> Passed:
    """Check which operators hold the frontier back at the end.

    ``answer``: names of operators.

    Raises:
        LabError: one is missing or superfluous.
    """
    given = names_in(answer, board._graph)
    if given != board.holders:
        hint = "which tokens and which rows on their way have the least time now, and whose are they?"
        drawn = AnsweredSet(board._graph, (), given, board.holders)
        raise wrong(("holders", *board.texts), hint, _why_not_holders(board, given), drawn)
    return Passed(f"{board.reasons[-1].capitalize()}.")


def _why_not_holders(board: ProgressBoard, given: set[str]) -> str:
    """Which operator is wrongly named as a holder, or not named."""
    for name in sorted(given - board.holders):
        return f"{name} does not hold the frontier at {board.frontiers[-1]}: {board.reasons[-1]}"
    missing = min(board.holders - given)
    return f"{missing} is missing: look for tokens, and for rows that it has sent and that have not arrived"


def _check_steps(answer: Any, right: Sequence[object]) -> None:
    answered(answer, LIST)
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise LabError(f"got {answer!r}; expected {LIST}")
    if len(answer) != len(right):
        raise LabError(f"got {len(answer)} entries; expected {LIST}, which makes {len(right)}")


def _it(tokens: Sequence[object]) -> str:
    return "it has" if len(tokens) == 1 else "they have"


def _count(location: GraphLocation, time: int, delta: int) -> CountChange:
    return CountChange(location, (0, time), delta)
