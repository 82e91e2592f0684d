"""The notebooks run from top to bottom on real Spark, and say what their text promises."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from notebook_files import NOTEBOOKS, VIEWED, SharedKernel, code_digest, executed, said, stored
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fries_nb.workloads.payments import payments_path

VS_CODE = {"text/html", "image/svg+xml", "image/png", "text/plain"}
"""Types of output that VS Code shows without a kernel, of those that we have."""
MOST_BYTES = 200_000
"""Of a notebook with its outputs."""
README = NOTEBOOKS.parent / "README.md"
BINDER = NOTEBOOKS.parent / "binder"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def test_notebooks_are_numbered_without_gaps_and_the_readme_names_each():
    """They are known by their numbers."""
    assert [int(name[:2]) for name in NAMES] == [*range(len(NAMES))]
    named = re.findall(r"\b\d\d_\w+\.ipynb", README.read_text().partition("## In a notebook")[2])
    assert list(dict.fromkeys(named)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_kept_with_what_they_have_shown(name: str):
    """What viewers without a kernel show, pictures too where HTML is sanitized; nothing of a machine, no widgets."""
    notebook = stored(name)
    assert notebook.metadata.fries_nb.outputs_of == code_digest(notebook), f"make outputs NOTEBOOKS={name}"
    assert "widgets" not in notebook.metadata
    assert notebook.cells[0].cell_type == "markdown"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"display_data", "execute_result", "stream"}
    assert "stderr" not in {output.get("name") for output in outputs}
    data = [(kind, text) for output in outputs for kind, text in output.get("data", {}).items()]
    assert {kind for kind, _ in data} <= {"text/plain", "text/html", "image/png"}
    words = [text for kind, text in data if kind != "image/png"] + [output.get("text", "") for output in outputs]
    assert not re.search(r"/(home|root|tmp|usr|opt|var|Users)/|[0-9a-f]{12}@|127\.0\.0\.1", "\n".join(words))
    page, _ = HTMLExporter(template_name="basic", sanitize_html=True).from_notebook_node(notebook)
    assert re.search(r"<img [^>]*src=\"data:image/png", page)
    assert (NOTEBOOKS / name).stat().st_size < MOST_BYTES


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKernel]:
    """A kernel for all notebooks but the quickstart, which has its own as a user's has."""
    kernel = SharedKernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The quickstart from top to bottom, with its outputs, once its live view has shown the end."""
    return executed("00_quickstart.ipynb", tmp_path_factory.mktemp("quickstart"), VIEWED)


def test_the_quickstart_replaces_an_operator(quickstart: NotebookNode):
    """Changed by Epoch behind a queue and by Fries past it, rightly; by naive, which mixes hundreds. Nothing in red."""
    notebook = quickstart
    assert re.search(r"then commit .+ along FM → MC \(epoch: .+\)", said(notebook, "%fries_plan"))
    changes = re.findall(r"done by (\w+) in ([\d,.]+) (m?s)\b", said(notebook, "%%fries_reconfigure"))
    assert [name for name, _, _ in changes] == ["epoch", "fries", "naive", "fries"]
    behind, past, *_ = (float(delay.replace(",", "")) * {"ms": 1, "s": 1_000}[unit] for _, delay, unit in changes)
    assert past < behind
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert "'fraud' has finished; what it has read is in its output" in said(notebook, "%fries_stop")
    right, wrong = said(notebook, "%fries_audit").split("\n'fraud' is ")
    assert right.startswith("'fraud' is serializable")
    mixed = re.search(r"not serializable [^~]+ and ([\d,]+) more", wrong)
    assert mixed
    assert int(mixed[1].replace(",", "")) > 100


def test_a_saved_quickstart_is_shown_by_viewers(quickstart: NotebookNode):
    """All pictures by nbconvert, as nbviewer does; VS Code takes one type of each output, but for the live view."""
    page, _ = HTMLExporter(template_name="classic").from_notebook_node(quickstart)
    assert page.count('class="fries-dag-svg') >= 5
    assert re.search(r"[\d.]+ m?s: FC, MC by naive", page)
    outputs = [output.data for cell in quickstart.cells for output in cell.get("outputs", []) if "data" in output]
    live = [set(data) for data in outputs if not VS_CODE & set(data)]
    assert live == [{"application/vnd.jupyter.widget-view+json"}] * 2  # that of the run is shown again


def test_a_viewer_that_sanitizes_html_keeps_the_words_and_the_picture_of_the_run(quickstart: NotebookNode):
    """As GitHub does, by nbconvert's rules: pictures within HTML are lost, what is said in words is not."""
    page, _ = HTMLExporter(template_name="basic", sanitize_html=True).from_notebook_node(quickstart)
    assert "'fraud' is serializable" in page
    assert "Not serializable: " in page
    assert page.count("done by ") >= 4  # by Epoch, Fries, naive, and Fries again
    assert re.findall(r"<img [^>]*src=\"data:image/", page)
    assert "<script" not in page.split("<body", 1)[-1]


