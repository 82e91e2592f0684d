"""The benchmark of the display: what it makes of a kernel's messages and of a run's points, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fries_nb.__main__ import main
from fries_nb.experiments.bench import display_cost as bench
from fries_nb.experiments.bench import pairs
from fries_nb.experiments.bench.display_cost import (
    WIDGET,
    Clocks,
    Look,
    Message,
    added,
    compared,
    first_plotted,
    mean_rate,
)
from fries_nb.experiments.bench.pairs import BenchError, PairedResult


def published(kind: str, **content: object) -> Message:
    """What a kernel publishes."""
    return {"msg_type": kind, "parent_header": {}, "content": content}


def opened(widget: str, **state: object) -> Message:
    """A widget is made."""
    return published("comm_open", comm_id=widget, data={"state": state})


def updated(widget: str, **state: object) -> Message:
    """A widget's state changes."""
    return published("comm_msg", comm_id=widget, data={"method": "update", "state": state})


POINT = json.dumps({"points": {"at": [0.5]}})
EMPTY = json.dumps({"points": {"at": []}})
SHOWN = published("execute_result", data={WIDGET: {"model_id": "view"}})


@pytest.mark.parametrize(
    "messages",
    [
        [opened("plot", window=EMPTY), SHOWN, updated("plot", window=POINT)],
        [opened("plot", window=EMPTY), updated("plot", window=POINT), SHOWN],
        [opened("plot", window=POINT), published("status", execution_state="idle"), SHOWN],
    ],
)
def test_the_first_point_is_there_with_view_and_point(messages: list[Message]):
    """In whatever order they come; and nothing after is taken."""
    rest = iter([*messages, "after"])
    assert first_plotted(rest)
    assert next(rest) == "after"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [opened("plot", window=POINT)],
        [opened("plot", window=EMPTY), SHOWN, updated("plot", labels={"0": "5/s"})],
        [SHOWN, updated("earlier", window=POINT)],
        [opened("plot", window=POINT), published("execute_result", data={"text/plain": "Run('fraud')"})],
        [opened("plot"), SHOWN, published("comm_close", comm_id="plot", data={})],
    ],
)
def test_less_is_no_first_point(messages: list[Message]):
    """No view, no point, a point of a widget of an earlier cell, or a run that is only text."""
    assert not first_plotted(messages)


def test_a_rate_counts_whole_intervals_within():
    """Each point weighs as long as its interval; the interval that began before is left out."""
    points = [(0.0, 1e9), (1.0, 1e9), (1.25, 400.0), (2.25, 100.0), (3.0, 1e9)]
    assert mean_rate(points, 0.5, 2.5) == pytest.approx(160.0)
    with pytest.raises(BenchError, match="s: 1; expected two or more, look longer"):
        mean_rate(points, 1.1, 1.4)


def test_what_the_display_adds_is_taken_pair_by_pair():
    """Differences of medians would say 0 here."""
    assert added(PairedResult("shown", "not shown", "%", (1.0, 5.0, 9.0), (0.0, 8.0, 5.0))) == 1.0


class Played:
    """A kernel in which a run is in some state; it keeps the cells. Time passes, virtually, only while it is heard."""

    def __init__(self, state: str = "running") -> None:
        self.state = state
        self.cells: list[str] = []
        self.now_s = self.used_s = self.used_by_all_s = 0.0
        self.clocks = Clocks(lambda: self.now_s, lambda: self.now_s)

    def run(self, source: str) -> str:
        self.cells.append(source)
        points = [(moment / 8, 100.0) for moment in range(800)]
        return json.dumps([self.state, points]) if source == bench.POINTS else ""

    def heard(self, seconds: float) -> Iterator[Message]:
        self.now_s += seconds
        return iter([updated("plot", window=POINT), published("stream", text="a line")])

    def cpu_s(self) -> float:
        self.used_s += 0.5
        return self.used_s

    def cpu_of_all_s(self) -> float:
        self.used_by_all_s += 4.0
        return self.used_by_all_s


