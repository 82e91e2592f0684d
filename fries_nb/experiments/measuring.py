"""Shared parts of experiments: running a flow, filling queues, and measuring the delay of changes.

The size of an experiment relative to the paper's: 1.0 has its workers, rates and durations.

Workers, with them rates, and durations shrink in proportion; the cost of a tuple does not. So each worker has the same
load as in the paper, and queues shrink with the duration.

>>> scale = ExperimentScale(0.1)
>>> scale.workers(), scale.seconds(300), per_workers(1_600, 4)
(4, 30.0, 160.0)
>>> scale_of("minute", {"minute": 0.02}), scale_of("paper", {}), scale_of("0.5", {})
(ExperimentScale(of_paper=0.02), ExperimentScale(of_paper=1.0), ExperimentScale(of_paper=0.5))

Results of experiments, as data.

>>> result = Result("table7", "Channels", 1.0, {"flow": "W2"}, ({"workers": 4, "all": 68, "paper all": 68},))
>>> print(result)
table7: Channels (scale 1; flow: W2)
workers  all  paper all
      4   68         68

Alternating changes with Fries and with Epoch in one run: delays of the same change under the same load. With
identities also by the cut, and of all three when the first new row and the last old one were begun.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

import fries_nb as fn
from fries_nb.controller.events import Outcome
from fries_nb.errors import FriesError, RunError
from fries_nb.run import BUFFER_BUDGET_BYTES, Run
from fries_nb.spark.session import start_or_find
from fries_nb.telemetry.metrics import OperatorMetrics

PAPER_WORKERS = 40
NAMES = ("test", "minute", "paper")
"""Named scales: ``test`` takes seconds, ``minute`` about a minute on two cores; each experiment sets their sizes."""


@dataclass(frozen=True)
class ExperimentScale:
    """A size relative to the paper's, above 0 and at most 1."""

    of_paper: float

    def seconds(self, paper: float, least: float = 0.0) -> float:
        """A duration of the paper in proportion, but no less than ``least``."""
        return max(least, paper * self.of_paper)

    def workers(self, least: int = 2) -> int:
        """The paper's 40 workers in proportion."""
        return max(least, round(PAPER_WORKERS * self.of_paper))


def per_workers(rate: float, workers: int) -> float:
    """A rate of the paper's 40 workers, for this number of workers."""
    return rate * workers / PAPER_WORKERS


def scale_of(text: str, named: Mapping[str, float]) -> ExperimentScale:
    """Parse a scale."""
    known = {"paper": 1.0, **named}
    try:
        of_paper = known[text] if text in known else float(text)
    except ValueError:
        of_paper = 0.0
    if not 0 < of_paper <= 1:
        raise FriesError(f"scale {text!r}; expected {', '.join(NAMES)} or a part of the paper's size, above 0 to 1")
    return ExperimentScale(of_paper)


Row = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """The result of one experiment."""

    name: str  # name of the experiment; ``title`` is that of the paper
    title: str
    scale: float  # the size relative to the paper's
    parameters: Row  # workers, rates, durations, budget and other parameters
    # rows of the table, or one row for each curve of the figure, with the paper's values beside ours
    rows: tuple[Row, ...]
    curves: tuple[Row, ...] = ()  # the points of a figure over time, if it is one
    marks: tuple[Row, ...] = ()  # requests and ends of changes, for a figure over time

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        parameters = "".join(f"; {name}: {_shown(value)}" for name, value in self.parameters.items())
        return f"{self.name}: {self.title} (scale {self.scale:g}{parameters})\n{_table(self.rows)}"


def _table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_shown(row.get(name)) for name in names] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(names, *cells, strict=True)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in [names, *cells]]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


