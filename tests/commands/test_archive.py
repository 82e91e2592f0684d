"""The archive of Java's classes: where it is, how Spark is told of it, and what hinders it from being made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from fries_nb.__main__ import main
from fries_nb.errors import SessionError, see
from fries_nb.spark.session import archive_path, end_java, using_archive, writing_archive

OPTIONS = "spark.driver.defaultJavaOptions"


def test_an_environment_without_an_archive_does_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark starts as ever."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert using_archive() == {}


def test_the_archive_of_an_environment_is_used_from_then_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It lies within the environment, whose path may have spaces; where it does not fit nobody is bothered."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my env"))
    archive_path().parent.mkdir(parents=True)
    archive_path().touch()
    assert using_archive()[OPTIONS].startswith(f'-XX:SharedArchiveFile="{tmp_path}/my env/share/fries_nb/spark.jsa" ')
    assert using_archive()[OPTIONS].endswith(" -Xlog:disable -Xlog:all=error:stderr")
    assert '-XX:ArchiveClassesAtExit="/a b.jsa" ' in writing_archive(Path("/a b.jsa"))[OPTIONS]


def test_the_archive_is_whole_when_java_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java begins to write when its input ends; who looked before that found an empty file, and threw it away."""
    script = "import pathlib, sys; sys.stdin.read(); pathlib.Path(sys.argv[1]).write_text('whole')"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "archive")], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        end_java()
        assert java.returncode == 0
        assert (tmp_path / "archive").read_text() == "whole"


@pytest.mark.parametrize(
    ("java", "said"),
    [("", "cannot write the archive to"), ("/nowhere", "Java wrote no archive")],
    ids=["no place", "no Java"],
)
def test_what_hinders_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], java: str, said: str
) -> None:
    """Nothing half made is left in the environment."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path if java else tmp_path / "file"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAVA_HOME", java)
    monkeypatch.setenv("PATH", java)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["archive"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 2
    assert error.splitlines()[1] == see(SessionError())
    assert not list(tmp_path.rglob("spark.*"))
