"""Hosts that are killed during a change, and what comes out.

>>> killed(Moment.PREPARED, seed=2).outcome, killed(Moment.DECIDED, seed=2).outcome
('aborted', 'done')
>>> check_outcomes({"prepared": "done", "decided": "done", "half": "done", "done": "done"})
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: prepared: ... (the next wrong answer is explained)
>>> check_outcomes({"prepared": "done", "decided": "done", "half": "done", "done": "done"})
Traceback (most recent call last):
fries_nb.errors.LabError: prepared: the change is aborted, since nothing was decided: the old functions go on everywhere
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.errors import LabError
from fries_nb.labs.answers import Passed, answered, result_of, wrong
from fries_nb.labs.interleavings import VersionStamp
from fries_nb.protocol.trace import Updated
from fries_nb.simulation import Cluster

Row = dict[str, Any]
ROWS = 60
COMMIT_NS = 5_000_000


class Moment(StrEnum):
    """When a host is killed: what has happened to the change by then."""

    PREPARED = "prepared"
    DECIDED = "decided"
    HALF = "half"
    DONE = "done"


OUTCOMES = {
    Moment.PREPARED: ("aborted", "since nothing was decided: the old functions go on everywhere"),
    Moment.DECIDED: ("done", "since the decision is on disk: recovery makes it take effect at every worker"),
    Moment.HALF: ("done", "since the decision is on disk, whatever the hosts that are lost had done of it"),
    Moment.DONE: ("done", "since it was, and recovery restores it"),
}
STEPS = {
    "a": "the hosts load the newest complete checkpoint",
    "b": "changes that were decided after the checkpoint take effect at every worker",
    "c": "Spark starts the tasks of all hosts again",
    "d": "the sources read on from the positions in the checkpoint",
    "e": "the controller notices that a host is lost, and refuses messages of all the old ones from now on",
}
"""What a recovery does, not in order."""
_BEFORE = {
    ("e", "c"): "first it has to be known that a host is lost",
    ("c", "a"): "a host has to run before it can load anything",
    ("a", "b"): "a change replaces functions of operators that are there with their state",
    ("b", "d"): "a row that is read before the change is in effect would meet the old configuration",
}


@dataclass(frozen=True)
class KilledRun:
    """What came of a run whose host was killed during a change of FM and MC."""

    outcome: str  # of the change
    rows: tuple[Row, ...]  # the rows of the sink
    restarts: int  # how often the hosts were started again
    committed: int  # how many rows had been committed before the change was requested

    @property
    def versions(self) -> dict[tuple[str, str], int]:
        """The versions of FM and MC that rows met, with the number of rows."""
        found: dict[tuple[str, str], int] = {}
        for row in self.rows:
            met = row["FM"], row["MC"]
            found[met] = found.get(met, 0) + 1
        return found


def killed(moment: Moment | str, seed: int) -> KilledRun:
    """Run a dataflow in memory, with checkpoints, and kill a host at a moment of a change.

    Returns:
        What came of it.
    """
    flow = DataflowBuilder("killed")
    merchants = flow.source("payments", rate(None)).map("FM", VersionStamp("FM", "old"))
    merchants.map("MC", VersionStamp("MC", "old")).sink("out", memory())
    cluster = Cluster(
        flow.graph(workers=1), {"payments": [{"id": number} for number in range(ROWS)]},
        hosts=2, seed=seed, chaining=False, window=400, checkpoints=True, commit_interval_ns=COMMIT_NS,
    )  # fmt: skip
    cluster.until(lambda: bool(cluster.rows("out")))
    committed = len(cluster.rows("out"))
    change = cluster.request({name: VersionStamp(name, "new") for name in ("FM", "MC")})
    reached = {
        Moment.PREPARED: lambda: True,
        Moment.DECIDED: lambda: bool(cluster.journal),
        Moment.HALF: lambda: any(isinstance(record, Updated) for record in cluster.records()),
        Moment.DONE: lambda: change in cluster.outcomes,
    }
    cluster.until(reached[Moment(moment)])
    cluster.kill(1)
    cluster.run()
    return KilledRun(cluster.outcomes[change].outcome, tuple(cluster.rows("out")), len(cluster.recoveries), committed)


def check_outcomes(answer: Any, seed: int = 2) -> Passed:
    """Check what becomes of a change if a host is killed, and kill one at each moment.

    ``answer``: moment to ``"done"`` or ``"aborted"``.

    Raises:
        LabError: one is missing or wrong; says why.
    """
    answered(answer, 'a dict from each moment to "done" or "aborted"')
    if not isinstance(answer, Mapping):
        raise LabError(f'got {answer!r}; expected a dict from each moment to "done" or "aborted"')
    told = []
    for moment, (right, why) in OUTCOMES.items():
        given = answer.get(moment.value)
        answered(given, f'"done" or "aborted" for the moment {moment.value!r}')
        if given not in ("done", "aborted"):
            raise LabError(f'got {given!r} for the moment {moment.value!r}; expected "done" or "aborted"')
        if given != right:
            hint = f"{moment.value}: what is on disk at that moment, and survives whatever the hosts have done?"
            raise wrong(("outcome", moment), hint, f"{moment.value}: the change is {right}, {why}")
        run = killed(moment, seed)
        told.append(f"{moment.value}: {run.outcome}, {len(run.rows)} rows, {run.restarts} restart")
    return Passed("; ".join(told) + ".")


def check_order(answer: Any) -> Passed:
    """Check the order of the steps of a recovery.

    >>> check_order("ecbad")
    Traceback (most recent call last):
    fries_nb.errors.LabError: not right yet: ask of each step what has to be there before it can be done ...
    >>> check_order("ecbad")
    Traceback (most recent call last):
    fries_nb.errors.LabError: a comes before b: a change replaces functions of operators that are there with their state

    ``answer``: the letters of ``STEPS``, in order.

    Raises:
        LabError: a letter is missing, or two are in the wrong order.
    """
    answered(answer, 'the letters in order, such as "abcde"')
    letters = [str(letter).strip() for letter in answer] if isinstance(answer, str | Sequence) else []
    letters = [letter for letter in letters if letter and letter not in ",->"]
    if sorted(letters) != sorted(STEPS):
        raise LabError(f"got {answer!r}; expected each of the letters {', '.join(STEPS)} once, in order")
    for (first, second), why in _BEFORE.items():
        if letters.index(first) > letters.index(second):
            hint = "ask of each step what has to be there before it can be done"
            raise wrong("order", hint, f"{first} comes before {second}: {why}")
    return Passed("First " + "; then ".join(STEPS[letter] for letter in letters) + ".")


def good_rows(count: int) -> list[Row]:
    """Rows as they come out of a run without failure: ``nth`` counts the payments of each of three customers."""
    changed = count // 2
    return [
        {"value": value, "customer": value % 3, "nth": value // 3 + 1}
        | dict.fromkeys(("FM", "MC"), "old" if value < changed else "new")
        for value in range(count)
    ]


def check_verifier(function: Callable[[list[Row], int], Any] | None) -> Passed:
    """Check a function that finds out whether rows are what a run without failure would have given.

    ``function``: a function of the rows, in any order, and their expected number, to a truth value.

    Raises:
        LabError: it accepts rows with a defect, or refuses good ones.
    """
    answered(function, "a function of a list of rows and a number")
    good = good_rows(30)
    hint = "what does the task ask of the rows, and does the function judge each part of that, and nothing else?"
    if not result_of(function, good[::-1], 30):
        why = "it refuses rows that are right; they come in any order, and the versions change on the way"
        raise wrong("verifier", hint, why)
    last = good[-1]
    broken = {
        "in which one is lost": good[:7] + good[8:],
        "in which one came out twice": [*good, good[4]],
        "in which one is lost and another came out twice": [*good[:7], good[6], *good[8:]],
        "in which one met the old FM and the new MC": [*good[:-1], last | {"FM": "old"}],
        "in which the count of a customer began again": [*good[:-1], last | {"nth": 1}],
    }
    for defect, rows in broken.items():
        if result_of(function, rows, 30):
            raise wrong("verifier", hint, f"it accepts rows {defect}")
    return Passed(f"It accepts good rows, and none {', or '.join(broken)}.")
