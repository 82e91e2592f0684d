"""The cost of the live view: a run shown in a notebook against the same run not shown, and the time to the first point.

One flow runs in a real kernel. It is shown, with all widgets, and hidden, in turn, and measured for a while each time:
first at full speed, for throughput, then at 1,000 tuples per second, for the kernel's CPU. By then the plot has its
maximum number of points. Rows and CPU time of the first second after each switch are excluded.

Then a flow of 200 operators is shown, each tab of the view in turn, with ten updates a second; all of its figures
change all the time. There the processor time of the view's thread and of the one that sends its messages is measured,
since the whole kernel, which receives the reports of 400 workers, needs several times as much.

Throughput depends on the wall clock, so other load on the machine disturbs it, often more than the display does. Tuples
per second of processor time are equivalent on an idle machine, and more stable.

A Jupyter kernel observed by a benchmark: runs cells, receives what they publish, and reads its CPU time.

The kernel is a separate process, and this one takes the place of the Jupyter server: it receives all messages of
widgets. So the full cost of a display to the kernel is measured; the cost to the browser is not.

The cost of looking: W1 while its rows and states are asked for twice a second, against W1 that nothing looks at.

Flat out, for throughput: ``W1`` is run to its end in turn with and without a look, and with a tap. Then one run at a
moderate rate is looked at in turn, and its latency and the delay of a change are measured. And once the states of many
keys are asked for at once, while the same run goes on: how long that takes.

A look is ``run.rows("FD")`` and ``run.state("FD")``; a tap, ``run.rows("FD", where=...)``, that finds no row.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from queue import Empty
from statistics import median
from typing import TYPE_CHECKING, Any

import fries_nb as fn
from fries_nb.errors import RunError
from fries_nb.experiments.bench.maps import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, flow_seconds, job, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchError, BenchReport, PairedResult, Side, Target, pairs, require
from fries_nb.experiments.bench.w1_throughput import scored
from fries_nb.experiments.measuring import until
from fries_nb.run import Run

if TYPE_CHECKING:
    import psutil
    from jupyter_client.blocking.client import BlockingKernelClient

ASKS = 5
PATIENCE_S = 120.0
WIDGET = "application/vnd.jupyter.widget-view+json"

# As Jupyter's protocol has it: a dictionary with "msg_type", "parent_header" and "content" among its keys.
Message = dict[str, Any]


class Kernel:
    """A running kernel, with a connected client."""

    def __init__(self, client: BlockingKernelClient) -> None:
        import psutil

        self._client = client
        self._process = psutil.Process(int(self.run("import os; print(os.getpid())")))

    def begin(self, source: str) -> str:
        """Start a cell; returns its id at once."""
        return str(self._client.execute(source, store_history=False))

    def run(self, source: str) -> str:
        """Run a cell to its end; returns what it printed."""
        cell, printed = self.begin(source), ""
        for message in self.heard(PATIENCE_S):
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return printed
        raise BenchError(f"a cell of a benchmark takes longer than {PATIENCE_S:g} s: {source.strip()[-60:]!r}")

    def heard(self, seconds: float) -> Iterator[Message]:
        """Messages that the kernel publishes within this many seconds, as they arrive."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                message: Message = self._client.get_iopub_msg(timeout=left)
            except Empty:
                return
            if message["msg_type"] == "error":
                raise BenchError(f"a cell failed: {message['content']['ename']}: {message['content']['evalue']}")
            yield message

    def cpu_s(self) -> float:
        """Processor time of the kernel's process in seconds, without Spark's Java and the hosts."""
        return _cpu_s(self._process)

    def cpu_of_all_s(self) -> float:
        """Processor time of the kernel and all processes below it in seconds, including Spark's Java and the hosts."""
        return sum(_cpu_s(process) for process in [self._process, *self._process.children(recursive=True)])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def kernel() -> Iterator[Kernel]:
    """A kernel with this interpreter, which ends with the block."""
    from jupyter_client.manager import start_new_kernel

    # What goes wrong in a cell comes as a message; the rest is Jupyter's and Java's warnings.
    running, client = start_new_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        running.shutdown_kernel()


