"""Schedulers compared: which operators get a message, what a marker waits for, and the ranking under a load.

>>> from fries_nb.labs.coverings import sketch
>>> chain = sketch("payments -> FM -> MC")
>>> load = QueueLoad(queued={"FM": 60, "MC": 0}, cost_ms={"FM": 20, "MC": 1})
>>> [delay_ms(chain, {"FM", "MC"}, name, load) for name in ("fries", "epoch", "naive")]
[0.0, 1200.0, 0.0]
>>> check_ranking(chain, {"FM", "MC"}, load, [{"fries", "epoch", "naive"}])
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: for each scheduler, ... (the next wrong answer is explained)
>>> check_ranking(chain, {"FM", "MC"}, load, [{"fries", "epoch", "naive"}])
Traceback (most recent call last):
fries_nb.errors.LabError: fries and epoch do not take alike: in front of FM 60 rows of 20 ms wait, and only ...
>>> check_ranking(chain, {"FM", "MC"}, load, [{"fries", "naive"}, "epoch"])
Right. fries and naive, then epoch.

Queues: how long rows wait, and which operator keeps all others waiting.

A canary's gate, and the group for which a model is worse that is better on average.

>>> latencies_in_turn([0, 1, 10], 4)
[4.0, 7.0, 4.0]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LabError
from fries_nb.labs.answers import AnsweredSet, Passed, answered, listed, names_in, number_in, result_of, wrong
from fries_nb.planning.schedulers import schedule

SCHEDULERS = ("fries", "epoch", "naive")
FORM = 'a list from the quickest on, such as ["naive", {"fries", "epoch"}], with a set of those that take alike'


@dataclass(frozen=True)
class QueueLoad:
    """What waits in front of operators with one worker each, and what they take."""

    queued: Mapping[str, int]  # operator to the number of rows in front of it
    cost_ms: Mapping[str, float]  # operator to its time for a row, in ms


def messages(graph: Graph, targets: Collection[str], scheduler: str) -> set[str]:
    """The operators to which a scheduler sends a message."""
    return {send.operator for send in schedule(scheduler, graph, targets).stages[0].sends}


def waited_for(graph: Graph, targets: Collection[str], scheduler: str) -> set[str]:
    """The operators at which a scheduler's marker comes in line with the rows, on the way to a target."""
    behind = set[str]()
    for send in schedule(scheduler, graph, targets).stages[0].sends:
        behind |= send.scope - messages(graph, targets, scheduler)
    last = max(graph.order.index(name) for name in targets)
    return {name for name in behind if graph.order.index(name) <= last}


def delay_ms(graph: Graph, targets: Collection[str], scheduler: str, load: QueueLoad) -> float:
    """How long the markers of a change wait in the queues of a chain; what is quicker than a row is left out."""
    names = waited_for(graph, targets, scheduler)
    return float(sum(load.queued.get(name, 0) * load.cost_ms.get(name, 0.0) for name in names))


def check_messages(graph: Graph, targets: Collection[str], answer: Any) -> Passed:
    """Check which operators get a message.

    ``graph``: the dataflow, a chain. ``answer``: scheduler to a set of names.

    Raises:
        LabError: an operator is missing or superfluous; says why.
    """
    answered(answer, 'a dict, such as {"naive": {"FM", "MC"}}, with a set of names for each scheduler')
    if not isinstance(answer, Mapping):
        raise LabError(f'got {answer!r}; expected a dict, such as {{"naive": {{"FM", "MC"}}}}')
    why = {
        "fries": "it sends to the heads of the components, from which a marker goes on",
        "epoch": "it sends to the sources, from which a marker passes all operators",
        "naive": "it sends to each operator that changes, and there is no marker",
    }
    for scheduler in SCHEDULERS:
        right, given = messages(graph, targets, scheduler), names_in(answer.get(scheduler), graph)
        if given != right:
            what = f"{listed(given - right)} gets none" if given - right else f"{listed(right - given)} is missing"
            hint = f"where does {scheduler} begin, and do markers go on from there?"
            drawn = AnsweredSet(graph, targets, given, right)
            raise wrong(("messages", scheduler), hint, f"{scheduler}: {what}, since {why[scheduler]}", drawn)
    return Passed("; ".join(f"{name} to {listed(messages(graph, targets, name))}" for name in SCHEDULERS) + ".")