HOSTS = 2
PATIENCE_S = 3_600.0
STARTING_S = 120.0
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t for 95 % confidence, by the number of measurements."""
SURGE_S = 0.25
SETTLED_S = 1.0
"""Seconds without growth after which a queue counts as full."""
_LOOK_S = 0.05


def pause(seconds: float) -> None:
    """Wait; Ctrl-C ends the experiment."""
    if seconds > 0:
        threading.Event().wait(seconds)


@dataclass(frozen=True)
class Clock:
    """The clock on which an experiment waits; a virtual one lets tests run without waiting."""

    now: Callable[[], float]  # the time in seconds; only differences have a meaning
    wait: Callable[[float], None]  # waits for this many seconds; returns at once if there are none


MONOTONIC = Clock(time.monotonic, pause)


@contextmanager
def session(hosts: int = HOSTS) -> Iterator[Any]:
    """The Spark session of an experiment: the active one, or one that is started for it and ends with it."""
    lease = start_or_find(hosts)
    try:
        yield lease.spark
    finally:
        lease.release()


@contextmanager
def running(
    flow: fn.Dataflow, spark: Any, *, workers: int = 2, hosts: int = HOSTS, budget: int = BUFFER_BUDGET_BYTES,
    chaining: bool = False, **options: Any,
) -> Iterator[Run]:  # fmt: skip
    """Runs a flow within the block; further options are those of ``flow.run``."""
    run = flow.run(spark=spark, hosts=hosts, workers=workers, buffer_budget_bytes=budget, chaining=chaining, **options)
    try:
        if not run.wait_flowing(STARTING_S) or run.state != "running":
            raise RunError(f"the flow of an experiment is {run.state} after {STARTING_S:g} s: {run.error}")
        yield run
    finally:
        run.request_stop(drain=False)  # its output is not looked at
        run.wait()


def changed(
    run: Run, change: Mapping[str, Any], scheduler: str, pruning: bool = True, rehearse: bool = True
) -> Outcome:  # fmt: skip
    """Make a change and wait for its end."""
    result = run.reconfigure(change, scheduler=scheduler, pruning=pruning, rehearse=rehearse).result(PATIENCE_S)
    if result.outcome != "done":
        raise RunError(f"a change of {', '.join(change)} by {scheduler} was {result.outcome}: {result.error}")
    return result


def waiting(run: Run, operator: str) -> int:
    """Number of tuples queued in front of an operator."""
    return run.metrics().operators.get(operator, OperatorMetrics()).queued


def until(
    run: Run, holds: Callable[[], bool], what: str, patience_s: float = STARTING_S, clock: Clock = MONOTONIC,
    look_s: float = _LOOK_S,
) -> None:  # fmt: skip
    """Wait until a condition holds."""
    deadline = clock.now() + patience_s
    while not holds():
        if run.state in ("finished", "stopped", "failed") or clock.now() > deadline:
            raise RunError(f"waited for {what}; the run is {run.state}: {run.error or 'it took too long'}")
        clock.wait(look_s)


def fill(
    run: Run, source: str, needed: Mapping[str, float], pace: float, a_row: float = 1.0, clock: Clock = MONOTONIC
) -> None:
    """Let the source run ahead until the given queues are filled, then set its rate to ``pace``."""
    missing = max(count - waiting(run, name) for name, count in needed.items())
    if missing > 0:
        # In about a second: a queue is reported a quarter of a second late, by which the surge goes too far.
        run.set_rate(source, pace + missing / a_row)
        what = f"{max(needed.values()):,.0f} tuples in front of {', '.join(needed)}"
        until(run, lambda: all(waiting(run, name) >= count for name, count in needed.items()), what, clock=clock)
    run.set_rate(source, pace)


def surge(run: Run, source: str, operator: str, count: int, clock: Clock = MONOTONIC) -> None:
    """Let the paused source fill the queue in front of an operator up to ``count`` tuples, and pause it again."""
    run.set_rate(source, max(0, count - waiting(run, operator)) / SURGE_S)
    clock.wait(SURGE_S)
    run.set_rate(source, 0)


def until_full(run: Run, *operators: str, clock: Clock = MONOTONIC) -> None:
    """Wait until the queues in front of these operators stop growing: their senders have used up their credit."""
    seen = [(clock.now(), 0)]

    def are_full() -> bool:
        now, queued = clock.now(), [waiting(run, operator) for operator in operators]
        if sum(queued) > 1.02 * seen[-1][1]:
            seen.append((now, sum(queued)))
        return min(queued) > 0 and now - seen[-1][0] > SETTLED_S

    until(run, are_full, f"full queues in front of {', '.join(operators)}", clock=clock)


def pause_until(moment_s: float, clock: Clock = MONOTONIC) -> None:
    """Wait until a time of the clock, by default of ``time.monotonic``."""
    clock.wait(moment_s - clock.now())


def confidence(figures: list[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % confidence interval (0 for a single value).

    >>> mean, half = confidence([10.0, 12.0, 14.0])
    >>> round(mean, 1), round(half, 2)
    (12.0, 4.97)
    """
    count = len(figures)
    half = STUDENT.get(count, 2.2) * stdev(figures) / count**0.5 if count > 1 else 0.0
    return mean(figures), half


@contextmanager
def repeated(path: str, times: int) -> Iterator[str]:
    """A directory with ``times`` links to a Parquet file, which is removed with the block."""
    with tempfile.TemporaryDirectory(prefix="fries-experiment-") as directory:
        for number in range(times):
            Path(directory, f"{number:05d}.parquet").symlink_to(Path(path).resolve())
        yield directory


Change = Mapping[str, Any]


