"""The Spark job of a region: a barrier job whose tasks are the hosts.

``spark.range`` is the only input (Spark rejects a union before a barrier stage). Each incarnation is a separate job.
When a host is lost Spark fails the job, since barrier tasks fail together. Spark does not retry it; a new job is
submitted for the next incarnation instead, so the number of recoveries does not depend on Spark's limit of stage
attempts, and no shuffle is needed after the hosts. Hosts that join later are a job of their own, beside the first one;
if the hosts are lost, the job of the next incarnation has all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import BarrierTaskContext, InheritableThread, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fries_nb.errors import SessionError
from fries_nb.spark import interrupt
from fries_nb.spark.barrier_task import serve
from fries_nb.spark.job_failures import JobFailure, failure_of
from fries_nb.spark.region_spec import HostReport, RegionSpec
from fries_nb.spark.session import room_of

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