def test_a_look_is_at_what_happens_after_the_turn():
    """CPU and messages over the time looked at; the points are asked for when it is over."""
    kernel = Played()
    found = bench._look(kernel, bench.SHOW, 2.0, kernel.clocks)
    assert found == Look(rate=100.0, cpu=25.0, per_cpu_s=50.0, messages=0.5, points=800)
    assert kernel.cells == [bench.SHOW, bench.POINTS]


def test_it_is_shown_and_hidden_by_turns():
    """A B A B, the shown one first, as the comparison takes them."""
    kernel = Played()
    assert len(bench._by_turns(kernel, 2.0, 2, kernel.clocks)) == 4
    assert [cell for cell in kernel.cells if cell != bench.POINTS] == [bench.SHOW, bench.HIDE] * 2
    result = compared([1.0, 2.0, 3.0, 4.0], "%")
    assert (result.a, result.a_figures, result.b_figures) == ("shown", (1.0, 3.0), (2.0, 4.0))


class Tabbed(Played):
    """A kernel whose view needs 2 % of a core, 4 % with the tab of details, at eight updates a second."""

    def run(self, source: str) -> str:
        self.cells.append(source)
        if source == bench.WIDE_VIEW:
            return json.dumps(["Function", "Details"])
        return json.dumps([self.used_s, 8 * self.now_s]) if source == bench.USED else ""

    def heard(self, seconds: float) -> Iterator[Message]:
        shows_details = "'Details'" in next(cell for cell in reversed(self.cells) if cell != bench.USED)
        self.used_s += (0.04 if shows_details else 0.02) * seconds
        return super().heard(seconds)


def test_each_tab_of_the_wide_view_has_a_cost():
    """In turn, from the processor time of the view's threads while the tab is shown."""
    kernel = Tabbed()
    costs = bench._wide(kernel, 2.0, 2, kernel.clocks)
    assert list(costs) == ["Function", "Details"]
    for tab, found in costs.items():
        assert [round(one.cpu, 6) for one in found] == [4.0 if tab == "Details" else 2.0] * 2
        assert [one.updates for one in found] == [8.0] * 2
    chosen = [cell for cell in kernel.cells if "selected_index" in cell]
    assert len(chosen) == 2 * len(costs)
    assert kernel.cells[-1] == "%fries_stop --of wide --now"


def test_a_run_that_is_over_is_no_figure():
    """Rows that run out would look like a slow display."""
    kernel = Played("finished")
    with pytest.raises(BenchError, match="has finished before"):
        bench._look(kernel, bench.HIDE, 2.0, kernel.clocks)


def test_rows_last_and_cost_no_disk(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """As many links to the one file as it takes; all are gone afterwards, the file is not."""
    file = tmp_path / "payments.parquet"
    file.write_text("rows")
    monkeypatch.setattr(bench, "payments_file", lambda rows: file)
    with bench._rows(2.5 * bench.ROWS / bench.FASTEST) as (source, target):
        assert [link.resolve() for link in source.iterdir()] == [file] * 3
        assert source.parent in bench.Path(target).parents
    assert not source.exists()
    assert file.exists()


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """It names what is missing and what to install, before anything is started."""
    monkeypatch.setattr(pairs, "find_spec", lambda module: None if module == "ipykernel" else module)
    monkeypatch.setattr(bench, "payments_file", lambda rows: pytest.fail("the extra is to be looked for first"))
    assert main(["bench", "display"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "python -m fries_nb bench: ipykernel is not installed; expected the extra `bench`: pip install -e '.[bench]'\n"
    )


def test_the_command_line_needs_no_extra():
    """With an installation without extras the commands can still be listed."""
    gone = "import sys; sys.modules.update(dict.fromkeys(['psutil', 'jupyter_client', 'ipykernel', 'bytewax']))"
    code = f"{gone}; from fries_nb.__main__ import main; main(['--help'])"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "bench" in listed.stdout


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf"])
def test_a_scale_that_is_none_is_refused_in_a_line(capsys: pytest.CaptureFixture[str], scale: str) -> None:
    """No rows, or rows without end."""
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "row", f"--scale={scale}"])
    assert f"got {scale}, expected a number above 0" in capsys.readouterr().err