def test_the_hot_replacement_goes_as_told(kernel: SharedKernel, tmp_path: Path):
    """Fries is serializable and the latency falls; naive mixes versions, and the sink shows the wrong scores."""
    notebook = kernel.executed("01_hot_replace.ipynb", tmp_path)
    aucs = [float(auc) for auc in re.findall(r"payments: (0\.\d+)", said(notebook, "for learner"))]
    assert len(aucs) == 3
    assert min(aucs) > 0.7
    assert said(notebook, "%%fries_reconfigure --of surge --wait 300\n").startswith("done by fries in ")
    assert "half of the payments take less than" in said(notebook, "while run.metrics()")
    fries, naive = said(notebook, "%fries_audit").split("\n'surge' is ")
    assert fries.startswith("'surge' is serializable")
    assert naive.startswith("not serializable")
    wrong = re.search(r"([\d,]+) payments were scored wrongly", said(notebook, "wrong = "))
    assert wrong
    assert int(wrong[1].replace(",", "")) > 0


def test_a_canary_is_compared_by_country_and_the_mended_one_promotes_itself(kernel: SharedKernel, tmp_path: Path):
    """As told: better in all, worse in Japan; the mended one is better everywhere, and the audit finds nothing."""
    notebook = kernel.executed("03_canary.ipynb", tmp_path)
    old, new = (float(row.split()[-1]) for row in said(notebook, "change.compare()[").splitlines()[2:])
    assert new < old
    assert "worse for JP\n" in said(notebook, "print(")
    assert said(notebook, "change.rollback()").startswith("rolled back since ")
    assert "goes on to 25% after 1,000 rows of the new version at 5%" in said(notebook, "def by_local_hour")
    promoted = said(notebook, "while change.canary.share < 1")
    assert "(promote_when has accepted): " in promoted
    assert promoted.count("  done") == promoted.count("\nu") == 5
    assert "'cards' is serializable" in said(notebook, "%fries_audit --of cards")
    customers = [int(row.split()[-1]) for row in said(notebook, "rows = run.output()").splitlines()[2:]]
    assert customers[0] == 1_000 >= customers[2] > customers[1] > 0  # the run is stopped soon after the promotion


def test_streams_in_time_are_those_of_pandas(kernel: SharedKernel, tmp_path: Path):
    """All pairs of the bounds before are there, and some of those after; sessions are those of pandas."""
    notebook = kernel.executed("12_streams_in_time.ipynb", tmp_path)
    assert "done by fries in " in said(notebook, "%%fries_reconfigure --of nexmark")
    told = re.findall(r"([\d,]+) (?:pairs|are|within ten)", said(notebook, "assert run.wait"))
    found, before, after = (int(one.replace(",", "")) for one in told)
    assert before <= found <= after
    visits = re.match(r"([\d,]+) visits of .*; pandas finds ([\d,]+)\n5,520 bids", said(notebook, "visits = "))
    assert visits
    assert visits[1] == visits[2]
    assert "'nexmark' is serializable" in said(notebook, "%fries_audit")


def test_the_shape_changes_as_told(kernel: SharedKernel, tmp_path: Path):
    """Three cells that are run again are applied one after the other; no payment is lost, doubled or miscounted."""
    notebook = kernel.executed("04_change_the_shape.ipynb", tmp_path)
    applied = said(notebook, "%fries_apply --wait 120")
    assert applied.count("done by fries in ") == 3
    assert "Next: %fries_apply --of payments" in said(notebook, "%%fries_dataflow payments")
    assert "done by fries in " in said(notebook, "%fries_rollback --wait 120")
    assert re.search(r"[\d,]+ payments scored, [\d,]+ left out by the filter, \d+ alerts", said(notebook, "rows = "))


def test_what_failed_is_mended_and_requeued_as_told(kernel: SharedKernel, tmp_path: Path):
    """The letters go back to the model that was mended, and every payment is scored once."""
    notebook = kernel.executed("11_mend_and_requeue.ipynb", tmp_path)
    assert "done by fries in " in said(notebook, "%fries_reconfigure FM=")
    found = re.search(r"(\d+) of (\d+) rows of dead letters have gone back to FM", said(notebook, "%fries_requeue FM"))
    assert found is not None
    assert found[1] == found[2] != "0"
    assert re.search(r"[\d,]+ payments scored once, \d+ refunds among them", said(notebook, "rows = "))
    assert "serializable" in said(notebook, "%fries_audit --of refunds")


def test_binder_opens_the_quickstart_in_the_versions_that_were_tried():
    """The link leads to a notebook that is there; every package is pinned, within what pyproject.toml takes."""
    project = tomllib.loads((NOTEBOOKS.parent / "pyproject.toml").read_text())["project"]
    link = r"https://mybinder\.org/v2/gh/([\w-]+/[\w-]+)/HEAD\?urlpath=lab%2Ftree%2F([\w%.]+)"
    [(repository, notebook)] = re.findall(link, README.read_text())
    assert project["urls"]["Homepage"] == f"https://github.com/{repository}"
    assert (NOTEBOOKS.parent / unquote(notebook)).is_file()
    lines = [line for line in (BINDER / "requirements.txt").read_text().splitlines() if line[:1] not in ("#", "")]
    assert lines[0] == "-e .[notebook]"
    pins = dict(line.split("==") for line in lines[1:])
    for needed in map(Requirement, project["dependencies"] + project["optional-dependencies"]["notebook"]):
        assert needed.specifier.contains(pins[canonicalize_name(needed.name)]), needed


