"""What a cell shows of a plan: its text, and the dataflow with the parts of the plan in it.

Front ends choose one kind of a bundle, so the HTML has both: the picture inline, for its tooltips, and the words.
"""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.commands.plan import as_dict, in_words
from fries_nb.dataflow.graph import Graph
from fries_nb.notebook.static import plan_svg
from fries_nb.notebook.summaries import Summary, changeable, quoted
from fries_nb.report.markup import Html, listed, tag
from fries_nb.report.plan_section import foretold
from fries_nb.report.plan_section import in_words as sentences
from fries_nb.scheduling import Plan
from fries_nb.topology.expansion import workers_of

_OF_THE_COMMAND = " (all of them: --json)"


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


def _as_html(picture: str, lines: Sequence[str], details: str, then: str) -> str:
    # Where a notebook is not trusted, letters are all that is left of the picture: blanks keep them apart.
    apart = picture.replace("</title>", "</title> ").replace("</text>", "</text> ")
    parts = [Html(apart), listed(lines), tag("details", tag("summary", "Details"), tag("pre", details))]
    if then:
        parts.append(tag("p", "Next: ", tag("code", then)))
    return tag("div", *parts)


def messages(graph: Graph, plan: Plan) -> str:
    """Who is told, stage by stage."""

    def workers(name: str) -> int:
        # A run's later region may begin with what an edge has kept: one worker replays it, by the name of that edge.
        return len(workers_of(graph, name)) if name in graph else 1

    stages = [
        "; ".join(f"FCM to {send.operator} ({workers(send.operator)})" for send in stage.sends) for stage in plan.stages
    ]
    return f"{plan.scheduler} sends (to so many workers): " + ", then ".join(stages)
