"""The Spark job of a region: a barrier job whose tasks are the hosts.

``spark.range`` is the only input (Spark rejects a union before a barrier stage). Each incarnation is a separate job.
When a host is lost Spark fails the job, since barrier tasks fail together. Spark does not retry it; a new job is
submitted for the next incarnation instead, so the number of recoveries does not depend on Spark's limit of stage
attempts, and no shuffle is needed after the hosts. Hosts that join later are a job of their own, beside the first one;
if the hosts are lost, the job of the next incarnation has all of them.

The reason of a failed job of hosts, extracted from Spark's exception, which is long and begins with an empty phrase.

>>> job = failure_of(MISSING)
>>> job.reason, job.lasting
("No module named 'fries_nb' in the executors' Python; fn.ship(spark) brings fries_nb to them, ...", True)
>>> job.host
1

A barrier task of Spark: the settings of its process, and its host, from the first to the last message.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark import BarrierTaskContext, InheritableThread, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fries_nb.errors import SessionError, exception_text
from fries_nb.host.host import Host
from fries_nb.host.host_telemetry import printing
from fries_nb.host.region_spec import HostReport, RegionSpec
from fries_nb.spark import interrupt
from fries_nb.spark.session import room_of

SWITCH_INTERVAL_S = 0.0005
"""Interval of thread switches in seconds; with Python's default, 5 ms, an FCM would wait for the interpreter lock."""
GARBAGE = 50_000
"""Number of allocations before a garbage collection; rows have no cycles (the default, 700, costs 0.1 us a tuple)."""


def serve(region: RegionSpec, host: int, interface: str) -> bytes:
    """Run a host until it ends. Never raises.

    Args:
        region: the specification of the region.
        host: index of the host.
        interface: name or address of this machine at which other hosts reach it.

    Returns:
        Its ``HostReport`` as msgpack.
    """
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(GARBAGE, *before[1][1:])
    try:
        warm_up()
        with printing() as printer:
            return msgspec.msgpack.encode(Host(region, host, interface, printer).run())
    except Exception as error:  # noqa: BLE001 - Spark would retry; the error is part of the report
        return msgspec.msgpack.encode(HostReport(host, os.getpid(), "failed", exception_text(error)))
    finally:
        sys.setswitchinterval(before[0])
        gc.set_threshold(*before[1])
        gc.unfreeze()


def warm_up() -> None:
    """Trigger lazy imports (pandas by Arrow, Parquet), so that no tuple waits for them.

    Where Spark forks hosts from ``daemon`` this is done once, before the fork.
    """
    table = pa.table({"warm": [0]})
    with pq.ParquetWriter(pa.BufferOutputStream(), table.schema) as writer:
        writer.write_table(table)


_BARRIER = "Stage failed because barrier task "
_ENDED = re.compile(r"barrier task ResultTask\((\d+), (\d+)\)")
_TRACEBACK = "Traceback (most recent call last):"
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (No module named '([\w.]+)')")
_LASTING = re.compile(
    r"(ModuleNotFoundError|ImportError|.*PySparkImportError|.*PACKAGE_NOT_INSTALLED|.*PYTHON_VERSION_MISMATCH"
    r"|java\.io\.IOException: Cannot run program)\b"
)
_JAVA = re.compile(r"^[\w.$]+(Exception|Error|Failure): ")

MISSING = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent \
failure reason: Stage failed because barrier task ResultTask(7, 1) finished unsuccessfully.
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "pyspark.zip/pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'fries_nb'
 SQLSTATE: 38000
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)"""
"""The message of Spark 4.3 for an executor without fries_nb, shortened: an example for tests."""


@dataclass(frozen=True)
class JobFailure:
    """The reason of a failed job of hosts.

    Attributes:
        host: index of the host whose task failed, as Spark reports it; 0 if unknown.
        reason: the reason in one line.
        details: the traceback of its Python exception, if there is one.
        lasting: whether a retry would fail again.
    """

    host: int
    reason: str
    details: str = ""
    lasting: bool = False


def failure_of(text: str, place: Callable[[int, int], str] = lambda stage, task: "") -> JobFailure:
    """Extract the reason from an exception of Spark.

    Args:
        text: the exception's message, with all its lines.
        place: returns the executor of a task of a stage, as "executor 1 (10.0.0.7)"; empty if unknown.

    Returns:
        The reason.
    """
    ended = _ENDED.search(text)
    host, executor = (int(ended[2]), place(int(ended[1]), int(ended[2]))) if ended else (0, "")
    raised, details = _python(text)
    reason = raised or _java(text)
    lasting = _LASTING.match(reason) is not None
    if lasting:
        reason = _advice(reason, executor)
    elif executor:
        reason = f"{reason} ({executor})"
    return JobFailure(host, reason, details, lasting)


def _python(text: str) -> tuple[str, str]:
    """Python's exception and its traceback; both empty if there is none."""
    _, found, after = text.partition(_TRACEBACK)
    if not found:
        return "", ""
    lines = re.split(r"\n\s*SQLSTATE:|\n\s+at ", after, maxsplit=1)[0].rstrip().splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    behind = lines[frames[-1] + 1 :] if frames else lines
    raised = next((line for line in behind if line and not line[0].isspace()), "")
    return raised, f"{_TRACEBACK}{chr(10).join(lines)}"


