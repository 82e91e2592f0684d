"""Tab completion behind the magics: names of dataflows, runs, operators, schedulers and variables, and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, completion_matcher

from fries_nb.dataflow.constraints import OnViolation
from fries_nb.dataflow.lighter import Lighter
from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import options
from fries_nb.notebook.summaries import changeable, quoted
from fries_nb.scheduling import SCHEDULERS


def completion(known: Registry, magics: Mapping[str, Any]) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """A matcher for IPython's completer, which takes precedence behind a magic of fries_nb, except in expressions.

    Args:
        known: the notebook's flows and runs.
        magics: the magics of fries_nb by name.

    Returns:
        A matcher for ``Completer.custom_matchers``.
    """

    @completion_matcher(identifier="fries_names", api_version=2)
    def fries_names(context: CompletionContext) -> SimpleMatcherResult:
        line, token = context.text_until_cursor.lstrip(), context.token
        magic = magics.get(line.partition(" ")[0].lstrip("%")) if line.startswith("%") else None
        if magic is None:
            return SimpleMatcherResult(completions=[])
        rest = line.partition(" ")[2]
        before = rest[: len(rest) - len(token)]
        found = [option for option in _offered(magic, before.split(), known) if option.startswith(token)]
        # If a matcher finds nothing, IPython completes Python's names; so the typed text itself is returned instead.
        alone = [*found, *([] if found or not token else [token])]
        expression = "=" in before
        return SimpleMatcherResult(
            completions=[SimpleCompletion(option) for option in (found if expression else alone)],
            suppress=not expression,
        )

    return fries_names  # type: ignore[no-any-return]


def _offered(magic: Any, before: Sequence[str], known: Registry) -> list[str]:
    """The possible continuations of a magic's line."""
    if before and before[-1] == "--scheduler":
        return list(SCHEDULERS)
    if before and before[-1] == "--on-violation":
        return list(OnViolation)
    if before and before[-1] == "--lighter":
        return known.variables_of(Lighter)
    if before and before[-1] == "--of":
        return [quoted(flow) for flow in dict.fromkeys([*known.flows(), *(run.graph.name for run in known.runs())])]
    return [*_names(magic.__name__, known), *options(magic)]


def _names(magic: str, known: Registry) -> list[str]:
    live = known.live()
    if magic == "fries_run":
        return [quoted(name) for name in known.flows()]
    if magic == "fries_reconfigure":
        return [f"{quoted(name)}=" for run in live for name in changeable(run.graph)]
    if magic in ("fries_plan", "fries_constrain"):
        graphs = [run.graph for run in live] or [flow.graph() for flow in known.flows().values()]
        return [quoted(name) for graph in graphs for name in (changeable(graph) if magic == "fries_plan" else graph)]
    if magic == "fries_frontier":
        return [quoted(name) for run in live for name in run.graph if not run.graph.by_name[name].traits.is_source]
    if magic == "fries_rescale":
        return [str(number) for run in live for number in _other_hosts(len(run.topology().hosts))]
    if magic in ("fries_stop", "fries_rollback", "fries_audit", "fries_loops"):
        ended = magic in ("fries_audit", "fries_loops")  # of which they tell as well
        return [quoted(run.graph.name) for run in (known.runs() if ended else live)]
    return []


def _other_hosts(present: int) -> tuple[int, ...]:
    """The numbers of hosts next to the present one."""
    return tuple(number for number in (present + 1, present - 1) if number)
