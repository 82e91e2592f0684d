"""Queues: how long rows wait, and which operator keeps all others waiting.

>>> latencies_in_turn([0, 1, 10], 4)
[4.0, 7.0, 4.0]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fries_nb.errors import LabError
from fries_nb.labs.answers import Passed, answered, listed, names_in, number_in, result_of, wrong

REMEDIES = {
    "second worker for B": (True, "B then processes 500 rows a second"),
    "lighter B": (True, "a lighter B processes 500 rows a second"),
    "second worker for C": (False, "C is idle half of its time, since B lets only 250 rows a second through"),
    "larger queue": (False, "rows then wait even longer, and as many come out"),
}
"""Remedies for the queue of lab 1: whether they help, and why."""


def latencies_in_turn(arrivals: Sequence[float], cost: float) -> list[float]:
    """The latencies of rows that one worker processes one after the other.

    Args:
        arrivals: when each row arrives, in order.
        cost: how long the worker takes for a row, in the same unit.

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

    Args:
        function: the function.

    Returns:
        On how many series it was right.

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

    Args:
        measured: latencies of all rows in ms, in order.
        predicted: that of the last row, in ms.

    Returns:
        Both, and how to read the difference.

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

    Args:
        costs_ms: operator to its cost of a row in ms, in the order of the rows, one worker each.
        rate: rows a second at the source.
        answer: name of the operator.

    Returns:
        The operator.

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

    Args:
        answer: the names of those that help.

    Returns:
        The reasons.

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
