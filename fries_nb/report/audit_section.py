r"""The section of a report on the audit: the verdict, the transactions that mixed versions, and a cycle as proof.

>>> from fries_nb.audit import Mixed
>>> from fries_nb.protocol.trace import ROW_BITS
>>> mixed = tuple(Mixed((1 << ROW_BITS) + row, "u1", ("FM",), ("MC",)) for row in (7, 8))
>>> verdict = Verdict(False, mixed, (str((1 << ROW_BITS) + 7), "u1"), ("FM", "MC"), 900, 1)
>>> sentence(verdict)
'Not serializable: 2 of 900 source tuples met an old version and a new one.'
>>> grouped(verdict)
[('u1', 'FM', 'MC', 2, 'row 7 of split 1 of source 0')]
>>> cycle(verdict)
'row 7 of split 1 of source 0 → (at FM) u1 → (at MC) row 7 of split 1 of source 0'

A counter-example to naive FCM in words and pictures, to be stepped through.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.counter_example import counter_example
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> example = counter_example(graph, ["FM", "MC"])
>>> print("\n".join(example_lines(example)))
1. t1 passes S.
2. FM processes t1 with its old function.
3. The message reaches FM, which switches to its new function.
4. The message reaches MC, which switches to its new function.
5. MC processes t1 with its new function.
So t1 precedes the change at FM, and the change precedes t1 at MC: no serial order has this result.
>>> example_parts(graph, example).count("<svg")
7
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby

from markupsafe import Markup

from fries_nb.audit import Verdict
from fries_nb.dataflow.graph import Graph
from fries_nb.planning.counter_example import CounterExample, ExampleStep, StepKind, counter_example
from fries_nb.protocol.trace import place_of
from fries_nb.report.cycle_picture import COPIES, CycleNode, cycle_svg, example_met_svg, example_svg, met_svg
from fries_nb.report.markup import in_one_style
from fries_nb.report.page import part
from fries_nb.report.row_picture import TextColumn
from fries_nb.running.results import MOST_EXAMPLES
from fries_nb.words import counted


def example_parts(graph: Graph, example: CounterExample) -> Markup:
    """The counter-example as frames: one for each event, and one with what the tuple met and the precedence cycle."""
    moments = list(_moments(example))
    met, cycle = end_svgs(graph, example)
    pictures = in_one_style([*(example_svg(graph, example, number) for number, _ in moments), met])
    lines = [*(words for _, words in moments), conclusion(example)]
    more = [*[""] * len(moments), cycle]
    return part("example", [part("frame", *each) for each in zip(pictures, lines, more, strict=True)])


def end_svgs(graph: Graph, example: CounterExample) -> tuple[str, str]:
    """The versions that the tuple has met in the end, and the precedence cycle."""
    tuple_, change = example.cycle
    nodes = [CycleNode(tuple_, "source tuple"), CycleNode(change, "the change", is_change=True)]
    return example_met_svg(graph, example), cycle_svg(nodes, example.cycle_at)


def example_lines(example: CounterExample) -> list[str]:
    """The steps as numbered lines, and the conclusion."""
    lines = [f"{place}. {words}" for place, (_, words) in enumerate(_moments(example), start=1)]
    return [*lines, conclusion(example)]


def summary(example: CounterExample) -> str:
    """What the counter-example shows, in one sentence."""
    old, new = example.cycle_at
    if not example.parts_at:
        again = "in a later round by the new one" if old == new else f"by the new {new}"
        return f"a source tuple is processed by the old {old} and {again}."
    where = f"by the old {old}, the other one by the new {new}"
    return f"{example.parts_at} makes two tuples of one, and one is processed {where}."


def conclusion(example: CounterExample) -> str:
    """Why the events are not serializable."""
    tuple_, _ = example.cycle
    old, new = example.cycle_at
    made = f" ({COPIES[1]} and {COPIES[2]} are both made of {tuple_})" if example.parts_at else ""
    return (
        f"So {tuple_} precedes the change at {old}, and the change precedes {tuple_} at {new}{made}: no serial order "
        "has this result."
    )


def _moments(example: CounterExample) -> Iterator[tuple[int, str]]:
    """The number of steps up to each frame, and its words; operators that a tuple merely passes share a frame."""
    steps = list(enumerate(example.steps, start=1))
    for _, group in groupby(steps, key=lambda step: (step[1].kind, step[1].copy) if _is_pass(step[1]) else step[0]):
        members = list(group)
        yield members[-1][0], _words(example, [step for _, step in members])


def _is_pass(step: ExampleStep) -> bool:
    return step.kind is StepKind.PASSED


def _words(example: CounterExample, steps: list[ExampleStep]) -> str:
    last = steps[-1]
    match last.kind:
        case StepKind.PASSED:
            parts = f", which makes two tuples of it, {COPIES[1]} and {COPIES[2]}"
            made = parts if last.operator == example.parts_at and not last.copy else ""
            return f"{COPIES[last.copy]} passes {' → '.join(step.operator for step in steps)}{made}."
        case StepKind.SWITCHED:
            return f"The message reaches {last.operator}, which switches to its new function."
        case kind:
            return f"{last.operator} processes {COPIES[last.copy]} with its {kind} function."


_COLUMNS = (
    *map(TextColumn, ("Change", "Old version at", "New version at")), TextColumn("Source tuples", number=True),
    TextColumn("One of them"),
)  # fmt: skip


def verdict_parts(
    verdict: Verdict, labels: Mapping[str, str], graph: Graph, naive: Mapping[str, Collection[str]] = {}
) -> Markup:
    """The verdict and its proof; ``naive`` has the targets of changes by naive FCM, for a counter-example."""
    groups = [] if verdict.serializable else grouped(verdict)
    rows = [
        (f"{change}: {labels[change]}" if change in labels else change, old, new, f"{count:,}", example)
        for change, old, new, count, example in groups[:MOST_EXAMPLES]
    ]
    astray = [] if verdict.serializable else others(verdict)
    proof = cycle(verdict) if verdict.cycle else ""
    drawings = verdict_svgs(verdict, labels, graph) if verdict.cycle else []
    guilty = next((name for name in verdict.cycle if name in naive), None)
    found = None if guilty is None else counter_example(graph, naive[guilty])
    example = "" if found is None else example_parts(graph, found)
    more = len(groups) - MOST_EXAMPLES
    words = sentence(verdict)
    return part("verdict", words, verdict.serializable, _COLUMNS, rows, more, astray, proof, drawings, guilty, example)


def verdict_svgs(verdict: Verdict, labels: Mapping[str, str], graph: Graph) -> list[tuple[str, str]]:
    """The pictures of the proof with captions: what each source tuple of the cycle met, and the cycle."""
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
    if astray := {lost.transaction for lost in (*verdict.lost, *verdict.doubled)}:
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
        f"{stale.operator}[{stale.worker}] recorded the switch to {stale.update or 'nothing'} and ran {stale.tuples:,} "
        f"tuples with {f'the function of {stale.ran}' if stale.ran else 'its first function'}"
        for stale in verdict.stale
    ]
    found += [
        f"{described(lost.transaction, verdict)}: {lost.account}"
        for lost in (*verdict.lost, *verdict.doubled)[:MOST_EXAMPLES]
    ]
    return found[:MOST_EXAMPLES]


def grouped(verdict: Verdict) -> list[tuple[str, str, str, int, str]]:
    """Mixed transactions by change and by where they met old and new: their number and one of them, most first."""
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


def named(transaction: str | int, verdict: Verdict) -> str:
    """A source tuple by its number in its source, if a run knows it, else in its split; an update by its id.

    >>> from fries_nb.protocol.trace import SourceRow
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
