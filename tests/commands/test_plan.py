"""``python -m fries_nb plan``: what it prints, as words and as JSON, and how it refuses."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from planning_graphs import FIGURE_7, FIGURE_10, W2, W5

from fries_nb.__main__ import COMMANDS, main
from fries_nb.dataflow import graph_to_json


@pytest.fixture
def plan(tmp_path, capsys):
    """Runs the command on a graph or a text; answers with exit code, output and errors."""

    def start(flow, *arguments: str) -> tuple[int, str, str]:
        path = tmp_path / "flow.json"
        path.write_text(flow if isinstance(flow, str) else json.dumps(graph_to_json(flow)))
        try:
            code = main(["plan", str(path), *arguments])
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return start


def test_in_words(plan):
    """Components, heads, targets, edges, longest path, pruning, channels and the naive verdict."""
    code, out, err = plan(W5, "--reconfigure", "FD3", "FD4")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "change of FD3, FD4 in dataflow 'drawn'",
        "component 1: RE, FD3, F4, FD4",
        "  heads: RE; targets: FD3, FD4",
        "  edges: RE -> FD3, RE -> F4, F4 -> FD4; longest path: 2",
        "RE kept (several_edges): its edges to FD3 and F4 both lead to targets",
        "longest path: 2",
        "channels: all 10, component 3",
        "naive FCM: not safe, it may mix versions within a transaction",
    ]


LOOP = """{"name": "checks", "operators": [{"name": "S"}, {"name": "B"}, {"name": "Out"},
    {"name": "A", "within": ["L"]}, {"name": "L", "kind": "loop", "within": ["L"], "emits": "one_to_many"}],
    "edges": [{"from": "S", "to": "L"}, {"from": "L", "to": "A"}, {"from": "A", "to": "L", "feedback": true},
              {"from": "A", "to": "B"}, {"from": "B", "to": "Out"}]}"""


def test_a_loop(plan):
    """As a file: scopes, the head and the edge back; the plan names the loop that has to be empty."""
    code, out, err = plan(LOOP, "--reconfigure", "B")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:6] == [
        "component 1: L, A, B",
        "  heads: L; targets: B",
        "  loops: L; they have to be empty when the operators switch",
        "  edges: L -> A, A -> L, A -> B; longest path: 2",
        "L kept (several_tuples): several tuples of a transaction may take its edge to B, toward targets",
    ]
    code, _, err = plan(LOOP.replace(', "feedback": true', ""), "--reconfigure", "B")
    assert (code, "edge A -> L comes back to the head of loop 'L'; expected it as a feedback edge" in err) == (2, True)


def test_as_json(plan):
    """One object with all of it."""
    code, out, err = plan(FIGURE_10, "--reconfigure", "E", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        "dataflow": "drawn",
        "targets": ["E"],
        "components": [
            {
                "operators": ["E"], "heads": ["E"], "targets": ["E"], "edges": [], "longest_path": 0, "loops": [],
                "channels": 0,
            }
        ],
        "heads": ["E"],
        "edges": [],
        "longest_path": 0,
        "pruning": [
            {
                "operator": "RE",
                "pruned": True,
                "rule": "uniqueness",
                "witness": ["SJ"],
                "reason": "RE pruned (uniqueness): SJ lets one tuple of a transaction pass, and lies before every "
                "target below RE",
            }
        ],
        "naive_safe": True,
        "channels": {"all": 6, "component": 0},
    }


def test_no_pruning(plan):
    """The component starts at the Replicate, and the reason says that pruning was off."""
    _, out, _ = plan(FIGURE_10, "--reconfigure", "E", "--no-pruning", "--json")
    found = json.loads(out)
    assert found["components"][0]["operators"] == ["RE", "C", "D", "SJ", "E"]
    assert (found["heads"], found["longest_path"], found["naive_safe"]) == (["RE"], 3, True)
    assert (found["pruning"][0]["pruned"], found["pruning"][0]["rule"]) == (False, "off")


def test_several_components(plan):
    """Each with its own heads, targets and edges."""
    _, out, _ = plan(FIGURE_7, "--reconfigure", "C", "F", "G", "--json")
    found = json.loads(out)
    assert {tuple(part["heads"]): part["longest_path"] for part in found["components"]} == {("C",): 2, ("G",): 0}
    assert sorted(found["heads"]) == ["C", "G"]


@pytest.mark.parametrize(("workers", "channels"), [
    (1, (5, 3)), (4, (68, 48)), (12, (588, 432)), (20, (1_620, 1_200)), (40, (6_440, 4_800)),
])  # fmt: skip
def test_table_7(plan, workers, channels):
    """Channels of W2, all of them and in the component of J1 and J4."""
    flow = graph_to_json(W2)
    for operator in flow["operators"]:
        operator["workers"] = workers
    flow["edges"][-1]["partitioning"] = "forward"
    _, out, _ = plan(json.dumps(flow), "--reconfigure", "J1", "J4", "--json")
    assert json.loads(out)["channels"] == dict(zip(("all", "component"), channels, strict=True))


@pytest.mark.parametrize(
    ("flow", "arguments", "said"),
    [
        (W5, ["--reconfigure", "FD5"], "no operator 'FD5'"),
        (W5, ["--reconfigure", "Src"], "'Src' is a source"),
        (W5, ["--reconfigure"], "expected at least one argument"),
        (W5, [], "required: --reconfigure"),
        (W5, ["--reconfigure", "E1", "--jsn"], "unrecognized arguments: --jsn"),
        ("{", ["--reconfigure", "E1"], "not JSON"),
        ('{"name": "x"}', ["--reconfigure", "E1"], "'operators' is a list of objects"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(plan, flow, arguments, said):
    """Nothing on standard output, no stack of frames."""
    code, out, err = plan(flow, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert len(err) < 300


@pytest.mark.parametrize("path", ["missing.json", "."])
def test_a_file_that_cannot_be_read(tmp_path, capsys, path):
    """No such file, a directory."""
    assert main(["plan", str(tmp_path / path), "--reconfigure", "A"]) == 2
    err = capsys.readouterr().err
    assert "cannot read dataflow" in err
    assert err.count("\n") == 1


def test_an_unknown_command(capsys):
    """The closest is suggested."""
    with pytest.raises(SystemExit) as left:
        main(["plam"])
    assert left.value.code == 2
    assert "no command 'plam'" in (err := capsys.readouterr().err)
    assert "did you mean 'plan'" in err
    assert err.count("\n") == 1


def test_long_lists_are_cut_short_in_words(plan):
    """Twelve are shown, and how many there are."""
    names = [f"n{number}" for number in range(30)]
    flow = {
        "name": "chain",
        "operators": [{"name": name} for name in names],
        "edges": [{"from": tail, "to": head} for tail, head in itertools.pairwise(names)],
    }
    _, out, _ = plan(json.dumps(flow), "--reconfigure", "n1", "n29")
    assert "n12, ... (29 in all)" in out
    assert "n13" not in out.replace("n12 -> n13", "")


def test_every_command_is_listed(capsys):
    """With a line of help."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_as_a_module(tmp_path):
    """The command as typed: exit codes and streams of a process of its own."""
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(graph_to_json(W5)))
    command = [sys.executable, "-m", "fries_nb", "plan", str(path), "--json", "--reconfigure"]
    root = Path(__file__).parents[2]
    good = subprocess.run([*command, "E1"], capture_output=True, text=True, check=False, cwd=root)
    bad = subprocess.run([*command, "E2"], capture_output=True, text=True, check=False, cwd=root)
    assert (good.returncode, json.loads(good.stdout)["heads"], good.stderr) == (0, ["E1"], "")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