def first_plotted(messages: Iterable[Message]) -> bool:
    """Consume messages up to the first one after which a browser has a view and a point; false if none does.

    Only widgets created within these messages count, since messages of an earlier cell may still arrive.

    >>> made = {"msg_type": "comm_open", "content": {"comm_id": "p", "data": {"state": {"window": "{}"}}}}
    >>> shown = {"msg_type": "execute_result", "content": {"data": {WIDGET: {"model_id": "p"}}}}
    >>> points = {"state": {"window": '{"points": {"at": [0.5]}}'}}
    >>> point, late = ({"msg_type": "comm_msg", "content": {"comm_id": name, "data": points}} for name in ("p", "old"))
    >>> first_plotted([made, shown, point]), first_plotted([made, late, shown])
    (True, False)
    """
    made, viewed, drawn = set[str](), False, False
    for message in messages:
        kind, content = message["msg_type"], message["content"]
        if kind in ("execute_result", "display_data"):
            viewed = viewed or WIDGET in content["data"]
        elif kind == "comm_open":
            made.add(content["comm_id"])
        if kind in ("comm_open", "comm_msg") and content["comm_id"] in made:
            state = content["data"].get("state", {})
            drawn = drawn or bool(json.loads(state.get("window", "{}")).get("points", {}).get("at"))
        if viewed and drawn:
            return True
    return False


RATE = 1_000
LOOK_S = 5.0  # as long as from one commit to the next
TURNS = 3  # times as many pairs flat out: whatever else the machine does disturbs throughput more than CPU time
SETTLE_S = 1.0
WARM_S = 10.0  # after a change of pace
ROWS = 1_000_000
FASTEST = 1_000_000  # rows a second that the flow surely does not reach: so long must the rows last

SETTING = """
%load_ext fries_nb
import ipywidgets, json
import fries_nb as fn
from fries_nb.workloads.fraud import fraud_flow
"""
START = f"%fries_run fraud --hosts {HOSTS} --workers {HOSTS}\n"
SHOW = "run"
HIDE = "ipywidgets.Widget.close_all()"
STOP = "%fries_stop --of fraud"
WIDE, UPDATE_S = 200, 0.1
WIDE_FLOW = f"""
flow = fn.Dataflow("wide")
stream = flow.source("rows", fn.rate({RATE}))
for number in range({WIDE} - 2):
    stream = stream.map(f"operator {{number}}", lambda row: row)
stream.sink("out", fn.memory())
"""
WIDE_START = f"%fries_run wide --hosts {HOSTS} --workers {HOSTS}\n"
WIDE_WARM_S = 60.0  # until the plot is long
WIDE_VIEW = f"""
import threading, time
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import functions_for
updates = []
view = RunView(run, functions_for(run.graph, {{}}, None), period_s=lambda: updates.append(1) or {UPDATE_S})
updates.clear()  # those of the view's making
titles = list(view.tabs.titles)
view.dag.selected = ["operator 100"]
print(json.dumps(titles))
"""
# The status bar asks for the period as well.
USED = """
clocks = [time.pthread_getcpuclockid(one.ident) for one in threading.enumerate() if one.name in ("fries-view", "IOPub")]
print(json.dumps([sum(map(time.clock_gettime, clocks)), len(updates) / 2]))
"""
POINTS = "print(json.dumps([run.state, [(point.at_s, point.rate) for point in run.history.latency]]))"


@dataclass(frozen=True)
class Clocks:
    """The clocks of a measurement, which return seconds; virtual ones let tests run without waiting."""

    wall: Callable[[], float] = time.time  # seconds since the Unix epoch, as the points of a run have them
    steady: Callable[[], float] = time.perf_counter  # for durations


CLOCKS = Clocks()


@dataclass(frozen=True)
class Look:
    """The measurements of one interval of a run."""

    rate: float  # tuples per second at the sink
    cpu: float  # CPU use of the kernel in percent of a core
    per_cpu_s: float  # tuples per second of processor time of the kernel, Spark's Java and the hosts together
    messages: float  # messages that widgets sent per second
    points: int  # number of points of the run's history at the end


@dataclass(frozen=True)
class TabCost:
    """The cost of the view with one of its tabs."""

    cpu: float  # processor time of the view's threads in percent of a core
    updates: float  # updates per second


