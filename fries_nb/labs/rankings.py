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
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LabError
from fries_nb.labs.answers import AnsweredSet, Passed, answered, listed, names_in, wrong
from fries_nb.scheduling import schedule

SCHEDULERS = ("fries", "epoch", "naive")
FORM = 'a list from the quickest on, such as ["naive", {"fries", "epoch"}], with a set of those that take alike'


@dataclass(frozen=True)
class QueueLoad:
    """What waits in front of operators with one worker each, and what they take.

    Attributes:
        queued: operator to the number of rows in front of it.
        cost_ms: operator to its time for a row, in ms.
    """

    queued: Mapping[str, int]
    cost_ms: Mapping[str, float]


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

    Args:
        graph: the dataflow, a chain.
        targets: the operators that change.
        answer: scheduler to a set of names.

    Returns:
        Them.

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

    Args:
        graph: the dataflow, a chain.
        targets: the operators that change.
        load: the load.
        answer: the schedulers from the quickest to the slowest, with a set of those that take alike.

    Returns:
        The ranking.

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

    Args:
        measured: load to scheduler to its delay in ms.

    Returns:
        The table.

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
