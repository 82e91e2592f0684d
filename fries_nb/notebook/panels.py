"""Panels of the live view: the state of a run that all of them see, the frame of each, and those that are drawings.

Each part of a run's state is read once, when the first panel asks for it: panels of one update agree with each other,
and a part that cannot be read is the trouble of those panels only that show it.

>>> from types import SimpleNamespace
>>> asked = []
>>> run = SimpleNamespace(state="running", loops=lambda: asked.append("loops") or ())
>>> moment = RunMoment(run)
>>> moment.loops, moment.loops, asked, moment.over
((), (), ['loops'], False)

A panel that cannot be updated says so in its frame, and the others go on. Drawings are made in Python for several
widths and shown by one script.

The page shows the widest drawing that fits; so the panel without a kernel is the same drawing. Nothing is sent while
nothing changes.

A table whose cells change in place: nothing flickers, and a selected row stays selected.

The panel of the dataflow: rates, queues, loads, loops, what runs now, and the plan or the replay of a change.

The panel of operators: what runs now at each of them, since when, and how busy it is.

The panel from which a run's data and pictures are saved: buttons that make the browser download a file.

A file is made when its button is clicked, in a thread, and sent through the kernel's own channel, so that it works
wherever the view does; nothing is written on the kernel's disk. A picture becomes PNG in the browser.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from io import BytesIO
from pathlib import Path
from time import localtime, strftime
from typing import Any

import anywidget
import ipywidgets
import traitlets

from fries_nb.changes.change import Change
from fries_nb.changes.function_versions import RunningFunction
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import exception_text
from fries_nb.notebook.known import OVER
from fries_nb.notebook.widgets import DagView, words_html
from fries_nb.planning.difference import Difference
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.running_chains import ChainedOperators
from fries_nb.report.dag import dag_svg
from fries_nb.report.host_rows import frontier_row, progress_svgs
from fries_nb.report.latency import bands_of, latency_svg
from fries_nb.report.layout import shortened
from fries_nb.report.markup import stacked
from fries_nb.report.plan_section import Shown, plan_svg, united
from fries_nb.report.runs import last_change, run_svg
from fries_nb.run import Run
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier
from fries_nb.telemetry.metrics import HostLoad, MetricsSnapshot, OperatorMetrics, PlacedWorker
from fries_nb.telemetry.run_states import SourceState

_MEASURED = ("last", "flowing", "topology", "workers", "host_rates", "host_loads", "sources")
"""Parts that hosts report, and that take long to read for hundreds of workers."""


class RunMoment:
    """A run at one moment; it takes over measurements of a moment before that are still new enough."""

    def __init__(self, run: Run, before: RunMoment | None = None) -> None:
        self.run = run  # the same, for parts that one panel shows
        # whether the run has ended; read first, so that an update after the end shows the end
        self.over = run.state in OVER
        if before is not None:
            vars(self).update({name: vars(before)[name] for name in _MEASURED if name in vars(before)})

    @cached_property
    def last(self) -> MetricsSnapshot:
        """The measurements, the last ones of a run that has ended."""
        return self.run.metrics()

    @cached_property
    def flowing(self) -> MetricsSnapshot:
        """The measurements of what flows; of a run that has ended none."""
        return MetricsSnapshot() if self.over else self.last

    @cached_property
    def sources(self) -> Sequence[SourceState]:
        """How far each source is, and its rate."""
        return self.run.explain().sources

    @cached_property
    def changes(self) -> Sequence[Change]:
        """All changes, in order of request."""
        return self.run.changes

    @cached_property
    def loops(self) -> Sequence[LoopState]:
        """The loops."""
        return self.run.loops()

    @cached_property
    def frontiers(self) -> Sequence[OperatorFrontier]:
        """The frontiers."""
        return self.run.frontiers()

    @cached_property
    def host_loads(self) -> Mapping[int, HostLoad]:
        """Host to what its process uses; empty once the run has ended."""
        return {} if self.over else self.run.host_loads()

    @cached_property
    def topology(self) -> TopologyStatus:
        """The hosts and their workers."""
        return self.run.topology()

    @cached_property
    def workers(self) -> Sequence[PlacedWorker]:
        """The workers, and how many tuples wait for each."""
        return self.run.workers()

    @cached_property
    def host_rates(self) -> Mapping[int, float]:
        """Host to tuples per second; empty once the run has ended."""
        return {} if self.over else self.run.host_rates()


WIDTHS = (360.0, 540.0, 760.0)
"""Widths of the drawings in pixels."""
_LOG = logging.getLogger("fries_nb")
_HERE = Path(__file__).parent


class PanelFrame(ipywidgets.VBox):
    """A panel and, below it, the error of its last update if there was one.

    The error is logged with its traceback, once, until the panel can be updated again. ``update`` is called by one
    thread at a time; ``flex`` is the share of a row, as in CSS.
    """

    def __init__(
        self, name: str, panel: ipywidgets.Widget, update: Callable[[RunMoment], None], flex: str = "0 0 auto",
        while_hidden: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.while_hidden = while_hidden
        self.error = ipywidgets.HTML()  # the error, as shown; empty without one
        self._panel = panel
        self._update = update
        self._one_at_a_time = threading.Lock()
        super().__init__([panel])
        self.layout.flex = flex
        self.layout.min_width = "0"

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; may be called from any thread."""
        with self._one_at_a_time:
            try:
                self._update(moment)
            except Exception as error:  # noqa: BLE001 - shown in the panel's place, and logged
                self._fail(error)
            else:
                if self.error.value:
                    self.error.value, self.children = "", [self._panel]

    def _fail(self, error: Exception) -> None:
        text = words_html(f"{self.name} cannot be shown: {exception_text(error)}", failed=True)
        if text != self.error.value:
            # Not as an error: without a configured log that would be printed into the cell.
            _LOG.info("the panel %s of a live view cannot be updated", self.name, exc_info=error)
            self.error.value, self.children = text, [self._panel, self.error]


