"""The tabs Rows and State: what they ask, when, and what they show; the run is a stand-in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from notebook_shell import StandIn, show_tab
from patience import PATIENCE_S, until

from fries_nb.dataflow.shown_table import shown_table
from fries_nb.errors import RunError
from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.form import TypedFunctions
from fries_nb.notebook.look_panels import (
    BEAT_MS,
    MOST_COLUMNS,
    NONE_CHOSEN,
    NOT_YET,
    LookThread,
    RowsPanel,
    StatePanel,
    text_table,
)
from fries_nb.notebook.panels import RunMoment, TableView
from fries_nb.protocol.messages import Report, WorkerId

pytestmark = pytest.mark.usefixtures("with_fraud")


class Clock:
    """A clock that goes on by a second whenever it is read, so that each question is due."""

    def __init__(self, step_s: float = 1.0) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        """The time."""
        self.now_s += self.step_s
        return self.now_s


class Seen:
    """In place of ``run.rows``: the rows of an audited run, or an error; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []
        self.error: BaseException | None = None
        self.audited = True

    def __call__(self, operator: Any = None, n: int = 20, *, source: Any = None, timeout: float) -> Any:
        """Two rows, or the way of one."""
        assert timeout <= 5
        self.asked.append((operator, source))
        if self.error is not None:
            raise self.error
        origins = [("numbers", 0, 7), ("numbers", 0, 8)] if self.audited else [None, None]
        columns = {"CARD_NO": [4000123, 4000124], "n": [1, 2], "_side": ["in", "out"], "_source": origins}
        if source is not None:
            columns |= {"_operator": ["FM", "MC"]}
        return shown_table(columns, hide={"CARD_NO"})


