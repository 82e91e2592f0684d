"""The panel of the dataflow: rates, queues, loads, loops, what runs now, and the plan or the replay of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fries_nb.controller.metrics import MetricsSnapshot
from fries_nb.notebook.operator_panel import chain_texts, clock_time
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.widgets import DagView
from fries_nb.run import Run
from fries_nb.running.function_versions import RunningFunction
from fries_nb.scheduling import Plan
from fries_nb.topology.running_chains import ChainedOperators


class DagPanel:
    """Shows moments of a run in the picture of its dataflow.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.view = DagView(run.graph)
        self._changes_shown = 0
        self._measured: MetricsSnapshot | None = None
        self._running: tuple[Mapping[str, RunningFunction], list[str], Sequence[ChainedOperators]] = ({}, [], ())

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run, and the plan of a change that was requested since the last one."""
        if moment.flowing is not self._measured:
            self.view.show_metrics(moment.flowing)
            self._measured = moment.flowing
        self.view.show_rounds({loop.name: loop.rounds for loop in moment.loops})
        running = moment.run.functions(), sorted(moment.run.paused), moment.run.chains()
        if running != self._running:
            functions, paused, chains = running
            self.view.show_facts(_facts(functions, chains), paused)
            self._running = running
        if len(moment.changes) > self._changes_shown:
            self._changes_shown = len(moment.changes)
            self.show_plan(None)

    def show_plan(self, plan: Plan | None) -> None:
        """Draw a plan that the user requested; with ``None`` that of the last change, if there is one."""
        changes = self._run.changes
        if plan is not None:
            self.view.show_plan(plan)
        elif changes:
            self.view.show_plan(changes[-1].plan)
        else:
            self.view.clear()


def _facts(functions: Mapping[str, RunningFunction], chains: Sequence[ChainedOperators]) -> dict[str, str]:
    """Operator to what it runs, and to the chain whose busy time is shown at it."""
    facts = {name: _running_line(one) for name, one in functions.items()}
    for name, chain in chain_texts(chains).items():
        facts[name] = "\n".join(filter(None, [facts.get(name, ""), f"busy as a whole: {chain}"]))
    return facts


def _running_line(one: RunningFunction) -> str:
    installed = f"change {one.version}" if one.version else "initial"
    return f"runs {one.function} ({installed}) since {clock_time(one.since_s)}"
