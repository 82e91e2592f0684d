"""``python -m fries_nb diff``: what it prints, its exit codes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fries_nb.__main__ import main

OLD = {"name": "fraud", "operators": [{"name": "S"}, {"name": "A"}, {"name": "T"}],
       "edges": [{"from": "S", "to": "A"}, {"from": "A", "to": "T"}]}  # fmt: skip
NEW = {"name": "fraud", "operators": [{"name": "S", "workers": 2}, {"name": "T"}], "edges": [{"from": "S", "to": "T"}]}


def compared(path: Path, old: object, new: object, *options: str) -> int:
    """The exit code for two files."""
    files = []
    for name, flow in (("old", old), ("new", new)):
        files.append(path / f"{name}.json")
        files[-1].write_text(flow if isinstance(flow, str) else json.dumps(flow))
    return main(["diff", *map(str, files), *options])


def test_operators_and_edges_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As words and as JSON; an exit code tells whether there are any."""
    assert compared(tmp_path, OLD, NEW) == 1
    assert capsys.readouterr().out.splitlines() == [
        "fraud: 1 operator removed, 1 changed, 1 edge added, 2 removed", "- A (map)", "~ S: workers: 1 -> 2",
        "+ S -> T", "- S -> A, A -> T",
    ]  # fmt: skip
    assert compared(tmp_path, OLD, NEW, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["removed"], found["changed"], found["edges"]["added"]) == (
        ["A"], {"S": {"workers": "1 -> 2"}}, [["S", "T"]],
    )  # fmt: skip
    assert compared(tmp_path, OLD, OLD) == 0
    assert capsys.readouterr().out == "fraud: no difference\n"


def test_what_is_no_dataflow_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    assert compared(tmp_path, OLD, "{") == 2
    assert capsys.readouterr().err.startswith("python -m fries_nb diff: ")
    assert main(["diff", str(tmp_path / "no.json"), str(tmp_path / "old.json")]) == 2
    assert "expected a JSON file" in capsys.readouterr().err
