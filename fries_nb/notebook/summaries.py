"""The text output of cells: one or two lines of result, and the next step.

>>> from fries_nb.dataflow.graph import Operator
>>> print(path_lines(Graph("f", tuple(map(Operator, "abcd")), (Edge("a", "b"), Edge("b", "c"), Edge("b", "d")))))
['a -> b', 'b -> c', 'b -> d']
"""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fries_nb.changes.change import Change
from fries_nb.commands.plan import as_dict, in_words
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Edge, Graph
from fries_nb.planning.counter_example import counter_example
from fries_nb.planning.schedulers import Plan, foretold
from fries_nb.protocol.topology import workers_of
from fries_nb.report.audit_section import example_lines
from fries_nb.report.change_rows import parts_ms
from fries_nb.report.dag import dag_svg
from fries_nb.report.markup import part
from fries_nb.report.plan_section import plan_drawing, plan_parts
from fries_nb.running.run_end import UncommittedCheck
from fries_nb.running.run_requeues import Requeue
from fries_nb.words import milliseconds

_OF_THE_COMMAND = " (all of them: --json)"
_LINES = 10


@dataclass(frozen=True, repr=False)
class Summary:
    """The result of a cell as text and by MIME type, and the commands that are likely next, if any."""

    text: str
    then: str = ""
    rich: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.text}\nNext: {self.then}" if self.then else self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), **self.rich}


def of_definition(graph: Graph, replaced: str) -> Summary:
    """The summary of a declared dataflow; ``replaced`` says what happened to its earlier run, if there was one."""
    keyed = [f"{operator.name} by {', '.join(operator.key)}" for operator in graph.operators if operator.key]
    facts = f"{len(graph.operators)} operators" + (f"; keyed: {'; '.join(keyed)}" if keyed else "")
    head = f"Dataflow {graph.name!r}" + (f" ({replaced})" if replaced else "")
    lines = path_lines(graph)
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"... and {len(lines) - _LINES} more paths"]
    text = f"{head}: {lines[0]}" if len(lines) == 1 else f"{head}:\n" + textwrap.indent("\n".join(lines), "  ")
    text, then, picture = f"{text}\n{facts}", f"%fries_run {quoted(graph.name)} --hosts 2 --workers 2", dag_svg(graph)
    # Words and picture are one output, since JupyterLab shows only the richest of several.
    shown = part("definition", picture, text, then)
    return Summary(text, then, {"text/html": shown, "image/svg+xml": picture})


def of_start(
    graph: Graph, hosts: int, workers: int | None, audit: bool, variable: str, replaced: str = "", defaults: str = ""
) -> Summary:
    """The summary of a run that was started; ``workers`` is ``None`` if it is resumed with as many as before."""
    parallel = "workers as before" if workers is None else f"{workers} {_plural('worker', workers)} an operator"
    size = f"{hosts} {_plural('host', hosts)}, {parallel}"
    names = changeable(graph)
    change = f"%fries_reconfigure {quoted(names[0])}=new_function, " if names else ""
    starts = "resumes from its checkpoint" if workers is None else "starts"
    return Summary(
        f"{graph.name!r} {starts} on Spark: {size}{', audited' if audit else ''}; `{variable}` holds the run"
        + "".join(f"\n{line}" for line in (defaults, replaced) if line),
        f"%fries_dashboard, {change}{variable}.output(), %fries_stop",
    )


def of_defaults(recovers: bool, on_error: str) -> str:
    """The defaults of a run in a notebook, in one line, with what turns them off; empty if all are off.

    >>> of_defaults(True, "pause")
    'by default: checkpoints until the run ends (--no-checkpoint: none), operators pause on failure (--on-error fail)'
    """
    kept = "checkpoints until the run ends (--no-checkpoint: none)" if recovers else ""
    pauses = "operators pause on failure (--on-error fail)" if on_error == "pause" else ""
    parts = ", ".join(filter(None, [kept, pauses]))
    return f"by default: {parts}" if parts else ""


def of_requeue(requeue: Requeue, then: str) -> Summary:
    """The summary of a requeue, which may be under way."""
    if not requeue.rows:
        return Summary(f"no open dead letter of {requeue.operator} was chosen; nothing goes back", then)
    return Summary(f"{requeue}" if requeue.done else f"{requeue}; the others follow", then)