def check_ranking(graph: Graph, targets: Collection[str], load: QueueLoad, answer: Any) -> Passed:
    """Check the order of the schedulers under a load.

    ``graph``: the dataflow, a chain. ``answer``: the schedulers from the quickest to the slowest, with a set of those
    that take alike.

    Raises:
        LabError: names two in the wrong order, and the queue that decides.
    """
    place = _places(answer)
    question, hint = ("ranking", *load.queued.items()), "for each scheduler, which queues does its marker wait in?"
    delays = {name: delay_ms(graph, targets, name, load) for name in SCHEDULERS}
    for one, other in combinations(SCHEDULERS, 2):
        same, alike = delays[one] == delays[other], place[one] == place[other]
        if same and not alike:
            why = f"{one} and {other} take alike: no queue is in the way of one of them only"
            raise wrong(question, hint, why)
        quick, slow = sorted((one, other), key=delays.__getitem__)
        if not same and place[quick] >= place[slow]:
            only = waited_for(graph, targets, slow) - waited_for(graph, targets, quick)
            queue = max(only, key=lambda name: load.queued.get(name, 0) * load.cost_ms.get(name, 0.0))
            what = f"{one} and {other} do not take alike" if alike else f"{slow} is not quicker than {quick}"
            waits = f"in front of {queue} {load.queued[queue]} rows of {load.cost_ms[queue]:g} ms wait"
            raise wrong(question, hint, f"{what}: {waits}, and only the marker of {slow} comes behind them")
    ranks: dict[float, list[str]] = {}
    for name in sorted(SCHEDULERS, key=lambda name: (delays[name], SCHEDULERS.index(name))):
        ranks.setdefault(delays[name], []).append(name)
    return Passed(", then ".join(" and ".join(names) for names in ranks.values()) + ".")


def check_delays(measured: Mapping[str, Mapping[str, float]] | None) -> Passed:
    """Show measured delays as a table; any outcome is an answer, as machines differ.

    ``measured``: load to scheduler to its delay in ms.

    Raises:
        LabError: nothing was measured.
    """
    if not measured:
        raise LabError("nothing was measured; run the cell that starts the dataflows, and wait until it has ended")
    rows = [f"{load}: " + ", ".join(f"{name} {ms:,.0f} ms" for name, ms in of.items()) for load, of in measured.items()]
    return Passed("; ".join(rows) + ". Compare the order, not the ms: those depend on the machine.")


def _places(answer: Any) -> dict[str, int]:
    answered(answer, FORM)
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise LabError(f"got {answer!r}; expected {FORM}")
    place: dict[str, int] = {}
    for rank, names in enumerate(answer):
        part: Collection[str] = [names] if isinstance(names, str) else names
        place |= dict.fromkeys(names_in(part, SCHEDULERS, "scheduler"), rank)
    for name in SCHEDULERS:
        if name not in place:
            raise LabError(f"{name} is missing; expected each of {listed(SCHEDULERS)} once, in {FORM}")
    return place


REMEDIES = {
    "second worker for B": (True, "B then processes 500 rows a second"),
    "lighter B": (True, "a lighter B processes 500 rows a second"),
    "second worker for C": (False, "C is idle half of its time, since B lets only 250 rows a second through"),
    "larger queue": (False, "rows then wait even longer, and as many come out"),
}
"""Remedies for the queue of lab 1: whether they help, and why."""


def latencies_in_turn(arrivals: Sequence[float], cost: float) -> list[float]:
    """The latencies of rows that one worker processes one after the other.

    ``arrivals``: when each row arrives, in order. ``cost``: how long the worker takes for a row, in the same unit.

    Returns:
        For each row the time from its arrival to its end.
    """
    ended, latencies = float("-inf"), list[float]()
    for arrival in arrivals:
        ended = max(ended, arrival) + cost
        latencies.append(float(ended - arrival))
    return latencies