@dataclass(frozen=True)
class Delays:
    """Delays of a change with each scheduler in milliseconds, from the request to the last target worker's switch."""

    fries_ms: tuple[float, ...]
    epoch_ms: tuple[float, ...]
    components: tuple[tuple[str, ...], ...]
    old_fries: float
    old_epoch: float

    def row(self) -> dict[str, Any]:
        """Medians, their ratio, and the tuples that were still processed with the old functions."""
        fries, epoch = median(self.fries_ms), median(self.epoch_ms)
        return {
            "components": " ".join("{" + ", ".join(part) + "}" for part in self.components),
            "fries ms": fries,
            "epoch ms": epoch,
            "times": epoch / fries,
            "old tuples fries": self.old_fries,
            "old tuples epoch": self.old_epoch,
        }

    def means(self) -> dict[str, Any]:
        """Means, with half the width of their 95 % confidence intervals."""
        fries, fries_half = confidence(list(self.fries_ms))
        epoch, epoch_half = confidence(list(self.epoch_ms))
        return {"fries ms": fries, "fries +-": fries_half, "epoch ms": epoch, "epoch +-": epoch_half}


def delays(run: Run, change: Change, repeats: int, ready: Callable[[], None]) -> Delays:
    """Make a change ``repeats`` times with Fries and with Epoch, alternating."""
    found: dict[str, list[Outcome]] = {"fries": [], "epoch": []}
    for _ in range(repeats):
        for scheduler, results in found.items():
            ready()
            results.append(changed(run, change, scheduler))
    fries, epoch = found["fries"], found["epoch"]
    return Delays(
        tuple(change.delay_ms for change in fries),
        tuple(change.delay_ms for change in epoch),
        fries[0].components,
        median(change.old_tuples for change in fries),
        median(change.old_tuples for change in epoch),
    )


class NotedFunction:
    """A function that notes when it begins each row, on this machine's clock, in a file of all workers.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     function = NotedFunction(abs, f"{place}/times")
    ...     function.open()
    ...     function.process(-1), len(_times(function.file))
    (1, 1)
    """

    def __init__(self, function: Any, file: str) -> None:
        self.function = function
        self.file = file

    def open(self) -> None:
        """Open the file."""
        self._times = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self) -> None:
        """Append the time."""
        os.write(self._times, np.float64(time.monotonic()).tobytes())

    def process(self, row: Any) -> Any:
        """As the function does."""
        self.note()
        return self.function(row)


class NotedModel(NotedFunction):
    """The same of a model with a state for each key."""

    def open(self) -> None:
        """Open the file and the model."""
        super().open()
        self.function.open()

    def initial_state(self) -> Any:
        """That of the model."""
        return self.function.initial_state()

    def process(self, row: Any, state: Any) -> Any:  # type: ignore[override]
        """As the model does."""
        self.note()
        return self.function.process(row, state)


@dataclass(frozen=True)
class VersionTimes:
    """A change by a scheduler: its outcome, and when rows were begun, in milliseconds from its request.

    Attributes:
        outcome: of the change.
        first_new_ms: when the first row was begun by a new function.
        last_old_ms: when the last one was begun by an old function.
    """

    outcome: Outcome
    first_new_ms: float
    last_old_ms: float


def version_times(
    run: Run, change: Change, schedulers: Sequence[str], ready: Callable[[], None]
) -> dict[str, VersionTimes]:
    """Make a change by one scheduler after another, each when it is ready and no row of the version before can come."""
    found: dict[str, VersionTimes] = {}
    with tempfile.TemporaryDirectory(prefix="fries-versions-") as place:

        def noted(version: str) -> dict[str, NotedFunction]:
            return {name: _noted(function, f"{place}/{version}") for name, function in change.items()}

        for scheduler in schedulers:
            changed(run, noted(f"before {scheduler}"), "fries")
            ready()
            requested = time.monotonic()
            outcome = changed(run, noted(scheduler), scheduler, rehearse=False)  # its rows would be noted, too
            old, new = f"{place}/before {scheduler}", f"{place}/{scheduler}"
            until(run, lambda new=new: len(_times(new)) > 0, f"a row of the change by {scheduler}")  # type: ignore[misc]
            changed(run, change, "fries")  # begins when no old row can come
            first, last = _times(new).min(), max(requested, _times(old).max(initial=0.0))
            found[scheduler] = VersionTimes(outcome, (first - requested) * 1000, (last - requested) * 1000)
    return found


def _noted(function: Any, file: str) -> NotedFunction:
    return (NotedModel if hasattr(function, "initial_state") else NotedFunction)(function, file)


def _times(file: str) -> npt.NDArray[np.float64]:
    return np.fromfile(file, np.float64)