@pytest.fixture
def seen(run: StandIn, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The rows of the run."""
    rows = Seen()
    monkeypatch.setattr(run, "rows", rows)
    return rows


@pytest.fixture
def panel(run: StandIn, seen: Seen) -> RowsPanel:
    """A panel of FM that may ask at any time."""
    panel = RowsPanel(run, LookThread(Clock()))  # type: ignore[arg-type]
    panel.choose(["FM"])
    return panel


@pytest.fixture
def view(run: StandIn, seen: Seen) -> Iterator[RunView]:
    """A view of the run that is updated often."""
    view = RunView(run, TypedFunctions(run.graph, {}), period_s=lambda: 0.01)  # type: ignore[arg-type]
    yield view
    view.close()
    ended("fries-view")


def ended(*names: str) -> None:
    """Wait for our threads of these names."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def beat(table: TableView) -> None:
    """A page says that the table is in sight; the answer has come when it returns."""
    table._receive(None, {"event": "seen"}, [])
    ended("fries-look")


def click(table: TableView, key: str) -> None:
    """A click on a row."""
    table._receive(None, {"event": "select", "key": key}, [])
    ended("fries-look")


def cells(table: TableView) -> list[list[str]]:
    """The rows of a table, keys first."""
    found: list[list[str]] = json.loads(table.rows)
    return found


def test_nothing_is_asked_unless_a_page_shows_the_tab(view: RunView, run: StandIn, seen: Seen) -> None:
    """Neither by updates of the view, however many, nor by its turns through the tabs, nor by the end of the run."""
    show_tab(view, "Rows")
    view.dag.selected = ["FM"]
    run.hear("out", 0, 4.0, 1.0)
    run.hear("out", 100, 4.0, 2.0)
    until(lambda: "100 tuples/s" in view.status.value)
    run.state = "finished"
    ended("fries-view")
    assert seen.asked == []
    assert view.rows.table.beat_ms == BEAT_MS


def test_a_page_that_shows_the_tab_is_given_the_rows_of_the_selected_operator(view: RunView, seen: Seen) -> None:
    """The last one that was selected; a closed view asks nothing."""
    beat(view.rows.table)
    assert (view.rows.table.empty, seen.asked) == (NONE_CHOSEN, [])
    view.dag.selected = ["MC", "FM"]
    assert (view.rows.operator, view.states.operator) == ("FM", "FM")
    beat(view.rows.table)
    assert seen.asked == [("FM", None)]
    assert view.rows.table.columns == ["_side", "CARD_NO", "#n", "_source"]
    view.dag.selected = []
    assert view.rows.operator == "FM"
    view.close()
    beat(view.rows.table)
    assert len(seen.asked) == 1


def test_hidden_columns_are_masked(panel: RowsPanel) -> None:
    """In rows, and in the way of a row."""
    beat(panel.table)
    click(panel.table, cells(panel.table)[0][0])
    for table in (panel.table, panel.way):
        assert "•••" in table.rows
        assert "4000" not in table.rows


def test_a_click_shows_the_way_of_a_row(panel: RowsPanel, seen: Seen) -> None:
    """Once: the rows go on, with the row still selected; another click takes it back."""
    panel.choose(["FM"])
    beat(panel.table)
    key = cells(panel.table)[1][0]
    click(panel.table, key)
    assert seen.asked[-1] == (None, ("numbers", 0, 8))
    assert panel.way.columns[0] == "_operator"
    assert not panel.way.selectable
    beat(panel.table)
    assert seen.asked[-1] == ("FM", None)
    assert [row[0] for row in cells(panel.table)][1] == key == panel.table.selected
    click(panel.table, "")
    assert cells(panel.way) == []
    assert len(seen.asked) == 3


def test_rows_without_origin_have_no_way(panel: RowsPanel, seen: Seen) -> None:
    """As those of a run that is not audited."""
    seen.audited = False
    beat(panel.table)
    assert len(cells(panel.table)) == 2
    assert not panel.table.selectable


@pytest.mark.parametrize("error", [RunError("FM has not begun"), TimeoutError("FM[0] has not answered within 2 s")])
def test_an_error_is_said_in_place_of_the_table(panel: RowsPanel, seen: Seen, error: Exception) -> None:
    """And the next answer takes its place."""
    beat(panel.table)
    seen.error = error
    beat(panel.table)
    assert (cells(panel.table), panel.table.empty) == ([], str(error))
    seen.error = None
    beat(panel.table)
    assert len(cells(panel.table)) == 2
    assert panel.table.empty == ""


def test_one_question_is_asked_at_a_time_and_twice_a_second(run: StandIn) -> None:
    """A page that asks more often, or a worker that is slow, makes no queue; nor does the caller wait."""
    clock, asked, goes_on = Clock(0.0), list[float](), threading.Event()
    looks = LookThread(clock)

    def question() -> None:
        asked.append(clock.now_s)
        assert goes_on.wait(PATIENCE_S)

    assert looks.ask(question)
    clock.now_s = 100.0
    assert not looks.ask(question)
    assert not looks.ask(question, at_once=True)
    goes_on.set()
    ended("fries-look")
    assert looks.ask(question)
    ended("fries-look")
    clock.now_s += 0.25
    assert not looks.ask(question)
    assert looks.ask(question, at_once=True)
    ended("fries-look")
    clock.now_s += BEAT_MS / 1_000
    assert looks.ask(question)
    ended("fries-look")
    assert asked == [0.0, 100.0, 100.25, 100.75]


def test_a_run_that_is_over_is_asked_once_of_each_operator(panel: RowsPanel, run: StandIn, seen: Seen) -> None:
    """What its hosts have left does not change; the way of a row can still be seen."""
    panel.choose(["FM"])
    run.state = "finished"
    for _ in range(3):
        beat(panel.table)
    assert seen.asked == [("FM", None)]
    click(panel.table, cells(panel.table)[0][0])
    beat(panel.table)
    panel.choose(["MC"])
    assert panel.table.empty == NOT_YET
    for _ in range(3):
        beat(panel.table)
    assert seen.asked[1:] == [(None, ("numbers", 0, 7)), ("MC", None)]


def test_an_answer_of_an_operator_that_is_not_chosen_any_more_is_not_shown(panel: RowsPanel, run: StandIn) -> None:
    """It would be taken for one of the other."""
    rows: Callable[..., Any] = run.rows
    begun, goes_on = threading.Event(), threading.Event()

    def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return rows(*args, **options)

    run.rows = slow  # type: ignore[method-assign]
    panel.choose(["FM"])
    panel.seen()
    assert begun.wait(PATIENCE_S)
    panel.choose(["MC"])
    goes_on.set()
    ended("fries-look")
    assert cells(panel.table) == []
    beat(panel.table)
    assert len(cells(panel.table)) == 2


def test_states_and_their_sizes_are_shown(run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes less often, since all operators are measured for them; the error of one leaves the other."""
    sizes: list[float] = []
    measured = run.state_sizes

    def counted(timeout: float) -> Any:
        sizes.append(timeout)
        return measured()

    monkeypatch.setattr(run, "state_sizes", counted)
    panel = StatePanel(run, LookThread(Clock()), Clock(0.9))  # type: ignore[arg-type]
    panel.choose(["FM"])
    for _ in range(4):
        beat(panel.table)
    assert len(sizes) == 2
    assert [row[1:] for row in cells(panel.table)] == [["7", "FM"]]
    assert [row[1:] for row in cells(panel.sizes)] == [["FM", "1"]]

    def none(*_: Any) -> Any:
        raise RunError("FM keeps no state; those that do: MC")

    monkeypatch.setattr(type(run.looks), "table", none)
    beat(panel.table)
    assert panel.table.empty == "FM keeps no state; those that do: MC"
    assert len(cells(panel.sizes)) == 1


def test_dead_letters_are_counted(run: StandIn) -> None:
    """By operator, without a question to its workers."""
    panel = StatePanel(run, LookThread())  # type: ignore[arg-type]
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    assert panel.letters.value == ""
    with run.reporting:
        run.reported.add(Report(WorkerId("FM", 0), 10, 0, failed=1_200), 1.0)
    panel.update(RunMoment(run))  # type: ignore[arg-type]
    assert "Dead letters so far: FM 1,200; run.dead_letters(" in panel.letters.value


def test_wide_rows_and_long_values_are_cut() -> None:
    """What is said of each row stays, and how many columns are left out is told."""
    values = {f"c{number}": ["x" * 1_000] for number in range(MOST_COLUMNS + 6)}
    found = text_table(shown_table(values | {"_side": ["in"], "_worker": [1]}))
    assert found.columns[0] == "_side"
    assert found.columns[-2:] == ("#_worker", "6 more columns")
    assert len(found.columns) == MOST_COLUMNS + 3
    assert max(map(len, found.rows[0])) <= 40