def check_latencies(function: Callable[[list[float], float], Any] | None) -> Passed:
    """Check a function from arrivals and a cost to latencies.

    Raises:
        LabError: shows arrivals for which it is wrong.
    """
    answered(function, "a function of a list of arrivals and the cost of a row")
    draws = random.Random(3)
    series = [[0.0, 1.0, 2.0], [0.0, 10.0, 20.0], [0.0, 1.0, 20.0, 21.0]]
    series += [sorted(float(draws.randint(0, 60)) for _ in range(8)) for _ in range(40)]
    for arrivals in series:
        right, given = latencies_in_turn(arrivals, 4.0), result_of(function, list(arrivals), 4.0)
        if not isinstance(given, Collection) or len(given) != len(right):
            raise LabError(f"for {len(right)} arrivals it returns {given!r}; expected a list with one latency for each")
        for arrival, one, expected in zip(arrivals, given, right, strict=True):
            if abs(one - expected) > 1e-6:
                why = (
                    f"with arrivals at {', '.join(f'{at:g}' for at in arrivals)} and 4 a row, the row that arrives at "
                    f"{arrival:g} has latency {expected:g}, not {one:g}: it begins when it has arrived and the one in "
                    "front of it has ended"
                )
                raise wrong("latencies", "when does a row begin: when it arrives, or when the worker is free?", why)
    return Passed(f"It was right on {len(series)} series of arrivals.")


