r"""A counter-example to naive FCM in words and pictures, to be stepped through.

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

import re
from collections.abc import Iterator
from itertools import groupby

from fries_nb.dataflow.graph import Graph
from fries_nb.planning.counter_example import CounterExample, ExampleStep, StepKind
from fries_nb.report.cycle_picture import CycleNode, cycle_svg
from fries_nb.report.markup import Html, inline, joined, tag
from fries_nb.report.stepper import stepper
from fries_nb.report.version_pictures import COPIES, example_met_svg, example_svg

_STYLE = re.compile("<style>.*?</style>", re.DOTALL)


def example_parts(graph: Graph, example: CounterExample) -> Html:
    """The counter-example as frames: one for each event, and one with what the tuple met and the precedence cycle."""
    moments = _moments(example)
    met, cycle = end_svgs(graph, example)
    pictures = [*(example_svg(graph, example, number) for number, _ in moments), met]
    pictures[1:] = [_STYLE.sub("", drawing) for drawing in pictures[1:]]  # the style of the first one applies to all
    lines = [*(words for _, words in moments), conclusion(example)]
    frames = [joined([inline(drawing), tag("p", words)]) for drawing, words in zip(pictures, lines, strict=True)]
    frames[-1] = joined([frames[-1], inline(cycle)])
    lead = tag("p", "A counter-example to naive FCM, step by step:")
    return joined([lead, stepper("Steps of the counter-example", frames)])


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


def _moments(example: CounterExample) -> list[tuple[int, str]]:
    """The number of steps up to each frame, and its words; operators that a tuple merely passes share a frame."""
    return list(_grouped(example))


def _grouped(example: CounterExample) -> Iterator[tuple[int, str]]:
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