def of_end(flow: str, state: str, missing: UncommittedCheck | None, resumable: bool = False) -> Summary:
    """The summary of a run that has ended, with the tuples that its output lacks, and how to go on."""
    if missing is not None:
        tail = ", and " + missing.sentence(f"%fries_stop --of {quoted(flow)} without --now would have committed them")
    else:
        tail = "; what it has read is in its output"
    again = f"%fries_run {quoted(flow)}{' --resume --checkpoint PATH' if resumable else ''}"
    return Summary(f"{flow!r} has {state}{tail}", f"run.output(), {again}")


def of_plan(graph: Graph, plan: Plan) -> Summary:
    """The summary of a plan; a run's plan includes the predicted delay."""
    words = in_words(as_dict(graph, plan.covering)).replace(_OF_THE_COMMAND, "")
    assignments = " ".join(f"{quoted(name)}=new_function" for name in changeable(graph) if name in plan.targets)
    scheduler = "" if plan.scheduler == "fries" else f" --scheduler {plan.scheduler}"
    then = f"%fries_reconfigure {assignments}{scheduler}" if assignments else ""
    sends, example = messages(graph, plan), counter_example(graph, plan.targets)
    steps = [] if example is None else example_lines(example)
    shown = part("planned", plan_parts(graph, plan, [sends]), words, then)
    return Summary(
        "\n".join([words, *steps, sends, *foretold(plan)]),
        then,
        {"text/html": shown, "image/svg+xml": plan_drawing(graph, plan)},
    )


def messages(graph: Graph, plan: Plan) -> str:
    """The fast control messages of each stage, and the number of workers that receive them."""

    def workers(name: str) -> int:
        # A later region of a run may begin with a source named after an edge, with one worker; it is not in the graph.
        return len(workers_of(graph, name)) if name in graph else 1

    stages = [
        "; ".join(f"FCM to {send.operator} ({workers(send.operator)})" for send in stage.sends) for stage in plan.stages
    ]
    return f"{plan.scheduler} sends (to so many workers): " + ", then ".join(stages)


def of_change(result: Outcome) -> Summary:
    """The summary of a change that is done; the second line lists the operators that changed together."""
    parts = {name: ms for name, ms in parts_ms(result).items() if name in ("prepare", "commit") or not result.waited_ms}
    took = f"{milliseconds(result.delay_ms)} ({', '.join(f'{name} {milliseconds(ms)}' for name, ms in parts.items())})"
    if result.waited_ms:
        took += f" from when tuples flowed, {milliseconds(result.waited_ms)} after the request"
    components = "; ".join(" -> ".join(component) for component in result.components)
    workers = len(result.per_worker)
    guarded = f"\nguarded {result.guard} from then on" if result.guard else ""  # true however long it is read
    return Summary(
        f"done by {result.scheduler} in {took}, {workers} {_plural('worker', workers)} switched\n"
        f"{len(result.components)} {_plural('component', len(result.components))}: {components}{guarded}"
    )


def of_change_under_way(change: Change, waited_s: float, variable: str) -> Summary:
    """The summary of a change that had not ended when its cell did."""
    targets = ", ".join(sorted(change.plan.targets))
    text = f"{targets}: under way by {change.plan.scheduler}, not over after {waited_s:g} s"
    return Summary(text, f"{variable}.result(timeout=60)")


def of_change_that_waits(change: Change, blocked_by: Mapping[str, str], variable: str) -> Summary:
    """The summary of a change that is blocked by paused operators, with their errors."""
    first, why = next(iter(blocked_by.items()))
    text = f"{', '.join(sorted(change.plan.targets))}: waits, since {why}"
    return Summary(text, f"%fries_reconfigure {quoted(first)}=new_function -o fix, {variable}.result(timeout=60)")


def path_lines(graph: Graph) -> list[str]:
    """The graph as paths that contain each edge once; a path ends where streams fork or join."""

    def passes_on(name: str) -> bool:
        return len(graph.in_edges(name)) == len(graph.out_edges(name)) == 1

    def path(edge: Edge) -> str:
        names = [edge.source, edge.to]
        while passes_on(names[-1]):
            names.append(graph.out_edges(names[-1])[0].to)
        return " -> ".join(names)

    return [path(edge) for edge in graph.edges if not passes_on(edge.source)]


def changeable(graph: Graph) -> list[str]:
    """The operators that run a user function or join a table."""
    return [operator.name for operator in graph.operators if operator.traits.is_changeable]


def quoted(name: str) -> str:
    """A name as it has to be typed on a magic's line.

    >>> print(quoted("FM"), quoted("my operator"), quoted('say "hi"'), quoted("class"))
    FM "my operator" 'say "hi"' "class"
    """
    if name.isidentifier() and not keyword.iskeyword(name):
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
