"""What a cell shows: a line or two, and what to do next.

>>> from fries_nb.dataflow.graph import Operator
>>> print(path_lines(Graph("f", tuple(map(Operator, "abcd")), (Edge("a", "b"), Edge("b", "c"), Edge("b", "d")))))
['a -> b', 'b -> c', 'b -> d']
"""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fries_nb.changes import Change, ChangeResult
from fries_nb.commands.plan import as_dict, in_words
from fries_nb.dataflow.graph import Edge, Graph, Kind
from fries_nb.notebook.static_pictures import plan_svg
from fries_nb.report.markup import Html, listed, tag
from fries_nb.report.plan_section import foretold
from fries_nb.report.plan_section import in_words as sentences
from fries_nb.running.uncommitted import UncommittedCheck
from fries_nb.scheduling import Plan
from fries_nb.topology.expansion import workers_of

_OF_THE_COMMAND = " (all of them: --json)"
_LINES = 10
_CHANGEABLE = (Kind.MAP, Kind.FLAT_MAP, Kind.FILTER, Kind.SPLIT, Kind.JOIN)


@dataclass(frozen=True, repr=False)
class Summary:
    """What a cell shows as its result, and below it what to do next.

    Attributes:
        rich: the same for those who see more than text, by MIME type.
    """

    text: str
    then: str = ""
    rich: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.text}\nNext: {self.then}" if self.then else self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), **self.rich}


def of_definition(graph: Graph, replaced: str) -> Summary:
    """A dataflow that was declared; ``replaced`` says what became of its old run, if there was one."""
    keyed = [f"{operator.name} by {', '.join(operator.key)}" for operator in graph.operators if operator.key]
    facts = f"{len(graph.operators)} operators" + (f"; keyed: {'; '.join(keyed)}" if keyed else "")
    head = f"Dataflow {graph.name!r}" + (f" ({replaced})" if replaced else "")
    lines = path_lines(graph)
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"... and {len(lines) - _LINES} more paths"]
    text = f"{head}: {lines[0]}" if len(lines) == 1 else f"{head}:\n" + textwrap.indent("\n".join(lines), "  ")
    return Summary(f"{text}\n{facts}", f"%fries_run {quoted(graph.name)} --hosts 2 --workers 2")


def of_start(
    graph: Graph, hosts: int, workers: int | None, audit: bool, variable: str, replaced: str = ""
) -> Summary:
    """A run that was started; ``workers`` is ``None`` where it goes on with as many as it had."""
    parallel = "workers as before" if workers is None else f"{workers} {_plural('worker', workers)} an operator"
    size = f"{hosts} {_plural('host', hosts)}, {parallel}"
    names = changeable(graph)
    change = f"%fries_reconfigure {quoted(names[0])}=new_function, " if names else ""
    starts = "goes on from its checkpoint" if workers is None else "starts"
    return Summary(
        f"{graph.name!r} {starts} on Spark: {size}{', audited' if audit else ''}; `{variable}` holds the run"
        + (f"\n{replaced}" if replaced else ""),
        f"{change}{variable}.metrics(), {variable}.output(), %fries_stop",
    )


def of_end(flow: str, state: str, missing: UncommittedCheck | None) -> Summary:
    """A run that has ended, and what its output lacks."""
    if missing is not None:
        tail = ", and " + missing.sentence(f"%fries_stop {quoted(flow)} without --now would have committed them")
    else:
        tail = "; what it has read is in its output"
    return Summary(f"{flow!r} has {state}{tail}", f"run.output(), %fries_run {quoted(flow)}")


def of_plan(graph: Graph, plan: Plan) -> Summary:
    """A plan that nobody carries out yet; of a run's plan also how long it would take."""
    words = in_words(as_dict(graph, plan.covering)).replace(_OF_THE_COMMAND, "")
    assignments = " ".join(f"{quoted(name)}=new_function" for name in changeable(graph) if name in plan.targets)
    scheduler = "" if plan.scheduler == "fries" else f" --scheduler {plan.scheduler}"
    then = f"%fries_reconfigure {assignments}{scheduler}" if assignments else ""
    picture, sends = plan_svg(graph, plan), messages(graph, plan)
    return Summary(
        "\n".join([words, sends, *foretold(plan)]),
        then,
        {"text/html": _as_html(picture, [*sentences(graph, plan), sends], words, then), "image/svg+xml": picture},
    )


