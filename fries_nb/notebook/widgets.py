"""The dataflow as a widget, and how widgets answer clicks while a cell runs.

The dataflow is laid out once; afterwards only states, labels and tooltips are sent to the browser.

A kernel handles widget messages in its main shell, after the running cell. JupyterLab and Notebook 7 send them to a
subshell instead, a thread beside the main shell, if the kernel supports it. ipykernel 7.4, however, moves each message
of a comm to the shell from which the comm last sent something, which for a view is the main shell.
``answer_in_subshell`` overrides that for our comms, so that the front end decides. Without subshells the view shows
that a click has to wait.
"""

from __future__ import annotations

import base64
import html
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from fries_nb.changes.change_replay import ReplayKind, ReplayStep
from fries_nb.dataflow.graph import Graph
from fries_nb.notebook.static_pictures import EdgeLabels
from fries_nb.planning.schedulers import Plan
from fries_nb.report.dag import Ends, dag_png, dag_svg, draw, operator_title
from fries_nb.report.layout import layout, loop_title, shortened
from fries_nb.report.plan_section import Shown
from fries_nb.telemetry.metrics import MetricsSnapshot

_HERE = Path(__file__).parent


def as_json(value: object, _: ipywidgets.Widget) -> str:
    """The value of a trait as JSON text, for large values that change all the time; see ``DagView``."""
    return json.dumps(value, ensure_ascii=False)