class DrawnPanel(anywidget.AnyWidget):
    """A panel of drawings, or of the words ``empty`` without any.

    ``drawings`` holds the drawings by width, as text since keys of JSON are.
    """

    _esm = (_HERE / "drawings.js").read_text("utf8")
    _css = (_HERE / "drawings.css").read_text("utf8")
    kind = traitlets.Unicode("fries-progress").tag(sync=True)  # its class in the page
    drawings = traitlets.Dict().tag(sync=True)
    empty = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._facts: Any = ()
        self._draw: Callable[[float], list[str]] = lambda width: []
        super().__init__()
        self.layout.width = "100%"

    def draw(self, facts: Any, drawn: Callable[[float], list[str]]) -> None:
        """Draw anew for each width, if the facts have changed; may be called from any thread."""
        with self._one_at_a_time:
            if facts != self._facts:
                self._facts, self._draw = facts, drawn
                self.drawings = {f"{width:g}": drawn(width) for width in WIDTHS}

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "image/svg+xml": stacked(*self._draw(WIDTHS[-1])), "text/plain": repr(self)}, metadata


class ProgressPanel(DrawnPanel):
    """The frontier of each operator and what holds it back, and how loops go round."""

    empty = traitlets.Unicode(
        "No times and no loops are known: rows of this dataflow have no times (time=COLUMN of a source), or none was "
        "read yet, and no stream has iterate(...)."
    ).tag(sync=True)

    def show(self, frontiers: Sequence[OperatorFrontier], loops: Sequence[LoopState]) -> None:
        """Show frontiers and loops; may be called from any thread."""
        facts = (tuple(frontiers), tuple(loops))
        if any(facts) or any(self._facts):
            self.draw(facts, partial(progress_svgs, *facts))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        self.show(moment.frontiers, moment.loops)

    def __repr__(self) -> str:
        frontiers, loops = self._facts or ((), ())
        rows = [" ".join(frontier_row(frontier)[:2]) for frontier in frontiers]
        rows += [f"{loop.name} {loop.phase}, {loop.rounds}" for loop in loops]
        return f"ProgressPanel({'; '.join(rows)})"


