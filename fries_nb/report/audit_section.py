"""The section of a report on the audit: the verdict, the transactions that mixed versions, and a cycle as proof.

>>> from fries_nb.audit import Mixed
>>> from fries_nb.trace import ROW_BITS
>>> mixed = tuple(Mixed((1 << ROW_BITS) + row, "u1", ("FM",), ("MC",)) for row in (7, 8))
>>> verdict = Verdict(False, mixed, (str((1 << ROW_BITS) + 7), "u1"), ("FM", "MC"), 900, 1)
>>> sentence(verdict)
'Not serializable: 2 of 900 source tuples met an old version and a new one.'
>>> grouped(verdict)
[('u1', 'FM', 'MC', 2, 'row 7 of split 1 of source 0')]
>>> cycle(verdict)
'row 7 of split 1 of source 0 → (at FM) u1 → (at MC) row 7 of split 1 of source 0'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from fries_nb.audit import Verdict
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import TraceError
from fries_nb.planning.counter_example import counter_example
from fries_nb.report.cycle_picture import CycleNode, cycle_svg
from fries_nb.report.example_section import example_parts
from fries_nb.report.markup import Column, Html, counted, figure, joined, table, tag
from fries_nb.report.version_pictures import met_svg
from fries_nb.trace import place_of

SHOWN = 12
_COLUMNS = (
    Column("Change"),
    Column("Old version at"),
    Column("New version at"),
    Column("Source tuples", number=True),
    Column("One of them"),
)


def judged(audit: Callable[[], Verdict]) -> Verdict | TraceError:
    """The verdict, or the error why there is none."""
    try:
        return audit()
    except TraceError as error:
        return error


def verdict_parts(
    verdict: Verdict, labels: Mapping[str, str], graph: Graph, naive: Mapping[str, Collection[str]] = {}
) -> Html:
    """The verdict and its proof as markup.

    Args:
        verdict: the verdict.
        labels: change id to a description of the change.
        graph: the dataflow.
        naive: the changes that were made by naive FCM, with their targets; if one of them is in the cycle, the plan's
            counter-example is shown as well.
    """
    said = tag("p", sentence(verdict), class_="good" if verdict.serializable else "bad")
    if verdict.serializable:
        return joined([said, tag("p", "Each of them, with all that was made of it, met one configuration only.")])
    groups = grouped(verdict)
    rows = [
        (f"{change}: {labels[change]}" if change in labels else change, old, new, f"{count:,}", example)
        for change, old, new, count, example in groups[:SHOWN]
    ]
    parts = [said]
    if rows:
        parts.append(table("Source tuples that met both versions, by where they met them", _COLUMNS, rows))
    if len(groups) > SHOWN:
        parts.append(tag("p", f"... and {len(groups) - SHOWN:,} more such places.", class_="note"))
    if found := others(verdict):
        parts.append(tag("ul", joined([tag("li", line) for line in found])))
    if not verdict.cycle:
        return joined(parts)
    proof = "Proof: each of these must precede the next, and they form a cycle, so no serial order of whole tuples and "
    parts.append(tag("p", proof, "whole changes is equivalent. ", tag("code", cycle(verdict))))
    parts += [figure(drawing, caption) for drawing, caption in verdict_svgs(verdict, labels, graph)]
    guilty = next((name for name in verdict.cycle if name in naive), None)
    example = None if guilty is None else counter_example(graph, naive[guilty])
    if example is not None:
        parts += [tag("p", f"The plan of {guilty} shows that naive FCM may do this."), example_parts(graph, example)]
    return joined(parts)


def verdict_svgs(verdict: Verdict, labels: Mapping[str, str], graph: Graph) -> list[tuple[str, str]]:
    """The pictures of the proof with captions: what each source tuple of the cycle met, and the cycle.

    Args:
        verdict: a verdict with a cycle.
        labels: change id to a description of the change.
        graph: the dataflow.
    """
    steps = list(zip(verdict.cycle, verdict.cycle_met, strict=True))
    changes = {name for name, met in steps if not met}
    found = [
        (met_svg(graph, met, changes), f"What processed {described(name, verdict)}, and the versions that it met.")
        for name, met in steps
        if met
    ]
    nodes = [
        CycleNode(named(name, verdict), _values_of(name, verdict) or "source tuple")
        if met
        else CycleNode(name, labels.get(name, "change"), is_change=True)
        for name, met in steps
    ]
    return [*found, (cycle_svg(nodes, verdict.cycle_at), "The cycle: each must precede the next.")]


def sentence(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    if verdict.serializable:
        of_changes = f" and {counted(verdict.updates, 'change')}" if verdict.updates else ""
        return f"Serializable: {counted(verdict.transactions, 'source tuple')}{of_changes} judged, none mixed."
    if verdict.stale:
        return f"Not serializable: a switch was recorded at {counted(len(verdict.stale), 'worker')} and had no effect."
    if astray := {one.transaction for one in (*verdict.lost, *verdict.doubled)}:
        return f"Not serializable: tuples derived from {counted(len(astray), 'source tuple')} were lost or duplicated."
    if not verdict.mixed:
        return "Not serializable: no tuple mixed versions of one change, but tuples met changes in different orders."
    mixed = len({entry.transaction for entry in verdict.mixed})
    return f"Not serializable: {mixed:,} of {verdict.transactions:,} source tuples met an old version and a new one."


def others(verdict: Verdict) -> list[str]:
    """Switches without effect, and some of the tuples that were lost or duplicated.

    >>> from fries_nb.audit import Astray
    >>> others(Verdict(False, (), (), (), 9, 0, lost=(Astray(7, "FM", "MC", 1, 0),)))
    ['row 7 of split 0 of source 0: FM emitted 1 for MC, which took 0']
    """
    found = [
        f"{one.operator}[{one.worker}] recorded the switch to {one.update or 'nothing'} and ran {one.tuples:,} tuples "
        f"with {f'the function of {one.ran}' if one.ran else 'its first function'}"
        for one in verdict.stale
    ]
    found += [
        f"{described(one.transaction, verdict)}: {one.account}"
        for one in (*verdict.lost, *verdict.doubled)[:SHOWN]
    ]
    return found[:SHOWN]


def grouped(verdict: Verdict) -> list[tuple[str, str, str, int, str]]:
    """Mixed transactions, grouped by change and by the operators at which they met the old and the new version.

    Returns:
        For each group its size and first transaction, largest group first.
    """
    groups: dict[tuple[str, str, str], list[str | int]] = {}
    for entry in verdict.mixed:
        groups.setdefault((str(entry.update), ", ".join(entry.old), ", ".join(entry.new)), []).append(entry.transaction)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [(*places, len(members), described(members[0], verdict)) for places, members in ordered]


def cycle(verdict: Verdict) -> str:
    """The cycle as text; each arrow names an operator at which the conflict occurs."""
    steps = zip(verdict.cycle, verdict.cycle_at, strict=True)
    through = "".join(f"{described(name, verdict)} → (at {at}) " for name, at in steps)
    return through + named(verdict.cycle[0], verdict)


def mentioned(verdict: Verdict) -> list[int]:
    """The identities of the source tuples that these texts name.

    >>> from fries_nb.audit import Mixed
    >>> mentioned(Verdict(False, (Mixed(9, "u1", ("FM",), ("MC",)),), ("7", "u1"), ("FM", "MC"), 9, 1))
    [7, 9]
    """
    groups: dict[tuple[object, ...], str | int] = {}
    for entry in verdict.mixed:
        groups.setdefault((entry.update, entry.old, entry.new), entry.transaction)
    astray = [one.transaction for one in (*verdict.lost, *verdict.doubled)[:SHOWN]]
    names = map(str, (*verdict.cycle, *groups.values(), *astray))
    return list(dict.fromkeys(int(name) for name in names if name.isdigit()))


def named(transaction: str | int, verdict: Verdict) -> str:
    """A source tuple by its number in its source, if a run knows it, else in its split; an update by its id.

    >>> from fries_nb.trace import SourceRow
    >>> read = Verdict(True, (), (), (), 9, 0, rows={7: SourceRow("payments", 1007, {"id": 9})})
    >>> named("7", read), named(8, read), named("u1", read), described(7, read)
    ('row 1,007 of payments', 'row 8 of split 0 of source 0', 'u1', 'row 1,007 of payments (id 9)')
    """
    digits = str(transaction)
    if not digits.isdigit():
        return digits
    found = verdict.rows.get(int(digits))
    if found is not None:
        return f"row {found.number:,} of {found.source}"
    source, split, row = place_of(int(digits))
    return f"row {row:,} of split {split} of source {source}"


def described(transaction: str | int, verdict: Verdict) -> str:
    """The same with what the row holds."""
    values = _values_of(transaction, verdict)
    return named(transaction, verdict) + (f" ({values})" if values else "")


def _values_of(transaction: str | int, verdict: Verdict) -> str:
    found = verdict.rows.get(int(transaction)) if str(transaction).isdigit() else None
    return "" if found is None else found.shown
