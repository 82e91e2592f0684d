"""The panel of the dataflow: rates, queues, loads, loops, what runs now, and the plan or the replay of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fries_nb.controller.metrics import MetricsSnapshot
from fries_nb.notebook.operator_panel import chain_texts, clock_time, share
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.static_pictures import Shown, last_change
from fries_nb.notebook.widgets import DagView
from fries_nb.run import Run
from fries_nb.running.function_versions import RunningFunction
from fries_nb.scheduling import Plan
from fries_nb.topology.running_chains import ChainedOperators

BUSY_SHARE = 0.9
"""Share of busy time from which on an operator for which tuples wait is marked."""


class DagPanel:
    """Shows moments of a run in the picture of its dataflow.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.view = DagView(run.graph)
        self._last: tuple[int, str] = (0, "")
        self._drawn: Shown | None = None  # of the last change; not if a plan or a replay is shown in its place
        self._measured: MetricsSnapshot | None = None
        self._running: tuple[Mapping[str, RunningFunction], Sequence[ChainedOperators]] = ({}, ())

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run, and the last change since it was requested."""
        if moment.flowing is not self._measured:
            self.view.show_metrics(moment.flowing)
            self._measured = moment.flowing
        self.view.show_rounds({loop.name: loop.rounds for loop in moment.loops})
        running = moment.run.functions(), moment.run.chains()
        if running != self._running:
            self.view.show_facts(_facts(*running))
            self._running = running
        self.view.show_troubles(troubles(moment))
        count = len(moment.changes)
        last = count, moment.changes[-1].result(0).outcome if count and moment.changes[-1].done else ""
        if last != self._last:
            is_new, self._last = count != self._last[0], last
            if is_new or self.view.shown is self._drawn:
                self.show_plan(None)

    def show_plan(self, plan: Plan | None) -> None:
        """Draw a plan that the user requested; with ``None`` the last change, if there is one that had an effect."""
        if plan is None:
            self._drawn = last_change(self._run)
            self.view.show(self._drawn)
        else:
            self.view.show_plan(plan)


def troubles(moment: RunMoment) -> dict[str, tuple[str, str]]:
    """Operator to what holds up the others: it is always busy while tuples wait, it is paused, or the run has failed.

    An operator that waits for a service inside its function is busy.
    """
    metrics = moment.flowing.operators
    hurting = {name for name, one in metrics.items() if one.busy >= BUSY_SHARE and one.queued}
    found = {name: ("busy", f"busy {share(metrics[name].busy)}") for name in hurting}
    found |= dict.fromkeys(() if moment.over else moment.run.paused, ("paused", "paused"))
    if moment.over and moment.run.failed_at:
        found[moment.run.failed_at] = ("failed", "failed")
    return found


def _facts(functions: Mapping[str, RunningFunction], chains: Sequence[ChainedOperators]) -> dict[str, str]:
    """Operator to what it runs, and to the chain whose busy time is shown at it."""
    facts = {name: _running_line(one) for name, one in functions.items()}
    for name, chain in chain_texts(chains).items():
        facts[name] = "\n".join(filter(None, [facts.get(name, ""), f"busy as a whole: {chain}"]))
    return facts


def _running_line(one: RunningFunction) -> str:
    installed = f"change {one.version}" if one.version else "initial"
    return f"runs {one.function} ({installed}) since {clock_time(one.since_s)}"