class TableView(anywidget.AnyWidget):
    """A table, or the text ``empty``; a heading that begins with ``#`` is of numbers, which are aligned to the right.

    ``selected`` is the key of the selected row, empty without one. Rows can be selected by click, Enter or the space
    bar if ``selectable``. With ``beat_ms`` a page says that often that the table is in sight there, in a tab that is
    shown and a window that is not hidden, and then ``seen`` is called. All methods may be called from any thread.
    """

    _esm = (_HERE / "table.js").read_text("utf8")
    _css = (_HERE / "table.css").read_text("utf8")
    caption = traitlets.Unicode().tag(sync=True)
    columns: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    # As JSON: ipywidgets searches lists and dicts for buffers, which takes longer than all else for 200 rows.
    rows = traitlets.Unicode("[]").tag(sync=True)
    selectable = traitlets.Bool(default_value=False).tag(sync=True)
    selected = traitlets.Unicode().tag(sync=True)
    empty = traitlets.Unicode().tag(sync=True)
    beat_ms = traitlets.Int().tag(sync=True)

    def __init__(
        self, caption: str, columns: Sequence[str], selectable: bool = False, empty: str = "", beat_ms: int = 0,
        seen: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._seen = seen
        super().__init__(caption=caption, columns=list(columns), selectable=selectable, empty=empty, beat_ms=beat_ms)
        self.layout.width = "100%"
        self.on_msg(self._receive)

    def _receive(self, _: object, content: Any, __: object) -> None:
        """Select a row, or none; as a message, since the state of a widget may be overtaken by a click on a button."""
        match content:
            case {"event": "select", "key": str(key)} if self.selectable:
                self.selected = key
            case {"event": "seen"} if self.beat_ms:
                self._seen()
                self.send({"event": "answered"})

    def fill(self, rows: Mapping[str, Sequence[str]]) -> None:
        """Show rows: the texts of their cells by key, in order."""
        self.rows = json.dumps([[key, *cells] for key, cells in rows.items()], ensure_ascii=False)

    def fill_anew(self, columns: Sequence[str], rows: Mapping[str, Sequence[str]], selectable: bool = False) -> None:
        """Show rows of other columns, or of the same ones."""
        with self.hold_sync():  # a page makes its rows anew if the columns have changed
            self.selectable, self.empty, self.columns = selectable, "", list(columns)
            self.fill(rows)

    def say(self, words: str) -> None:
        """Show words in place of rows."""
        with self.hold_sync():
            self.empty, self.rows = words, "[]"

    def __repr__(self) -> str:
        return f"TableView({self.caption!r}, {len(json.loads(self.rows))} rows)"


BUSY_SHARE = 0.9
"""Share of busy time from which on an operator for which tuples wait is marked."""


class DagPanel:
    """Shows moments of a run in the picture of its dataflow."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._graph = run.graph
        self.view = DagView(run.graph)
        self._last: tuple[int, str] = (0, "")
        self._drawn: Shown | None = None  # what is shown unless a plan or a replay is
        self._difference: Difference | None = None  # which is that, and otherwise the last change
        self._both: Graph | None = None  # in which a difference of the shape is drawn
        self._measured: MetricsSnapshot | None = None
        self._running: tuple[Mapping[str, RunningFunction], Sequence[ChainedOperators]] = ({}, ())

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run, and the last change since it was requested."""
        if (graph := moment.run.graph) is not self._graph:
            self._difference = self._both = None
            self._redraw(graph)
            self._graph, self._last = graph, (0, "")
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

    def _redraw(self, graph: Graph, drawn: Graph | None = None) -> None:
        self.view.redraw(graph, drawn)
        self._measured, self._drawn, self._running = None, None, ({}, ())

    def show_difference(self, difference: Difference | None) -> None:
        """Draw what would be added, removed and changed in place of the last change; nothing of it with ``None``."""
        is_seen = self.view.shown is self._drawn or self._both is not None
        self._difference, both = None, None
        if difference is not None and difference.before is self._graph:
            self._difference, both = difference, united(difference) if difference.has_new_shape else None
        if both is not self._both:
            self._both = both
            self._redraw(self._graph, both)
        if is_seen or difference is not None:
            self.show_plan(None)

    def show_plan(self, plan: Plan | None) -> None:
        """Draw a plan that the user requested; with ``None`` the difference, or else the last change in effect."""
        if plan is not None:
            self.view.show_plan(plan)
        elif self._difference is not None:
            # Where operators change places there is no picture of both: that of now has what belongs to it.
            self._drawn = Shown.of_difference(self._difference).within(self._both or self._graph)
            self.view.show(self._drawn)
        else:
            self._drawn = last_change(self._run)
            self.view.show(self._drawn)


def troubles(moment: RunMoment) -> dict[str, tuple[str, str]]:
    """Operator to what is wrong: its state grows, it holds up the others, it is paused, or the run has failed.

    An operator that waits for a service inside its function is busy.
    """
    metrics = moment.flowing.operators
    hurting = {name for name, measured in metrics.items() if measured.busy >= BUSY_SHARE and measured.queued}
    found = dict.fromkeys(moment.flowing.growing, ("busy", "state grows"))
    found |= {name: ("busy", f"busy {share(metrics[name].busy)}") for name in hurting}
    found |= dict.fromkeys(() if moment.over else moment.run.paused, ("paused", "paused"))
    if moment.over and moment.run.failed_at:
        found[moment.run.failed_at] = ("failed", "failed")
    return found


def _facts(functions: Mapping[str, RunningFunction], chains: Sequence[ChainedOperators]) -> dict[str, str]:
    """Operator to what it runs, and to the chain whose busy time is shown at it."""
    facts = {name: running_line(running) for name, running in functions.items()}
    for name, chain in chain_texts(chains).items():
        facts[name] = "\n".join(filter(None, [facts.get(name, ""), f"busy as a whole: {chain}"]))
    return facts


def running_line(running: RunningFunction, most: int = 1_000) -> str:
    """What an operator runs, in at most so many characters, and since when."""
    name = running.function if len(running.function) <= most else f"{running.function[:most]}..."
    installed = f"change {running.version}" if running.version else "initial"
    return f"runs {name} ({installed}) since {clock_time(running.since_s)}"


_NAMED = 3
"""Number of operators of a chain that is named with all of them."""
_COLUMNS = (
    "operator", "state", "#busy", "#back-pressured", "#queued", "#tuples/s", "#workers", "function", "version", "since"
)  # fmt: skip
"""What tells where it hurts comes first: a narrow page cuts the last ones."""


class OperatorPanel(TableView):
    """A row for each operator.

    Its function and the change that installed it, the share of time in which its workers are busy and in which a full
    output holds them back, its rate, and its queue. The time of a chain is measured as a whole, so its operators have
    one busy share, which is marked as that of the chain.
    """

    def __init__(self) -> None:
        super().__init__("Operators", _COLUMNS)
        self._shown: tuple[object, ...] = ()

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run, if something has changed."""
        functions, paused, state = moment.run.functions(), moment.run.paused, moment.run.state
        chains = moment.run.chains()
        shown = (functions, tuple(paused), state, moment.flowing, moment.topology.epoch, chains)
        if shown == self._shown:
            return
        chained, metrics, counts = chain_texts(chains), moment.flowing.operators, moment.topology.workers
        self.fill({
            operator.name: (
                operator.name,
                _state(moment, operator.name),
                *_measured(metrics.get(operator.name), chained.get(operator.name, "")),
                str(len(counts.get(operator.name, ())) or operator.workers),
                *_running(functions.get(operator.name)),
            )
            for operator in moment.run.graph.operators
        })  # fmt: skip
        self._shown = shown  # not before, since an update that failed is made again


@lru_cache(maxsize=1024)
def clock_time(at_s: float) -> str:
    """A time of day, here, for seconds since the Unix epoch."""
    return strftime("%H:%M:%S", localtime(at_s))


def share(part: float) -> str:
    """A share of time in percent.

    >>> share(0.0), share(0.004), share(0.62)
    ('0 %', '< 1 %', '62 %')
    """
    return "< 1 %" if 0 < part < 0.005 else f"{100 * part:.0f} %"


def chain_texts(chains: Iterable[ChainedOperators]) -> dict[str, str]:
    """Operator to the chain that it is part of, for those that are; of a long chain the ends are named.

    >>> chain_texts([ChainedOperators(("FM", "MC"), (0, 1), 2)])
    {'FM': 'chain FM → MC', 'MC': 'chain FM → MC'}
    >>> chain_texts([ChainedOperators(("A", "B", "C", "D"), (0,), 2)])["B"]
    'chain A → ... → D'
    """
    texts: dict[str, str] = {}
    for chain in chains:
        names = chain.operators if len(chain.operators) <= _NAMED else (chain.operators[0], "...", chain.operators[-1])
        texts |= dict.fromkeys(chain.operators, f"chain {' → '.join(map(shortened, names))}")
    return texts


def _state(moment: RunMoment, operator: str) -> str:
    """The run's state, unless the operator is paused; of a failed run only one has failed."""
    if not moment.over and operator in moment.run.paused:
        return "paused"
    state = moment.run.state
    return state if state != "failed" or moment.run.failed_at in ("", operator) else "ended"


def _running(function: RunningFunction | None) -> tuple[str, str, str]:
    if function is None:
        return "", "", ""
    return function.function, function.version or "initial", clock_time(function.since_s)


def _measured(metrics: OperatorMetrics | None, chain: str) -> tuple[str, str, str, str]:
    if metrics is None:
        return "", "", "", ""
    busy = f"{share(metrics.busy)} ({chain})" if chain else share(metrics.busy)
    return busy, share(metrics.blocked), f"{metrics.queued:,}", f"{metrics.rate:,.0f}"


FRAMES: Mapping[str, Callable[[Run], Any]] = {
    "latency and rate": lambda run: run.history.latency.to_pandas(),
    "queues": lambda run: run.history.queues.to_pandas(),
    "operators": lambda run: run.metrics().to_pandas().reset_index(),
    "changes": lambda run: run.changes.to_pandas(),
    "constraints": lambda run: run.constraints().to_pandas(),
}
"""Name to the DataFrame of a run."""
PICTURES: Mapping[str, Callable[[Run], str]] = {
    "dataflow": lambda run: plan_svg(run.graph, run.changes[-1].plan) if run.changes else dag_svg(run.graph),
    "latency": lambda run: latency_svg(run.history.latency, run.history.marks, bands_of(run.history.constraints)),
    "whole view": run_svg,
}
"""Name to the picture of a run, as SVG."""
FORMATS = ("csv", "parquet")
_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "svg": "image/svg+xml", "png": "image/png"}