class DagView(anywidget.AnyWidget):
    """A dataflow whose operators can be selected.

    ``selected`` holds the selected operators in order of selection; a click, Enter or the space bar toggles one. The
    page sends each as a message of its own, since the state of a widget may be overtaken by a click on a button.
    All methods may be called from any thread and update the picture in place.
    """

    _esm = (_HERE / "dag.js").read_text("utf8")
    _css = (_HERE / "dag.css").read_text("utf8")
    svg = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    titles = traitlets.Dict().tag(sync=True)
    # Edges are keyed by their index in the graph, as text, since names may contain any separator. What changes with
    # every measurement is sent as JSON text: ipywidgets searches dicts for buffers, which takes longer than all else.
    labels = traitlets.Dict().tag(sync=True, to_json=as_json)
    marked: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    legend = traitlets.Dict().tag(sync=True)
    loops = traitlets.Dict().tag(sync=True)
    # A step of a replay: edge to the version of its rows, operators that a message goes to, edges that a marker passes.
    played = traitlets.Dict().tag(sync=True, to_json=as_json)
    loads = traitlets.Dict().tag(sync=True, to_json=as_json)
    troubles = traitlets.Dict().tag(sync=True)  # operator to a kind and the words in its box
    looked_at = traitlets.Int().tag(sync=True)  # grows when the picture is to be scrolled into sight
    selected: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, graph: Graph, width: float = 460.0) -> None:
        self._know(graph, graph)
        self._shown = Shown()
        self._facts: Mapping[str, str] = {}
        self._rounds: Mapping[str, str] = {}
        self._width = width
        self._one_at_a_time = threading.Lock()
        super().__init__(svg=self._picture(graph), titles=self._told(Shown()))
        self.on_msg(self._answer)

    def _know(self, graph: Graph, drawn: Graph) -> None:
        self._graph, self._drawn = graph, drawn
        self._edges: dict[Ends, str] = {(edge.source, edge.to): str(index) for index, edge in enumerate(drawn.edges)}
        self._flows: dict[Ends, str] = {}
        self._flow_labels = EdgeLabels(graph)

    def _picture(self, graph: Graph) -> str:
        return draw(graph, layout(graph, self._width, labelled=True), {}, {}, {}, (), {})

    def redraw(self, graph: Graph, drawn: Graph | None = None) -> None:
        """Draw the dataflow after a change of its shape; what is selected stays, as far as it is still there.

        Or draw a graph that has more than the dataflow: what it has not cannot be selected.
        """
        drawn = drawn or graph
        picture = self._picture(drawn)
        with self._one_at_a_time, self.hold_sync():
            self._know(graph, drawn)
            self.labels, self.loads, self.troubles, self.state, self.marked = {}, {}, {}, {}, []
            self._shown = Shown()
            self.svg, self.titles = picture, self._told(Shown())
            self.selected = [name for name in self.selected if name in graph]

    def show_plan(self, plan: Plan) -> None:
        """Show the roles of a plan: targets, heads, operators that a marker passes and pruned ones, and the reasons."""
        self.show(Shown.of(self._graph, plan))

    @property
    def shown(self) -> Shown:
        """What is shown now."""
        return self._shown

    def look_at(self) -> None:
        """Have the page scroll to the picture, if it is out of sight there."""
        self.looked_at += 1

    def show_metrics(self, snapshot: MetricsSnapshot) -> None:
        """Show rates and queue lengths at the edges, and how busy and how back-pressured each operator is."""
        flows = self._flow_labels.of(snapshot)
        measured = snapshot.operators.items()
        loads = {name: [_stepped(operator.busy), _stepped(operator.blocked)] for name, operator in measured}
        with self._one_at_a_time, self.hold_sync():
            self._flows = flows
            self._label()
            self.loads = {name: load for name, load in loads.items() if any(load)}

    def show_facts(self, facts: Mapping[str, str]) -> None:
        """Show what operators run now: for each a line of its tooltip."""
        with self._one_at_a_time:
            if facts != self._facts:
                self._facts = facts
                self.titles = self._told(self._shown)

    def show_troubles(self, troubles: Mapping[str, tuple[str, str]]) -> None:
        """Mark operators that hold up the others, as ``busy``, ``paused`` or ``failed``, with words in their boxes."""
        with self._one_at_a_time:
            self.troubles = {name: list(trouble) for name, trouble in troubles.items()}

    def show_rounds(self, rounds: Mapping[str, str]) -> None:
        """Show how often rows have gone round each loop, as in ``7 rounds``."""
        with self._one_at_a_time:
            self._rounds = rounds
            self.loops = {name: loop_title(shortened(name), {shortened(name): words}) for name, words in rounds.items()}

    def show_step(self, step: ReplayStep, rows: Mapping[Ends, str]) -> None:
        """Show a step of a replay in place of a plan; ``rows`` is the version of the rows on each edge."""
        # The dataflow of a change of the shape has what was removed as well.
        known = {name: words for name, words in step.states.items() if name in self._drawn}
        played = {
            "rows": {self._edges[ends]: version for ends, version in rows.items() if ends in self._edges},
            "messages": [name for name in known if step.kind is ReplayKind.SENT and name in step.operators],
            "markers": [self._edges[ends] for ends in step.edges if ends in self._edges],
        }
        self.show(Shown(known, {}, frozenset(step.travelled)), played)

    def show(self, shown: Shown, played: Mapping[str, Any] = {}) -> None:
        """Show operators in these states, with their tooltips; by default nothing is played."""
        with self._one_at_a_time, self.hold_sync():
            self._shown = shown
            self.state = dict(shown.states)
            self.titles = self._told(shown)
            self.legend = shown.legend
            self.marked = [number for ends, number in self._edges.items() if ends in shown.marked]
            self.played = dict(played)
            self._label()

    def _label(self) -> None:
        labels = {**self._flows, **self._shown.labels}
        self.labels = {self._edges[ends]: label for ends, label in labels.items()}

    def _told(self, shown: Shown) -> dict[str, str]:
        return {
            name: "\n".join(filter(None, [operator_title(operator), self._facts.get(name), shown.titles.get(name)]))
            for name, operator in self._drawn.by_name.items()
        }

    def _answer(self, _: object, content: Any, __: object) -> None:
        """Add an operator to the selection or take it out; or answer a ping, until which the page says that it waits.

        Selecting is idempotent, so it does not matter what the page knew of the selection.
        """
        match content:
            case {"event": "ping"}:
                self.send({"event": "pong"})
            case {"event": "select", "operator": str(name), "chosen": True} if name in self._graph:
                self.selected = [*self.selected, name] if name not in self.selected else self.selected
            case {"event": "select", "operator": str(name), "chosen": False}:
                self.selected = [other for other in self.selected if other != name]

    def __repr__(self) -> str:
        states = "; ".join(f"{name}: {words}" for name, words in self._shown.states.items())
        return f"DagView({self._graph.name!r}, {len(self._graph.operators)} operators{', ' + states if states else ''})"

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture of its current state."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        shown, flows, rounds = self._shown, {**self._flows, **self._shown.labels}, self._rounds
        still = {
            "image/svg+xml": dag_svg(
                self._drawn, shown.states, flows, shown.titles, shown.marked, self._width, rounds
            ),
            "text/plain": repr(self),
        }
        if png := dag_png(self._drawn, shown.states, flows):
            still["image/png"] = base64.b64encode(png).decode()
        return {**data, **still}, metadata


def _stepped(share: float) -> float:
    """A share in steps of 2 %, so that the page is not told of changes too small to be seen."""
    return round(share * 50) / 50


def words_html(text: str, failed: bool = False) -> str:
    """A message to the user as HTML, which is read aloud when it appears; line ends are kept."""
    colour = "color: var(--jp-error-color1, #b3261e); " if failed else ""
    style = f"{colour}margin: 4px 0; line-height: 1.5; white-space: pre-wrap"
    return f'<div role="{"alert" if failed else "status"}" style="{style}">{html.escape(text)}</div>'


def answer_in_subshell(*widgets: ipywidgets.Widget) -> None:
    """Let messages of these widgets, and of their children, be handled in the shell that the front end names."""
    for widget in widgets:
        if widget.comm is not None:
            widget.comm._reply_subshell_for = _as_asked
        answer_in_subshell(*getattr(widget, "children", ()))


def _as_asked(data: Any, asked: str | None) -> str | None:
    """The subshell named in the message, in place of the choice of ``ipykernel.comm.comm.BaseComm``."""
    return asked