def _java(text: str) -> str:
    """The line with the cause: the first one, or the one after the sentence common to all failed barrier tasks."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and _BARRIER in lines[0] and (_JAVA.match(lines[1]) or not lines[1].startswith("\t")):
        return lines[1].strip()
    return lines[0] if lines else "Spark does not say why"


def _advice(reason: str, executor: str) -> str:
    """The reason of a lasting failure, completed with the executor and a remedy."""
    missing = _MISSING.match(reason)
    of = f"the Python of {executor}" if executor else "the executors' Python"
    if missing is None:
        return f"{reason.rstrip('.')} in {of}; set PYSPARK_PYTHON to a Python like the driver's on all of them"
    how = "install it there, or send a packed environment along (README: On a cluster)"
    if missing[2].partition(".")[0] == "fries_nb":
        how = "fn.ship(spark) brings fries_nb to them, a packed environment what it needs (README: On a cluster)"
    return f"{missing[1]} in {of}; {how}"


_SCHEMA = "report binary"
EXIT_S = 0.5
"""Seconds for a host with a blocked user function to deliver its report, before it ends its process."""
ROOM_S = 30.0
"""Seconds that a job waits for executors; then it is submitted anyway, so that Spark reports the problem."""
LOOK_S = 0.05
_SERIAL = itertools.count(1)
_TASKS = 10_000
"""Number of tasks of a stage to query: more than there are hosts."""
Died = Callable[[int, JobFailure], None]


class HostStage:
    """Submits the hosts of a region, each incarnation as a separate job, from a separate thread.

    Args:
        spark: the session, whose slots have been checked.
        region: the specification of the region.
        died: called in the job's thread if the job ends before it was cancelled, with the incarnation and the reason.
    """

    def __init__(self, spark: SparkSession, region: RegionSpec, died: Died) -> None:
        self._spark = spark
        self._died = died
        self._jobs = [_Job(spark, region, died, range(region.options.hosts))]
        self._later: list[_Job] = []

    def start(self) -> None:
        """Submit the hosts; returns at once."""
        self._jobs[-1].thread.start()

    def restart(self, region: RegionSpec) -> None:
        """Cancel the remaining hosts and submit new ones for this region; returns at once.

        They start when Spark has enough free slots.

        Raises:
            SessionError: the session has been stopped, or its Java process has ended.
        """
        with _needing_spark():
            for job in (self._jobs[-1], *self._later):
                job.cancel("the fries_nb run starts again")
        self._jobs = [job for job in (*self._later, *self._jobs) if job.thread.is_alive()]
        self._later = []
        self._jobs.append(_Job(self._spark, region, self._died, range(region.options.hosts)))
        self.start()

    def grow(self, region: RegionSpec, hosts: Sequence[int]) -> None:
        """Submit further hosts beside the current ones; returns at once.

        Args:
            region: the specification of the region.
            hosts: their indices, without gaps.
        """
        self._later.append(_Job(self._spark, region, self._died, hosts))
        self._later[-1].thread.start()

    def let_go(self, hosts: Collection[int]) -> None:
        """Expect the end of hosts that joined later, or cancel them if they do not run yet.

        Raises:
            SessionError: see ``restart``.
        """
        with _needing_spark():
            for job in self._later:
                job.let_go(hosts)

    def is_running(self) -> bool:
        """Whether Spark runs the tasks of the current hosts.

        Raises:
            SessionError: see ``restart``.
        """
        with _needing_spark():
            return self._jobs[-1].is_running()

    def release(self, grace_s: float) -> None:
        """Wait for all tasks of the stage to end, then cancel the job if some have not.

        A session that has been stopped has cancelled its jobs.
        """
        self._jobs[-1].thread.join(grace_s)
        for job in (*self._later, *self._jobs):
            if job.thread.is_alive():
                with contextlib.suppress(SessionError), _needing_spark():
                    job.cancel("the fries_nb run has ended")
                job.thread.join(grace_s)


class _Job:
    """The first hosts of one incarnation, or some that joined later; their indices have no gaps."""

    def __init__(self, spark: SparkSession, region: RegionSpec, died: Died, hosts: Sequence[int]) -> None:
        self._spark = spark
        self._region = region
        self._died = died
        self._hosts = hosts
        self._expected = set(hosts)  # those whose end would be a failure
        # A group of its own, since cancelling one also cancels later jobs of the same name.
        later = f"-{hosts[0]}.{next(_SERIAL)}" if hosts[0] else ""
        self._group = f"fries-{region.run}-{region.incarnation}{later}"
        self._cancelled = False
        # An InheritableThread, so that the job group is this thread's alone.
        self.thread = InheritableThread(target=self._run, daemon=True, name=self._group)

    def _run(self) -> None:
        context = self._spark.sparkContext
        try:
            interrupt.spare(self._group)
            context.setJobGroup(self._group, f"fries_nb region {self._region.graph.name}", interruptOnCancel=False)
            context.setLocalProperty("spark.scheduler.pool", self._group)
            slots = self._spark.range(0, len(self._hosts), 1, len(self._hosts))
            with _own_python(context):
                reporting = slots.mapInArrow(_task(self._region, self._hosts[0]), _SCHEMA, barrier=True)
            self._await_room()
            if self._cancelled:
                return
            rows = reporting.collect()
            reports = [msgspec.msgpack.decode(bytes(row.report), type=HostReport) for row in rows]
            reasons = sorted({report.error or report.reason for report in reports})
            self._tell(JobFailure(0, f"all hosts have ended: {'; '.join(reasons)}"))
        except (Py4JError, PySparkException) as error:
            self._tell(failure_of(_text_of(error), partial(_executor_of, self._spark)))
        finally:
            interrupt.forget(self._group)

    def _await_room(self) -> None:
        """Wait for replacements of lost executors, or until the job is cancelled.

        Spark defers a barrier job for which it has too few slots, and checks again only after 15 s.
        """
        until = time.monotonic() + ROOM_S
        hosts = len(self._hosts)
        while not self._cancelled and room_of(self._spark) < hosts and time.monotonic() < until:
            time.sleep(LOOK_S)

    def _tell(self, failure: JobFailure) -> None:
        if self._hosts[0] and self._expected:  # the failure of later hosts is not that of the run
            host = self._hosts[0] + failure.host
            failure = replace(failure, host=host if host in self._expected else min(self._expected), lasting=False)
        if failure.lasting or not self._cancelled:
            self._died(self._region.incarnation, failure)

    def let_go(self, hosts: Collection[int]) -> None:
        """See ``HostStage.let_go``."""
        self._expected.difference_update(hosts)
        if not self._expected and not self._cancelled:
            self._cancelled = True
            if not self.is_running():
                self.cancel("these hosts are not to join any more")

    def is_running(self) -> bool:
        """Whether Spark runs its tasks, which start together."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group))
        stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def cancel(self, reason: str) -> None:
        """Cancel its tasks."""
        self._cancelled = True
        self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group, reason)


