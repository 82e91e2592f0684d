"""Seeded runs in memory whose schedules can be read, and checks of what students read from them.

>>> import fries_nb as fn
>>> flow = fn.Dataflow("fraud")
>>> merchants = flow.source("payments", fn.rate(None, count=1)).map("FM", VersionStamp("FM", "old"))
>>> merchants.map("MC", VersionStamp("MC", "old")).sink("scored", fn.memory())
Stream('scored')
>>> broken = next(found for seed in range(50) if (found := interleaved(flow, {"FM", "MC"}, "naive", seed)).mixed)
>>> [len(transactions) for transactions in broken.schedules.values()]
[13, 13]
>>> check_broken(broken)
Right. Seed 1 breaks the change: t1 met the old FM and the new MC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec
import networkx as nx

from fries_nb.audit import Verdict, judge
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.columns import HIDDEN
from fries_nb.errors import LabError
from fries_nb.labs.answers import Passed, answered, listed, names_in, number_in, wrong
from fries_nb.protocol.trace import Ran, RanMany, Record, Updated
from fries_nb.simulation import Cluster

ROWS = 12
WINDOW = 400
"""Bytes of credit of a channel: so few that rows wait between the operators."""

_MIDDLE = 'text-anchor="middle"'
_TIP = (
    '<defs><marker id="labs-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M 0 0 L 8 4 L 0 8 z" fill="currentColor"/></marker></defs>'
)
Arrow = tuple[str, str]
Schedule = Sequence[Ran | Updated]


@dataclass(frozen=True)
class VersionStamp:
    """A function that writes its version into each row, in a column with the operator's name."""

    operator: str
    version: str

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the version in one more column."""
        return row | {self.operator: self.version}


@dataclass(frozen=True)
class Interleaving:
    """One run in memory; its seed determines the order of all events.

    Attributes:
        schedules: operator that changes to what it did, in order: names of transactions (``t1`` is the first row of
            the source), and ``u`` for the change.
    """

    seed: int
    schedules: Mapping[str, tuple[str, ...]]
    rows: tuple[dict[str, Any], ...]  # the rows of the sink
    verdict: Verdict  # the audit's verdict, with the same names

    @property
    def mixed(self) -> bool:
        """Whether a transaction met the old and the new configuration."""
        return bool(self.verdict.mixed)


def interleaved(flow: DataflowBuilder, targets: Iterable[str], scheduler: str, seed: int) -> Interleaving:
    """Run a dataflow of one source in memory, and change it while rows are on their way.

    ``flow``: the dataflow. ``targets``: the operators that change, from ``VersionStamp(name, "old")`` to
    ``VersionStamp(name, "new")``. ``scheduler``: the scheduler of the change.

    Returns:
        What happened.

    Raises:
        LabError: the dataflow has several sources, or the run failed.
    """
    graph = flow.graph(workers=1)
    if len(graph.sources) != 1:
        raise LabError(f"the dataflow has the sources {listed(graph.sources)}; expected a single one")
    rows = [{"id": number, "number": number} for number in range(ROWS)]
    cluster = Cluster(graph, {graph.sources[0]: rows}, seed=seed, chaining=False, window=WINDOW)
    cluster.until(lambda: cluster.supply.read >= ROWS // 3)
    changed = names_in(set(targets), graph)
    cluster.request({name: VersionStamp(name, "new") for name in changed}, scheduler)
    cluster.run()
    if cluster.state != "finished":
        raise LabError(f"the run failed: {cluster.error}")
    records = _renamed(cluster.records())
    shown = tuple({name: row[name] for name in row if name not in HIDDEN} for row in cluster.rows(graph.sinks[0]))
    return Interleaving(seed, _schedules(records, changed), shown, judge(records))


def arrows(schedule: Schedule) -> dict[Arrow, str]:
    """The precedence graph of a schedule: each arrow from what must precede to what must follow, and where.

    >>> arrows([Ran("t", "FM"), Updated("u", "FM"), Updated("u", "MC"), Ran("t", "MC")])
    {('t', 'u'): 'FM', ('u', 't'): 'MC'}

    Returns:
        The arrows between transactions and changes, and between changes, with an operator at which they conflict.
    """
    found: dict[Arrow, str] = {}
    for place, first in enumerate(schedule):
        for second in schedule[place + 1 :]:
            at_one = (first.operator, first.worker) == (second.operator, second.worker)
            if at_one and (isinstance(first, Updated) or isinstance(second, Updated)):
                found.setdefault((_name(first), _name(second)), first.operator)
    return found


def check_serializable(schedules: Mapping[str, Schedule], answer: Any) -> Passed:
    """Check which of some schedules are serializable.

    ``schedules``: name to schedule. ``answer``: the names of those that are.

    Raises:
        LabError: one is missing, or not serializable; says by which arrows.
    """
    given = names_in(answer, schedules, "schedule")
    question = "serializable", tuple(schedules)
    hint = "draw an arrow for each conflict at an operator, in the order of the list; which drawings have a cycle?"
    for name, schedule in schedules.items():
        found, right = arrows(schedule), judge(schedule).serializable
        told = [f"{first} precedes {second} at {operator}" for (first, second), operator in found.items()]
        if name in given and not right:
            raise wrong(question, hint, f"{name} is not serializable: {' and '.join(told)}")
        if name not in given and right:
            order = " then ".join(nx.topological_sort(nx.DiGraph(list(found))))
            why = f"{name} is serializable: wherever two of its operations conflict, it is {order}"
            raise wrong(question, hint, why)
    return Passed(f"The others have a cycle; {listed(given)} have none.")


def check_arrows(schedule: Schedule, answer: Any) -> Passed:
    """Check the arrows of a precedence graph.

    ``answer``: pairs of names, the first of which must precede the second.

    Raises:
        LabError: one is missing, or has no conflict behind it.
    """
    given, found = arrows_in(answer), arrows(schedule)
    if given != set(found):
        hint = "go through the operators one by one: where is a change, and what comes before and after it at that one?"
        raise wrong(("arrows", tuple(schedule)), hint, _why_not_arrows(found, given))
    return Passed("; ".join(f"{first} -> {second} at {where}" for (first, second), where in found.items()) + ".")


def _why_not_arrows(found: Mapping[Arrow, str], given: set[Arrow]) -> str:
    """Which arrow has no conflict behind it, points backwards, or is missing."""
    for first, second in sorted(given - set(found)):
        if (second, first) in found:
            where = found[second, first]
            return f"the arrow from {first} to {second} points backwards: at {where} {second} comes first"
        return f"no arrow leads from {first} to {second}: only a change conflicts, and at one operator"
    first, second = min(set(found) - given)
    where = found[first, second]
    return f"an arrow from {first} to {second} is missing: at {where} {first} comes before {second}"


def check_broken(run: Any) -> Passed:
    """Check that a run mixes the configurations.

    ``run``: the run, from ``interleaved``.

    Raises:
        LabError: it does not.
    """
    answered(run, "a run, from interleaved(...)")
    if not isinstance(run, Interleaving):
        raise LabError(f"got {run!r}; expected a run, from interleaved(...)")
    if not run.mixed:
        hint = "print the rows of the run; does one have the old version in one column and the new one in another?"
        why = f"with seed {run.seed} no transaction met both configurations; try other seeds, in a loop"
        raise wrong("broken", hint, why)
    one = run.verdict.mixed[0]
    return Passed(
        f"Seed {run.seed} breaks the change: {one.transaction} met the old {listed(one.old)} and the new "
        f"{listed(one.new)}."
    )


def check_cycle(run: Interleaving, answer: Any) -> Passed:
    """Check a cycle in the precedence graph of a run.

    ``run``: a run that mixes the configurations. ``answer``: its arrows, as pairs of names.

    Raises:
        LabError: an arrow does not hold, or they form no cycle.
    """
    given, found = arrows_in(answer), arrows(_operations(run.schedules))
    hint = "which transaction is before u in the list of one operator, and behind it in that of another?"
    for first, second in sorted(given):
        if (first, second) not in found:
            raise wrong("cycle", hint, f"nowhere does {first} come before {second}; read the lists of the run again")
    graph = nx.DiGraph(sorted(given))
    if not given or not nx.is_strongly_connected(graph):
        ends = [name for name in graph if not graph.in_degree(name) or not graph.out_degree(name)]
        lacking = f": {listed(ends)} has no arrow in, or none out" if ends else ""
        why = f"the arrows form no cycle{lacking}; each name needs an arrow that arrives and one that leaves"
        raise wrong("cycle", hint, why)
    told = ", and ".join(f"{a} before {b} at {found[a, b]}" for a, b in sorted(given))
    return Passed(f"No order has {told}.", cycle_svg({pair: found[pair] for pair in given}))


def check_counts(right: Mapping[str, int], answer: Any) -> Passed:
    """Check in how many runs each scheduler mixed configurations.

    ``right``: scheduler to the number of runs, counted. ``answer``: the same, as predicted: exact for those that never
    do, above 0 for the others.

    Raises:
        LabError: a scheduler is missing, or predicted wrongly.
    """
    answered(answer, "a dict, such as {'naive': 1, 'fries': 0}")
    hint = "what does each scheduler do for a row that is between the two operators when the messages arrive?"
    if not isinstance(answer, Mapping):
        raise LabError(f"got {answer!r}; expected a dict from scheduler to number of runs")
    for scheduler, count in right.items():
        if scheduler not in answer:
            raise LabError(f"{scheduler!r} is missing; expected one number for each of {listed(right)}")
        given = number_in(answer[scheduler], f"the runs that {scheduler} breaks")
        if given and not count:
            why = f"{scheduler} breaks no run: its marker separates what is before and behind the change"
            raise wrong("counts", hint, why)
        if count and not given:
            why = f"{scheduler} breaks {count} of the runs: it orders nothing between the operators"
            raise wrong("counts", hint, why)
    return Passed("Counted: " + ", ".join(f"{name} {count}" for name, count in right.items()) + ".")


def arrows_in(answer: Any) -> set[Arrow]:
    """The arrows of an answer: pairs of names, or triples with the operator.

    >>> sorted(arrows_in([("t1", "u"), "u -> t1"]))
    [('t1', 'u'), ('u', 't1')]

    Returns:
        The pairs.

    Raises:
        LabError: there is no answer, or it has another form.
    """
    form = "a set of pairs, such as {('t1', 'u'), ('u', 't1')}"
    answered(answer, form)
    if isinstance(answer, tuple) and len(answer) in (2, 3) and all(isinstance(name, str) for name in answer):
        answer = [answer]
    if isinstance(answer, str) or not isinstance(answer, Collection):
        raise LabError(f"got {answer!r}; expected {form}")
    pairs = [tuple(part.strip() for part in one.split("->")) if isinstance(one, str) else one for one in answer]
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) not in (2, 3) or not all(isinstance(name, str) for name in pair):
            raise LabError(f"got the arrow {pair!r}; expected {form}")
    return {(pair[0], pair[1]) for pair in pairs}


def cycle_svg(found: Mapping[Arrow, str]) -> str:
    """A precedence graph as a picture.

    ``found``: arrow to the operator of its conflict.

    Returns:
        An ``<svg>`` element.
    """
    at = {name: 60 + 160 * place for place, name in enumerate(dict.fromkeys(name for pair in found for name in pair))}
    parts = [_TIP]
    for (first, second), where in sorted(found.items()):
        side = 1 if at[first] < at[second] else -1  # there above the names, back below them
        middle, tip = (at[first] + at[second]) / 2, at[second] - 18 * side
        way = f"M {at[first]} {70 - 17 * side} Q {middle} {70 - 68 * side} {tip} {70 - 17 * side}"
        parts.append(f'<path d="{way}" fill="none" stroke="currentColor" marker-end="url(#labs-tip)"/>')
        parts.append(f'<text x="{middle}" y="{76 - 50 * side}" {_MIDDLE} fill="currentColor">{escape(where)}</text>')
    for name, x in at.items():
        parts.append(f'<circle cx="{x}" cy="70" r="18" fill="#56B4E9"/>')
        parts.append(f'<text x="{x}" y="75" {_MIDDLE}>{escape(name)}</text>')
    width = max(at.values(), default=0) + 60
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="150">{"".join(parts)}</svg>'


def _name(operation: Ran | Updated) -> str:
    return str(operation.transaction if isinstance(operation, Ran) else operation.id)


def _renamed(records: Iterable[Record]) -> list[Record]:
    """The records with ``t1``, ``t2``, ... for transactions in the order of the source, and ``u`` for the change."""
    records = list(records)
    found = (record.transactions for record in records if hasattr(record, "transactions"))
    names = {old: f"t{place}" for place, old in enumerate(sorted(set().union(*found)), start=1)}
    renamed: list[Record] = []
    for record in records:
        if hasattr(record, "transactions"):
            record = msgspec.structs.replace(record, transactions=tuple(names[one] for one in record.transactions))
        function = "u" if getattr(record, "function", "") else getattr(record, "function", "")
        if hasattr(record, "function"):
            record = msgspec.structs.replace(record, function=function)
        renamed.append(msgspec.structs.replace(record, id="u") if isinstance(record, Updated) else record)
    return renamed


def _schedules(records: Iterable[Record], targets: Collection[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: [] for name in sorted(targets)}
    for record in records:
        if isinstance(record, RanMany) and record.operator in found:
            found[record.operator] += map(str, record.transactions)
        elif isinstance(record, Ran | Updated) and record.operator in found:
            found[record.operator].append(_name(record))
    return {name: tuple(order) for name, order in found.items()}


def _operations(schedules: Mapping[str, Iterable[str]]) -> list[Ran | Updated]:
    return [
        Updated(name, operator) if name == "u" else Ran(name, operator)
        for operator, order in schedules.items()
        for name in order
    ]