def display(scale: float, runs: int) -> BenchReport:
    """The fraud flow, shown and hidden in turn; ``scale`` multiplies the duration of each interval."""
    require("ipykernel", "jupyter_client", "psutil")
    look_s = LOOK_S * scale
    with _rows(WARM_S + 2 * TURNS * runs * (look_s + 3 * SETTLE_S)) as (source, target), kernel() as notebook:
        notebook.run(SETTING)
        firsts = _first_points(notebook, runs)
        notebook.run(f"flow = fraud_flow(fn.replay({str(source)!r}), fn.parquet({target!r}))\n{START}")
        list(notebook.heard(WARM_S))
        flat_out = _by_turns(notebook, look_s, TURNS * runs)
        notebook.run(f"run.set_rate('payments', {RATE})")
        list(notebook.heard(WARM_S))
        steady = _by_turns(notebook, look_s, runs)
        notebook.run(STOP)
        wide = _wide(notebook, look_s, runs)
    throughput = compared([look.rate for look in flat_out], "tuples/s")
    per_cpu_s = compared([look.per_cpu_s for look in flat_out], "tuples a second of CPU, of all processes")
    cpu = compared([look.cpu for look in steady], f"% of a core at {RATE:,} tuples/s")
    targets = (
        Target("throughput, shown against not shown", throughput.ratio_median, 0.97, unit="times"),
        Target("from %fries_run to the first point, Spark up", median(firsts), 6.0, at_least=False, unit="s"),
        Target("kernel CPU of the display", added(cpu), 5.0, at_least=False, unit="% of a core"),
        *(
            Target(f"CPU of the view of {WIDE} operators, tab {tab}", median(cost.cpu for cost in costs), 5.0,
                   at_least=False, unit="% of a core")
            for tab, costs in wide.items()
        ),
    )  # fmt: skip
    facts = {
        "first points, s": [round(seconds, 2) for seconds in firsts],
        "looked at each, s": look_s,
        "messages/s, shown": median(look.messages for look in steady[::2]),
        f"updates/s of the view of {WIDE} operators": median(cost.updates for costs in wide.values() for cost in costs),
        "points of the run at the end": steady[-1].points,
        "kernel CPU, flat out, shown, %": median(look.cpu for look in flat_out[::2]),
        "kernel CPU, flat out, not shown, %": median(look.cpu for look in flat_out[1::2]),
    }
    return BenchReport("display", scale, (throughput, per_cpu_s, cpu), targets, facts, CREDIT_BYTES)


def _wide(notebook: Kernel, look_s: float, runs: int, clocks: Clocks = CLOCKS) -> dict[str, list[TabCost]]:
    """Tab to what the view of the wide flow costs with it, measured ``runs`` times."""
    notebook.run(WIDE_FLOW + WIDE_START)
    list(notebook.heard(WIDE_WARM_S))
    tabs = json.loads(notebook.run(WIDE_VIEW))
    costs: dict[str, list[TabCost]] = {tab: [] for tab in tabs}
    for tab in tabs * runs:
        notebook.run(f"view.tabs.selected_index = titles.index({tab!r})")
        list(notebook.heard(SETTLE_S))
        began, (used_s, updates) = clocks.steady(), json.loads(notebook.run(USED))
        list(notebook.heard(look_s))
        took, (used_after_s, updates_after) = clocks.steady() - began, json.loads(notebook.run(USED))
        costs[tab].append(TabCost(100 * (used_after_s - used_s) / took, (updates_after - updates) / took))
    notebook.run("%fries_stop --of wide --now")
    return costs


def compared(figures: Sequence[float], unit: str) -> PairedResult:
    """Alternating measurements as pairs; the first of each pair is with the run shown.

    >>> print(compared([9.0, 10.0, 8.0, 10.0], "tuples/s"))
    shown 8.5 tuples/s, not shown 10 tuples/s: ratio 0.85 (0.80 to 0.90, 2 pairs)
    """
    return PairedResult("shown", "not shown", unit, tuple(figures[::2]), tuple(figures[1::2]))


def added(result: PairedResult) -> float:
    """The median difference between ``a`` and ``b``, over pairs.

    >>> added(PairedResult("shown", "hidden", "%", (5.0, 7.0, 6.0), (3.0, 3.0, 3.0)))
    3.0
    """
    return median(shown - hidden for shown, hidden in zip(result.a_figures, result.b_figures, strict=True))