@contextlib.contextmanager
def _own_python(context: SparkContext) -> Iterator[None]:
    """Makes local hosts use this Python, unless another one is configured.

    A session that was created manually would use the ``python3`` of the path, which may lack fries_nb.
    """
    before = context.pythonExec
    if before == "python3" and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def _task(region: RegionSpec, first: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # consumed completely, since Spark's writer thread blocks otherwise
            pass
        place = BarrierTaskContext.get()
        number = place.partitionId()
        address = place.getTaskInfos()[number].address.rpartition(":")[0]
        report = serve(region, first + number, region.interface or address)
        if msgspec.msgpack.decode(report, type=HostReport).stuck:
            threading.Thread(target=_end_process, args=(place.taskAttemptId(),), daemon=True).start()
        yield pa.RecordBatch.from_arrays([pa.array([report], pa.binary())], names=["report"])

    return task


def _end_process(attempt: int) -> None:
    """End this process after its task, since Spark would reuse it although one of its threads never ends."""
    time.sleep(EXIT_S)
    place = TaskContext.get()
    if place is None or place.taskAttemptId() == attempt:
        os._exit(0)


@contextlib.contextmanager
def _needing_spark() -> Iterator[None]:
    try:
        yield
    except (Py4JError, ConnectionError, AttributeError) as error:  # a stopped session has no Java side
        raise SessionError("Spark was stopped during the run, so its hosts cannot be restarted") from error


def _text_of(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.getMessage()) if java is not None else str(error)


def _executor_of(spark: SparkSession, stage: int, task: int) -> str:
    """The executor that a task ran on, as far as Spark reports it."""
    store = spark.sparkContext._jsc.sc().statusStore()
    try:
        tasks = store.taskList(stage, store.lastStageAttempt(stage).attemptId(), _TASKS)
        found = [one for one in map(tasks.apply, range(tasks.size())) if one.index() == task]
    except Py4JError:  # Spark has discarded the status of the stage
        return ""
    return f"executor {found[-1].executorId()} ({found[-1].host()})" if found else ""
