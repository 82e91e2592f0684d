"""Below the canvas: what is known of the selected operators, and in tabs what can be seen of them and done with them.

The tabs *Function*, *Rows* and *State* are of the selected operator, *Changes* and *Constraints* of the whole run; the
last one, *Details*, is a page for the author of a dataflow. A click on an operator shows a tab that is of operators.

Of the tabs only the one that is shown is updated, and with each reading of measurements one more in its turn: so a tab
is filled even if the page could not tell that it is shown. All of them have the end of the run.

>>> from fries_nb.telemetry.metrics import PlacedWorker
>>> slowest([PlacedWorker("FM", index, 0, True, 512, 90.0, queued) for index, queued in enumerate((12, 5_200))])
'worker 1 is behind: 5,200 of 5,212 rows wait for it'
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence

import ipywidgets

from fries_nb.notebook.panels import PanelFrame, RunMoment, running_line, share
from fries_nb.notebook.widgets import words_html
from fries_nb.report.dag import operator_title
from fries_nb.telemetry.metrics import HostLoad, PlacedWorker

FUNCTION, ROWS, STATE = "Function", "Rows", "State"
"""The tabs that are of the selected operator."""
MANY = 100
"""Number of rows that wait from which on a worker may be behind the others."""
BEHIND = 2.0
"""Times the mean of the other workers of its operator that wait for one that is behind."""
_NAMED = 4
"""Number of hosts whose load is told one by one."""
_FUNCTION_CHARS, _ROW_CHARS = 40, 300


class Drawer(ipywidgets.VBox):
    """The lines on the selected operators, and ``tabs``, each of which is a column of frames.

    Args:
        tabs: the title of each tab, in order, to the frames in it.
        first: what stands above the tabs, whatever is selected.
        shows_values: whether the page is that of the author, and shows the row on which an operator is paused.
    """

    def __init__(
        self, tabs: Mapping[str, Sequence[PanelFrame]], first: Sequence[ipywidgets.Widget], shows_values: bool
    ) -> None:
        self._shows_values = shows_values
        self._selected: tuple[str, ...] = ()
        self._moment: RunMoment | None = None
        self._tabs = list(tabs.values())
        self._of_operators = [place for place, title in enumerate(tabs) if title in (FUNCTION, ROWS, STATE)]
        self._turns = itertools.cycle(self._tabs)
        self.lines = ipywidgets.HTML()
        self._selection = PanelFrame("The selected operators", self.lines, self._tell)
        boxes = [frames[0] if len(frames) == 1 else ipywidgets.VBox(frames) for frames in self._tabs]
        self.tabs = ipywidgets.Tab(boxes, titles=list(tabs), selected_index=0)
        self.tabs.observe(lambda change: self._show(change["new"]), names="selected_index")
        super().__init__([*first, self._selection, self.tabs])
        self.add_class("fries-drawer")  # to which the picture scrolls

    @property
    def frames(self) -> list[PanelFrame]:
        """All frames."""
        return [self._selection, *(frame for frames in self._tabs for frame in frames)]

    def choose(self, operators: Sequence[str]) -> None:
        """Follow the selection in the picture."""
        added = set(operators).difference(self._selected)
        self._selected = tuple(operators)
        if added and self.tabs.selected_index not in self._of_operators:
            self.tabs.selected_index = self._of_operators[0]
        if self._moment is not None:
            self._selection.update(self._moment)

    def update(self, moment: RunMoment, measures: bool) -> None:
        """Show a moment of the run, which has new measurements if ``measures``."""
        self._moment = moment
        self._selection.update(moment)
        due = {self.tabs.selected_index}
        turn = next(self._turns) if measures else None
        for place, frames in enumerate(self._tabs):
            for frame in frames:
                if moment.over or frame.while_hidden or frames is turn or place in due:
                    frame.update(moment)

    def _show(self, place: int | None) -> None:
        """Show what a tab has missed while it was hidden."""
        if place is not None and self._moment is not None:
            for frame in self._tabs[place]:
                frame.update(self._moment)

    def _tell(self, moment: RunMoment) -> None:
        known = [name for name in self._selected if name in moment.run.graph]
        text = "".join(f"<div>{operator_line(moment, name, self._shows_values)}</div>" for name in known)
        if text != self.lines.value:
            self.lines.value = text


def operator_line(moment: RunMoment, name: str, shows_values: bool) -> str:
    """What an operator is, what it runs, how it is doing, and what is wrong with it, as HTML."""
    run = moment.run
    _, _, kind = operator_title(run.graph.operator(name)).partition(": ")
    running, measured = run.functions().get(name), moment.flowing.operators.get(name)
    facts = [kind, running_line(running, _FUNCTION_CHARS) if running is not None else ""]
    if measured is not None:
        facts.append(f"busy {share(measured.busy)}, back-pressured {share(measured.blocked)}")
        facts.append(f"{measured.queued:,} wait")
        facts.append(slowest(worker for worker in moment.workers if worker.operator == name))
    failed = moment.last.operators[name].failed if name in moment.last.operators else 0
    facts.append(f'{failed:,} failed: run.dead_letters("{name}")' if failed else "")
    line = f"<b>{html.escape(name)}</b> {html.escape(' · '.join(filter(None, facts)))}"
    for one in () if moment.over else run.paused.get(name, ()):
        row = one.row if len(one.row) <= _ROW_CHARS else f"{one.row[:_ROW_CHARS]}..."
        where = f" on {row}: {one.error}" if shows_values else " on a row"
        words = f"worker {one.worker.index} is paused{where}; a change of {name} makes it retry this row"
        line += words_html(words, failed=True)
    return line


def slowest(workers: Iterable[PlacedWorker]) -> str:
    """Which worker of an operator is behind the others, in words; empty if none is."""
    taking = [worker for worker in workers if worker.routed]
    last, total = max(taking, key=lambda worker: worker.queued, default=None), sum(one.queued for one in taking)
    if last is None or len(taking) == 1:
        return ""
    others = (total - last.queued) / (len(taking) - 1)
    if last.queued < max(MANY, BEHIND * others):
        return ""
    return f"worker {last.worker} is behind: {last.queued:,} of {total:,} rows wait for it"


def hosts_line(loads: Mapping[int, HostLoad]) -> str:
    """The processor time that each host uses, or of many hosts the range.

    >>> hosts_line({0: HostLoad(0.42, 0, 0), 1: HostLoad(0.97, 0, 0)}), hosts_line({})
    ('Hosts: 0 uses 42 % of a core, 1 uses 97 %', '')
    >>> hosts_line({host: HostLoad(host / 10, 0, 0) for host in range(8)})
    'Hosts: 8 use 0 % to 70 % of a core, host 7 the most'
    """
    if not loads:
        return ""
    if len(loads) <= _NAMED:
        parts = [f"{host} uses {share(load.cpu_share)}" for host, load in sorted(loads.items())]
        return f"Hosts: {', '.join([f'{parts[0]} of a core', *parts[1:]])}"
    least, most = (pick(loads, key=lambda host: loads[host].cpu_share) for pick in (min, max))
    uses = f"{share(loads[least].cpu_share)} to {share(loads[most].cpu_share)}"
    return f"Hosts: {len(loads)} use {uses} of a core, host {most} the most"