def check_measured(measured: Sequence[float] | None, predicted: Any) -> Passed:
    """Compare a prediction with what was measured; any outcome is an answer, as machines differ.

    ``measured``: latencies of all rows in ms, in order. ``predicted``: that of the last row, in ms.

    Raises:
        LabError: one is missing.
    """
    guess = number_in(predicted, "the latency of the last row in ms")
    if measured is None or not len(measured):
        raise LabError("nothing was measured; run the cell that starts the dataflow, and wait until it has ended")
    last = float(measured[-1])
    share = last / guess if guess > 0 else float("inf")
    if share > 1.5:
        why = "the machine has other work, or a call takes longer than it says: each ms more counts for every row"
    elif share < 0.67:
        why = "the prediction is too high: subtract the time at which the row arrives"
    else:
        why = "the model of one queue suffices"
    first, middle = float(measured[0]), float(measured[len(measured) // 2])
    told = f"First {first:,.0f} ms, middle {middle:,.0f} ms, last {last:,.0f} ms; predicted {guess:,.0f} ms"
    return Passed(f"{told}: {why}.")


def check_bottleneck(costs_ms: Mapping[str, float], rate: float, answer: Any) -> Passed:
    """Check in front of which operator rows queue.

    >>> check_bottleneck({"A": 1, "B": 4, "C": 2}, 400, "C")
    Traceback (most recent call last):
    fries_nb.errors.LabError: not right yet: follow the rows: ...
    >>> check_bottleneck({"A": 1, "B": 4, "C": 2}, 400, "C")
    Traceback (most recent call last):
    fries_nb.errors.LabError: C gets no more than the 250 rows a second that B lets through, and can process 500

    ``costs_ms``: operator to its cost of a row in ms, in the order of the rows, one worker each. ``rate``: rows a
    second at the source. ``answer``: name of the operator.

    Raises:
        LabError: it is another one; says why.
    """
    [given, *more] = names_in(answer, costs_ms) or [""]
    if more or not given:
        raise LabError("expected the name of one operator: the first that cannot keep up")
    flowing = rate
    hint = "follow the rows: how many a second come to each operator, and how many can it process?"
    for name, cost in costs_ms.items():
        able = 1_000 / cost
        if able < flowing:
            if name == given:
                return Passed(f"{flowing:g} rows a second come to {name}, and it can process {able:g}.")
            if list(costs_ms).index(given) < list(costs_ms).index(name):
                why = f"{given} can process {1_000 / costs_ms[given]:g} rows a second, and no more come to it"
                raise wrong("bottleneck", hint, why)
            raise wrong("bottleneck", hint, f"{given} gets no more than the {able:g} rows a second that {name} lets "
                        f"through, and can process {1_000 / costs_ms[given]:g}")  # fmt: skip
        flowing = min(flowing, able)
    raise LabError(f"no operator is too slow for {rate:g} rows a second")


def check_remedies(answer: Any) -> Passed:
    """Check which remedies of ``REMEDIES`` help.

    ``answer``: the names of those that help.

    Raises:
        LabError: one is missing, or does not help; says why.
    """
    given = names_in(answer, REMEDIES, "remedy")
    hint = "which of them let more rows a second through at the operator in front of which they queue?"
    for name, (helps, why) in REMEDIES.items():
        if name in given and not helps:
            raise wrong("remedies", hint, f"{name} does not help: {why}")
    for name, (helps, why) in REMEDIES.items():
        if helps and name not in given:
            raise wrong("remedies", hint, f"{name} helps as well: {why}")
    return Passed(f"{listed(given)}: {'; '.join(REMEDIES[name][1] for name in sorted(given))}.")


GATED = {
    "a new model that is better": ((0.30, 0.23), (0, 0), True),
    "one that is worse": ((0.30, 0.31), (0, 0), False),
    "one that is better and fails on rows": ((0.30, 0.10), (0, 3), False),
    "one that is better while the old one fails": ((0.30, 0.23), (2, 0), True),
}
"""What canaries may find: errors of both models on average, numbers of failures, and whether it is to go on."""


def arms_table(errors: tuple[float, float], failures: tuple[int, int]) -> Any:
    """Figures of both versions as ``change.compare()`` returns them.

    >>> int(arms_table((0.3, 0.2), (0, 1)).failures.new)
    1
    """
    from pandas import DataFrame, Index

    return DataFrame({"failures": failures, "error mean": errors}, Index(["old", "new"], name="arm"))


def check_gate(gate: Callable[[Any], Any]) -> Passed:
    """Check a gate on made-up figures of both versions.

    ``gate``: returns whether the canary is to go on.

    Raises:
        LabError: it lets one go on that is worse, or holds one that is better, or gives no boolean.
    """
    hint = "compare the new error with the old one, and see that no row has failed in the new version"
    for what, (errors, failures, right) in GATED.items():
        found = result_of(gate, arms_table(errors, failures))
        if not isinstance(found, bool):
            kind = type(found).__name__
            raise LabError(f"gate returns {found!r} ({kind}); expected True or False, as in bool(...): a canary whose "
                           "gate gives anything else is rolled back")  # fmt: skip
        if found is not right:
            does = "lets it go on" if found else "holds it"
            raise wrong("gate", hint, f"{what}: mean errors {errors[0]} and {errors[1]}, failures {failures[0]} and "
                        f"{failures[1]} (old, new), and the gate {does}")  # fmt: skip
    return Passed(f"It decides {len(GATED)} canaries rightly.")


def check_cohort(by_group: Any, answer: Any) -> Passed:
    """Check for which group the new version is worse, by what was measured.

    ``by_group``: what ``change.compare(by=...)`` has returned. ``answer``: a value of its column.

    Raises:
        LabError: it is another one; says what was measured there.
    """
    answered(answer, "worse_for = the value of the column for which the new version is worse")
    errors = by_group["error mean"]
    groups = list(dict.fromkeys(errors.index.get_level_values(0)))
    if answer not in groups:
        raise LabError(f"got {answer!r}; expected one of {', '.join(map(repr, groups))}")
    old, new = (float(errors[answer, arm]) for arm in ("old", "new"))
    if not new > old:
        why = f"for {answer} the mean error falls from {old:g} to {new:g}"
        raise wrong("cohort", "in which group is the mean error of new larger than that of old?", why)
    return Passed(f"For {answer} the mean error grows from {old:g} to {new:g}, though on average it falls.")