def messages(graph: Graph, plan: Plan) -> str:
    """Who is told, stage by stage."""

    def workers(name: str) -> int:
        # A run's later region may begin with what an edge has kept: one worker replays it, by the name of that edge.
        return len(workers_of(graph, name)) if name in graph else 1

    stages = [
        "; ".join(f"FCM to {send.operator} ({workers(send.operator)})" for send in stage.sends) for stage in plan.stages
    ]
    return f"{plan.scheduler} sends (to so many workers): " + ", then ".join(stages)


def of_change(result: ChangeResult) -> Summary:
    """A change that was done; the second line says which operators changed together."""
    took = f"{result.delay_ms:,.1f} ms (prepare {result.prepare_ms:,.1f}, commit {result.commit_ms:,.1f})"
    if result.waited_ms:
        took += f" from when tuples flowed, {result.waited_ms / 1000:,.1f} s after the request"
    parts = "; ".join(" -> ".join(component) for component in result.components)
    workers = len(result.per_worker)
    guarded = f"\nunder guard {result.guard}" if result.guard else ""
    return Summary(
        f"done by {result.scheduler} in {took}, {workers} {_plural('worker', workers)} switched\n"
        f"{len(result.components)} {_plural('component', len(result.components))}: {parts}{guarded}"
    )


def of_change_under_way(change: Change, waited_s: float, variable: str) -> Summary:
    """A change that was not over when the cell was."""
    targets = ", ".join(sorted(change.plan.targets))
    text = f"{targets}: under way by {change.plan.scheduler}, not over after {waited_s:g} s"
    return Summary(text, f"{variable}.result(timeout=60)")


def of_change_that_waits(change: Change, stands: Mapping[str, str], variable: str) -> Summary:
    """A change that cannot go on before operators that stand in front of a tuple are fixed; ``stands`` says why."""
    first, why = next(iter(stands.items()))
    text = f"{', '.join(sorted(change.plan.targets))}: waits, since {why}"
    return Summary(text, f"%fries_reconfigure {quoted(first)}=new_function -o fix, {variable}.result(timeout=60)")


def path_lines(graph: Graph) -> list[str]:
    """The graph as paths, each edge once; a path ends where streams part or meet."""

    def passes_on(name: str) -> bool:
        return len(graph.in_edges(name)) == len(graph.out_edges(name)) == 1

    def path(edge: Edge) -> str:
        names = [edge.source, edge.to]
        while passes_on(names[-1]):
            names.append(graph.out_edges(names[-1])[0].to)
        return " -> ".join(names)

    return [path(edge) for edge in graph.edges if not passes_on(edge.source)]


def changeable(graph: Graph) -> list[str]:
    """The operators that run a function of the user's."""
    return [operator.name for operator in graph.operators if operator.kind in _CHANGEABLE]


def quoted(name: str) -> str:
    """A name as it is typed on a magic's line.

    >>> print(quoted("FM"), quoted("my operator"), quoted('say "hi"'), quoted("class"))
    FM "my operator" 'say "hi"' "class"
    """
    if name.isidentifier() and not keyword.iskeyword(name):
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'


def _as_html(picture: str, lines: Sequence[str], details: str, then: str) -> str:
    # Where a notebook is not trusted, letters are all that is left of the picture: blanks keep them apart.
    apart = picture.replace("</title>", "</title> ").replace("</text>", "</text> ")
    parts = [Html(apart), listed(lines), tag("details", tag("summary", "Details"), tag("pre", details))]
    if then:
        parts.append(tag("p", "Next: ", tag("code", then)))
    return tag("div", *parts)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
