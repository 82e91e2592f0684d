"""Completion behind our magics: names of flows, runs, operators and schedulers, and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.completer import IPCompleter

from fries_nb.notebook.known import Known
from fries_nb.notebook.options import options
from fries_nb.notebook.summaries import changeable, quoted
from fries_nb.scheduling import SCHEDULERS


def completion(completer: IPCompleter, known: Known, magics: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """One of the completer's custom matchers.

    Args:
        completer: whose line it is asked about.
        magics: ours, by name.
    """

    def fries_names(text: str) -> list[str]:
        line = completer.text_until_cursor
        name, _, rest = line.lstrip().partition(" ")
        magic = magics.get(name.lstrip("%"))
        if magic is None or not line.lstrip().startswith("%"):
            return []
        before = rest[: len(rest) - len(text)].split()
        if before and before[-1] == "--scheduler":
            found = list(SCHEDULERS)
        elif before and before[-1] == "--of":
            found = [
                quoted(flow) for flow in dict.fromkeys([*known.flows(), *(run.graph.name for run in known.runs())])
            ]
        else:
            found = [*_names(name.lstrip("%"), known), *options(magic)]
        return [option for option in found if option.startswith(text)]

    return fries_names


def _names(magic: str, known: Known) -> list[str]:
    live = known.live()
    if magic == "fries_run":
        return [quoted(name) for name in known.flows()]
    if magic == "fries_reconfigure":
        return [f"{quoted(name)}=" for run in live for name in changeable(run.graph)]
    if magic == "fries_plan":
        graphs = [run.graph for run in live] or [flow.graph() for flow in known.flows().values()]
        return [quoted(name) for graph in graphs for name in changeable(graph)]
    if magic in ("fries_stop", "fries_rollback", "fries_audit"):
        return [quoted(run.graph.name) for run in (known.runs() if magic == "fries_audit" else live)]
    return []