class SavePanel(anywidget.AnyWidget):
    """Buttons that save the data of a run as CSV and Parquet, and its pictures as SVG and PNG."""

    _esm = (_HERE / "save.js").read_text("utf8")
    _css = (_HERE / "save.css").read_text("utf8")
    choices: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def __init__(self, run: Run) -> None:
        self._run = run
        frames = [[name, list(FORMATS)] for name in FRAMES]
        super().__init__(choices=[*frames, *([name, ["svg", "png"]] for name in PICTURES)])
        self.on_msg(self._asked)

    def _asked(self, _: object, content: Any, __: object) -> None:
        """Start to make the file that a button of the page asks for."""
        if isinstance(content, dict) and content.get("event") == "save":
            order = (str(content.get("what")), str(content.get("kind")))
            threading.Thread(target=self._serve, args=order, name="fries-save", daemon=True).start()

    def _serve(self, what: str, kind: str) -> None:
        try:
            data, content = file_of(self._run, what, kind), _TYPES[kind]
        except Exception as error:  # noqa: BLE001 - shown beside the button
            self.send({"event": "failed", "what": what, "error": exception_text(error)})
            return
        name = f"{self._run.graph.name} {what}.{kind}"
        # A browser makes PNG of SVG itself; Graphviz, which could, is not on every machine.
        self.send({"event": "file", "what": what, "name": name, "type": content}, buffers=[data])


def file_of(run: Run, what: str, kind: str) -> bytes:
    """The content of a file of a key of ``FRAMES`` or ``PICTURES``; a picture is SVG, of ``kind`` svg and png."""
    if kind not in FORMATS:
        return PICTURES[what](run).encode()
    frame, held = FRAMES[what](run), BytesIO()
    if frame.index.name is not None:
        frame = frame.reset_index()
    if kind == "csv":
        frame.to_csv(held, index=False)
    else:
        frame.to_parquet(held, index=False)
    return held.getvalue()