def mean_rate(points: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Mean rate in tuples per second between two times, from points: times, and rates since the point before.

    >>> mean_rate([(1.0, 9.0), (2.0, 10.0), (4.0, 40.0), (5.0, 9.0)], 1.0, 4.5)
    30.0
    """
    inside = [point for point in points if begin_s <= point[0] <= end_s]
    if len(inside) < 2:
        raise BenchError(f"points in {end_s - begin_s:g} s: {len(inside)}; expected two or more, look longer (--scale)")
    tuples = sum(rate * (at - before) for (before, _), (at, rate) in pairwise(inside))
    return tuples / (inside[-1][0] - inside[0][0])


def _first_points(notebook: Kernel, runs: int) -> list[float]:
    """Seconds from the cell that runs and shows the flow to its plot's first point; an earlier run starts Spark."""
    path = str(payments_file(ROWS).resolve())
    notebook.run(f"flow = fraud_flow(fn.replay({path!r}, rate={RATE}), fn.memory())")
    return [_first_point(notebook) for _ in range(runs + 1)][1:]


def _first_point(notebook: Kernel) -> float:
    started = time.perf_counter()
    notebook.begin(START + SHOW)
    if not first_plotted(notebook.heard(PATIENCE_S)):
        raise BenchError(f"no point of the plot was seen within {PATIENCE_S:g} s")
    seconds = time.perf_counter() - started
    notebook.run(STOP)
    notebook.run(HIDE)
    return seconds


def _by_turns(notebook: Kernel, look_s: float, runs: int, clocks: Clocks = CLOCKS) -> list[Look]:
    """Measurements of the run shown and hidden in turn, ``runs`` of each."""
    return [_look(notebook, cell, look_s, clocks) for _ in range(runs) for cell in (SHOW, HIDE)]


def _look(notebook: Kernel, cell: str, seconds: float, clocks: Clocks = CLOCKS) -> Look:
    notebook.run(cell)
    list(notebook.heard(SETTLE_S))
    began_s, began, cpu, every = clocks.wall(), clocks.steady(), notebook.cpu_s(), notebook.cpu_of_all_s()
    messages = sum(message["msg_type"] == "comm_msg" for message in notebook.heard(seconds))
    ended_s, took = clocks.wall(), clocks.steady() - began
    cpu, every = notebook.cpu_s() - cpu, notebook.cpu_of_all_s() - every
    state, points = json.loads(notebook.run(POINTS))
    if state != "running":
        raise BenchError(f"the run of a benchmark has {state} before it had been looked at")
    rate = mean_rate(points, began_s, ended_s)
    return Look(rate, 100 * cpu / took, rate * took / every, messages / took, len(points))


@contextmanager
def _rows(seconds: float) -> Iterator[tuple[Path, str]]:
    """A directory of payments for this many seconds at full speed (links to one file), and an output directory."""
    path = payments_file(ROWS).resolve()
    with tempfile.TemporaryDirectory(prefix="fries-bench-") as directory:
        source = Path(directory, "payments")
        source.mkdir()
        for number in range(1 + int(seconds * FASTEST / ROWS)):
            (source / f"{number:05d}.parquet").symlink_to(path)
        yield source, str(Path(directory, "scored"))


WATCHED_ROWS = 12_000_000
"""Some seconds on two cores: many looks fall into a run."""
WATCHED_RATE = 4_000
ASKED_EVERY_S = 0.5
SPAN_S = 4.0
"""Seconds for which a run is measured on each side: longer than the window of latencies."""
SPANS = 3
"""Number of such spans for each run to its end, since they are short."""
CHANGES = 25
KEYS = 100_000
FILLING = 40_000
"""Rows per second until all keys are there: no queue is left when they are asked for."""


def watched(scale: float, runs: int) -> BenchReport:
    """Compare W1 that is looked at twice a second with W1 that is not."""
    rows = int(WATCHED_ROWS * scale)
    with spark_session() as spark:
        seen = job(lambda source: flow_seconds(scored, spark, source, begun=looked_at), rows)
        heard = job(lambda source: flow_seconds(scored, spark, source, begun=tapped), rows)
        bare = job(lambda source: flow_seconds(scored, spark, source), rows)
        flat_out, with_tap = (
            pairs(Side(name, watched.flowing_rate), Side("not", bare.flowing_rate), runs, unit="rows/s")
            for name, watched in (("looked at", seen), ("tapped", heard))
        )
        run = _moderate().run(spark=spark, hosts=HOSTS, workers=HOSTS)
        try:
            until(run, lambda: run.metrics().operators["FD"].processed > WATCHED_RATE, "rows flow", PATIENCE_S)
            sides = _sides(run, _latency_ms)
            latency = pairs(*sides, n=runs * SPANS, unit="ms, the median")
            delay = pairs(*_sides(run, _delay_ms), n=runs * SPANS, unit="ms, of a change")
        finally:
            run.cancel()
        took_s, pause_ms, keys = _many_keys(spark, int(KEYS * scale))
    targets = (
        Target("throughput while it is looked at, of that without", flat_out.ratio_median, 0.97, unit="times"),
        Target("throughput with a tap, of that without", with_tap.ratio_median, 0.97, unit="times"),
        Target("latency without a look, of that with one", 1 / latency.ratio_median, 0.97, unit="times"),
        Target("delay without a look, of that with one", 1 / delay.ratio_median, 0.97, unit="times"),
        Target(f"the states of {keys:,} keys of 1 KB", took_s, 2.0 * scale, at_least=False, unit="s"),
        Target("the longest wait between two rows for that", pause_ms, 1.0, at_least=False, unit="ms"),
    )
    facts = {"rows": rows, "hosts": HOSTS, "looks a second": 1 / ASKED_EVERY_S}
    return BenchReport("watched", scale, (flat_out, with_tap, latency, delay), targets, facts, CREDIT_BYTES)


def looked_at(run: Run) -> AbstractContextManager[None]:
    """Looks at rows and states twice a second, for as long as the block."""

    def look() -> None:
        run.rows("FD", 20)
        run.state("FD", n=100)

    return _beside(look, ASKED_EVERY_S)


def tapped(run: Run) -> AbstractContextManager[None]:
    """Waits for rows that never come, for as long as the block."""
    return _beside(lambda: run.rows("FD", where=_never, n=1, timeout=1.0), 0.0)


@contextmanager
def _beside(call: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Makes a call again and again while the block goes on, until the run is over."""
    over = threading.Event()

    def go_on() -> None:
        with suppress(RunError):  # the run is over
            while not over.wait(pause_s):
                call()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _never(row: Any) -> bool:
    return bool(row["TX_AMOUNT"] < 0)


def _moderate() -> fn.Dataflow:
    flow = fn.Dataflow("W1")
    payments = fn.rate(WATCHED_RATE, row=lambda n: {"CUSTOMER_ID": n % 5_000, "TX_AMOUNT": float(n % 90)})
    rows = flow.source("Src", payments)
    rows.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.memory())
    return flow


def _sides(run: Run, measure: Callable[[Run], float]) -> tuple[Side, Side]:
    def looking() -> float:
        with looked_at(run):
            time.sleep(SPAN_S)
            return measure(run)

    def alone() -> float:
        time.sleep(SPAN_S)
        return measure(run)

    return Side("looked at", looking), Side("not", alone)


def _latency_ms(run: Run) -> float:
    return run.metrics().latency.p50_ms


def _delay_ms(run: Run) -> float:
    """The median of many changes, as one takes from half to twice the time of another."""
    return median(run.reconfigure({"FD": LastTen()}).result(PATIENCE_S).delay_ms for _ in range(CHANGES))


class Kilobyte:
    """Keeps a kilobyte for each key."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """The row as it is."""
        state["kept"] = bytes(1000)
        return row


def _many_keys(spark: Any, keys: int) -> tuple[float, float, int]:
    """Seconds in which the states of many keys are there while rows go on, and milliseconds that these wait at most.

    Both are medians: a busy machine keeps any thread waiting for longer, now and then.
    """
    flow = fn.Dataflow("keys")
    rows = flow.source("Src", fn.rate(FILLING, row=lambda n: {"key": n % keys}))
    rows.map("K", Kilobyte(), key="key").sink("Sink", fn.memory())
    run = flow.run(spark=spark, hosts=HOSTS, workers=HOSTS)
    try:
        until(run, lambda: run.metrics().operators["K"].processed > 1.2 * keys, "all keys are there", PATIENCE_S)
        for source in run.graph.sources:
            run.set_rate(source, WATCHED_RATE)
        took, pauses, found = list[float](), list[float](), 0
        for _ in range(ASKS):
            began = time.perf_counter()
            table = run.state("K", n=None, timeout=PATIENCE_S)
            took.append(time.perf_counter() - began)
            pauses.append(table.attrs["longest_pause_ms"])
            found = len(table)
        return median(took), median(pauses), found
    finally:
        run.cancel()
