"""Remedies for a latency that is too high, in the order of what they cost: buffers, chains, a lighter model, a host.

>>> check_policy(lambda case: "buffers")
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: go through the remedies ... (the next wrong answer is explained)
>>> check_policy(lambda case: "buffers")
Traceback (most recent call last):
fries_nb.errors.LabError: for 80 ms in all, 30 of them in buffers and 10 in hand-overs, busy 50 % (lighter: 20 %) it
says 'buffers'; expected 'nothing': the limit is kept
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LabError
from fries_nb.labs.answers import AnsweredSet, Passed, answered, listed, names_in, result_of, wrong
from fries_nb.planning import chains

LIMIT_MS = 100
WHY = {
    "nothing": "the limit is kept",
    "buffers": "without the time in buffers it is kept, and smaller buffers cost least",
    "chains": "smaller buffers are not enough, and without the hand-overs as well it is kept",
    "lighter": "neither buffers nor chains are enough, and with the lighter model the operator can keep up",
    "host": "even the lighter model cannot keep up on one host",
}
STAGES = {
    "full buffers": (True, "rows wait in buffers on four edges, and FM is busy 60 % of its time only"),
    "small buffers": (False, "rows are sent at once, and FM can keep up"),
    "150 a second": (True, "FM gets 1.5 times what it can process"),
    "lighter model": (False, "the lighter FM is busy 60 % of its time"),
    "300 a second": (True, "the lighter FM gets 1.2 times what it can process"),
    "second host": (False, "two workers share the payments, busy 60 % of their time"),
}
"""The stages of lab 8: whether the limit is exceeded, and why."""


@dataclass(frozen=True)
class PathMeasured:
    """What was measured along a path."""

    latency_ms: float  # the mean latency
    buffers_ms: float  # the part of it that rows spend in output buffers
    handovers_ms: float  # the part of it between workers that could be chained
    busy: float  # rows that come, as a share of those that the busiest operator can process; above 1 its queue grows
    busy_lighter: float  # the same with the lighter model

    def __str__(self) -> str:
        return (
            f"{self.latency_ms:g} ms in all, {self.buffers_ms:g} of them in buffers and {self.handovers_ms:g} in "
            f"hand-overs, busy {self.busy:.0%} (lighter: {self.busy_lighter:.0%})".replace("%", " %")
        )


def remedy(case: PathMeasured) -> str:
    """The first remedy that suffices to keep ``LIMIT_MS``."""
    if case.latency_ms <= LIMIT_MS:
        return "nothing"
    if case.busy < 1:
        without = case.latency_ms - case.buffers_ms
        if without <= LIMIT_MS:
            return "buffers"
        if without - case.handovers_ms <= LIMIT_MS:
            return "chains"
    return "lighter" if case.busy_lighter < 1 else "host"


def check_policy(function: Callable[[PathMeasured], Any] | None) -> Passed:
    """Check a function that chooses the first remedy that suffices.

    ``function``: a function of what was measured to a key of ``WHY``.

    Raises:
        LabError: shows a case in which it is wrong, and why.
    """
    answered(function, "a function of what was measured")
    draws = random.Random(4)
    cases = [
        PathMeasured(80, 30, 10, 0.5, 0.2), PathMeasured(160, 100, 20, 0.5, 0.2), PathMeasured(160, 40, 30, 0.6, 0.2),
        PathMeasured(900, 850, 40, 1.4, 0.6), PathMeasured(900, 20, 10, 2.5, 1.2),
    ]  # fmt: skip
    for _ in range(60):
        latency, busy = draws.randint(20, 400), draws.choice((0.3, 0.8, 1.2, 3.0))
        buffers = draws.randint(0, latency)
        cases.append(PathMeasured(latency, buffers, draws.randint(0, latency - buffers), busy, busy * 0.4))
    for case in cases:
        right, given = remedy(case), result_of(function, case)
        if given != right:
            hint = "go through the remedies from the cheapest on: when does each suffice, and when is none needed?"
            raise wrong("policy", hint, f"for {case} it says {given!r}; expected {right!r}: {WHY[right]}")
    return Passed(f"It was right in {len(cases)} cases.")


def check_chains(graph: Graph, answer: Any) -> Passed:
    """Check which operators can share a worker.

    ``answer``: the chains, each with the names of its operators; those of one operator may be left out.

    Raises:
        LabError: two operators are wrongly together or apart; says why.
    """
    form = 'a list of sets, such as [{"A", "B"}]'
    answered(answer, form)
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        raise LabError(f"got {answer!r}; expected {form}")
    if answer and all(isinstance(name, str) for name in answer):
        answer = [answer]
    right, given = [set(chain) for chain in chains(graph)], [names_in(part, graph) for part in answer]
    why = _why_not_chains(graph, right, given)
    if why:
        hint = "go along the edges: does each row go to one worker, always the same, and do both ends process rows?"
        shares, should = (set[str]().union(*(chain for chain in of if len(chain) > 1)) for of in (given, right))
        raise wrong(("chains", graph.edges), hint, why, AnsweredSet(graph, (), shares, should, given))
    return Passed("Chained: " + "; ".join(listed(chain) for chain in right if len(chain) > 1) + ".")


def _why_not_chains(graph: Graph, right: list[set[str]], given: list[set[str]]) -> str:
    """Which operators are wrongly together or apart, and why; empty if none are."""
    for edge in graph.edges:
        ends = {edge.source, edge.to}
        can, does = (any(ends <= chain for chain in of) for of in (right, given))
        if does and not can:
            why = f"rows are divided by {', '.join(edge.key)} there" if edge.key else "one of them reads or writes"
            return f"{edge.source} and {edge.to} cannot be chained: {why}"
        if can and not does:
            return f"{edge.source} and {edge.to} can be chained: each row goes to one worker, always the same"
    for part in given:
        if not any(part <= chain for chain in right):
            return f"{listed(part)} are no chain: not all of them follow each other on forward edges"
    return ""


def check_stages(answer: Any) -> Passed:
    """Check for which stages of a rising load the limit is exceeded.

    ``answer``: stage to a truth value.

    Raises:
        LabError: one is missing or wrong; says why.
    """
    answered(answer, "a dict from each stage to True (exceeded) or False")
    if not isinstance(answer, Mapping):
        raise LabError(f"got {answer!r}; expected a dict from each stage to True (exceeded) or False")
    for stage, (right, why) in STAGES.items():
        given = answer.get(stage)
        answered(given, f"True or False for the stage {stage!r}")
        if bool(given) is not right:
            hint = f"{stage}: where do rows wait now, and can FM keep up?"
            told = f"{stage}: the limit is {'exceeded' if right else 'kept'}, since {why}"
            raise wrong(("stage", stage), hint, told)
    return Passed("; ".join(f"{stage}: {why}" for stage, (_, why) in STAGES.items()) + ".")