def test_constraints_are_kept_by_smaller_buffers_and_then_by_a_lighter_model(kernel: SharedKernel, tmp_path: Path):
    """As told: violated and then met; the slow model is replaced by itself, and the audit finds nothing."""
    notebook = kernel.executed("07_latency_constraints.ipynb", tmp_path)
    assert "at most 150 ms" in said(notebook, "violated = ")
    assert said(notebook, "while not run.changes").count("done") == 1
    assert "'slow' is serializable" in said(notebook, "%fries_audit")


def test_windows_are_complete_and_change_while_they_are_open(kernel: SharedKernel, tmp_path: Path):
    """As told: no payment is missing or counted twice after two changes, and the audit finds nothing."""
    notebook = kernel.executed("05_tokens.ipynb", tmp_path)
    assert re.search(r"^2018-04-0\d \d\d:\d\d", said(notebook, "wait_until(lambda: run.metrics().frontier"))
    assert [line.split()[0] for line in said(notebook, "%fries_frontier").splitlines()[1:4]] == [
        "Check", "Replicate(Check)", "Hour",
    ]  # fmt: skip
    assert said(notebook, "%%fries_reconfigure --of windows").count("done by fries in") == 2
    read, counted = re.findall(r"([\d,]+) (?:payments were read|are in windows)", said(notebook, "hours = "))
    assert read == counted
    assert "[0, 30] minutes past the hour" in said(notebook, "hours = ")
    assert "'windows' is serializable" in said(notebook, "%fries_audit")
    alarms, windows = re.findall(r"([\d,]+) (?:alarms|windows)", said(notebook, "class Alarm"))
    assert 0 < int(alarms.replace(",", "")) < int(windows.replace(",", ""))
    scenarios = re.findall(r"^(\d) +(\d+) +(\d+)$", said(notebook, "class Frauds"), re.MULTILINE)
    assert sum(int(count) for _, count, _ in scenarios) == pq.read_metadata(payments_path()).num_rows
    assert all((frauds == "0") is (scenario == "0") for scenario, _, frauds in scenarios)
    assert re.search(r"[1-9][\d,]+ times a customer paid nothing", said(notebook, "from datetime"))


def test_loops_end_with_every_row_decided(kernel: SharedKernel, tmp_path: Path):
    """As told: attempts find out when nobody is inside any more, and each component has one number."""
    notebook = kernel.executed("06_loops.ipynb", tmp_path)
    assert re.search(r"phase='running', attempts=0, .*\bround=7\b", said(notebook, "wait_until(lambda: run.loops"))
    assert said(notebook, "%fries_loops").splitlines()[1].split()[:3] == ["Checks", "running", "7"]
    end = said(notebook, "run.stop()")
    assert re.search(r"ended \(attempts: [1-9]\d*\); the longest check took 7 rounds", end)
    read, decided = re.findall(r"([\d,]+) (?:payments were read|are decided)", end)
    assert read == decided
    assert said(notebook, "%%fries_reconfigure --of checks").startswith("done by fries in ")
    steps = [line.split() for line in end.splitlines() if re.match(r"\d\.\d", line)]
    assert [step for step, *_ in steps] == ["0.5", "1.0"]  # and no payment with both
    assert "'checks' is serializable" in said(notebook, "%fries_audit")
    assert "phase='ended'" in said(notebook, "import pandas")
    found = [line.split() for line in said(notebook, 'run.output("found")').splitlines()[1:-1]]
    assert [int(component) for _, component in found] == [1] * 8 + [20] * 4 + [30] * 2


def test_hosts_come_and_go_and_nothing_is_lost(kernel: SharedKernel, tmp_path: Path):
    """As told: from one host to three and back, with a change meanwhile; plain Python finds the same rows."""
    notebook = kernel.executed("08_rescaling.ipynb", tmp_path)
    first, back = said(notebook, "%fries_rescale 3"), said(notebook, "%fries_rescale 1")
    assert re.match(r"3 hosts after [\d.]+ m?s: 10 workers, \d+ KiB of state moved", first)
    assert re.match(r"1 host after [\d.]+ m?s: 4 workers, \d+ KiB of state moved", back)
    assert "done by fries in" in said(notebook, "%%fries_reconfigure --of spending")
    assert "bins of Spending: 342 at host 0, 341 at host 1, 341 at host 2" in said(notebook, "%fries_rescale")
    compared = said(notebook, "import pandas")
    counts = re.search(r"([\d,]+) payments were read, ([\d,]+) are checked, (\d+) differ", compared)
    assert counts
    assert counts[1] == counts[2] != "0"
    assert counts[3] == "0"
    assert "'spending' is serializable" in said(notebook, "%fries_audit")
    assert [line.split()[2] for line in said(notebook, "run.history.hosts").splitlines()[2:]] == ["1", "3", "1"]
