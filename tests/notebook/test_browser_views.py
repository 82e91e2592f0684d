"""Views of a run in a real JupyterLab: several at once, after a reload, while a cell runs, and without a kernel.

The runs are stand-ins, which need no Spark; what real runs show is seen in ``test_browser_runs.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from browser_setting import (
    CELLS_TEXT,
    PATIENCE_MS,
    Jupyter,
    cell_with,
    edit_function,
    editor_of,
    opened,
    run_cell,
    saved,
    shown,
)  # fmt: skip
from dashboard_clicks import (
    BROKEN,
    ENDED,
    LOADED,
    every_file,
    in_both_themes,
    is_beside_the_picture,
    replay_by_keyboard,
    sizes_of_the_picture,
    the_whole_run_and_back,
    trouble,
)  # fmt: skip
from playwright.sync_api import BrowserContext, Locator, Page, WebSocketRoute, expect

SUPPORT = str(Path(__file__).parents[1] / "support")  # for a kernel, which has none of pytest's paths
EXTENSION = "%load_ext fries_nb"
SETUP = f"""{EXTENSION}
import sys, time
sys.path.append({SUPPORT!r})
from pathlib import Path
import pytest
from notebook_shell import StandIn, replace_runs
from fries_nb.run import Run
replace_runs(pytest.MonkeyPatch())
formats = get_ipython().display_formatter
for formatter in (formats.ipython_display_formatter, formats.mimebundle_formatter):
    formatter.for_type(StandIn, formatter.for_type(Run))
class Score:
    def process(self, row, state): return row
"""
DECLARE = """%%fries_dataflow fraud
numbers = flow.source("numbers", fn.rate(2_000))
merchants = numbers.map("FM", Score(), key="value")
merchants.map("MC", lambda row: row, key="timestamp").sink("out", fn.memory())
"""
EDITED = DECLARE.replace("lambda row: row", "lambda row: dict(row)")
BRANCHED = f'{DECLARE}merchants.filter("late", bool).sink("alerts", fn.memory())'
RUN = "%fries_run fraud"
SHOW = "# view {}\nrun"
BUSY = """# busy {0}
while not Path("over {0}").exists():
    time.sleep(0.05)
"""
WITHOUT_SUBSHELLS = """# without subshells
from fries_nb.notebook import widgets
widgets._as_asked = lambda data, asked: None
run = flow.run(workers=2)
run
"""
CONSTRAIN = "%fries_constrain FM MC --latency 60"
JUDGE = """# judged
import time
from fries_nb.running.remedies import Proposal
from verdicts import verdict_on
[state] = run.constraints()
run.judged.judge([verdict_on(state.constraint, time.time() + second - 10) for second in range(10)])
run.proposed = (Proposal(state.constraint, run.plan(["FM"]), "60 ms", lambda: run.reconfigure({"FM": dict})),)
"""
WATCHED = """# watched
from fries_nb.dataflow.shown_table import shown_table
asked = []
def rows(operator=None, n=20, *, source=None, timeout=30.0):
    asked.append((operator, source))
    columns = {"CARD_NO": [4000123], "round": [len(asked)], "_side": ["in"], "_source": [("numbers", 0, 7)]}
    return shown_table(columns if source is None else columns | {"_operator": ["MC"]}, hide={"CARD_NO"})
run.rows = rows
"""
HIDDEN = """# hidden
from ipywidgets.widgets.widget import _instances
from fries_nb.notebook.dashboard import StatusLine
[line] = [one for one in _instances.values() if isinstance(one, StatusLine)]
before, news = len(asked), line.news
while line.news < news + 2:  # about two seconds
    time.sleep(0.05)
print(len(asked) - before, "questions")
"""
# What the plot shows at this moment, out of Bokeh's own documents.
LIMITS = """() => (globalThis.Bokeh?.documents ?? []).flatMap(one => [...one._all_models.values()])
  .filter(one => one.name === "limits").flatMap(one => one.data.limit)"""
# Bokeh draws into canvases, in shadow trees where a selector of the page does not reach.
# Lab may scroll back while it restores a notebook, and makes outputs anew, so it is looked for again at each turn.
IN_FRONT = ".jp-NotebookPanel:not(.lm-mod-hidden)"
PLOTS = f"{IN_FRONT} .fries-latency"
DRAWN = """number => {
  const plot = document.querySelectorAll(".jp-NotebookPanel:not(.lm-mod-hidden) .fries-latency")[number];
  if (!plot) return false;
  plot.scrollIntoView();
  const within = root => [...root.querySelectorAll("*")].flatMap(
    one => one.shadowRoot ? [one, ...within(one.shadowRoot)] : [one]);
  return within(plot).some(one => one.tagName === "CANVAS" && one.width > 0 && one.getBoundingClientRect().width > 100);
}"""
VIEWS = 2
# jupyterlab_widgets 3.0 looks for a restored model for two seconds; a look that ends in the moment in which it is
# restored is taken for final. Nothing of ours runs there: who meets it reloads the page, as the README says.
GIVEN_UP = "Error displaying widget: model not found"
expect.set_options(timeout=PATIENCE_MS)


def written(served: Jupyter, name: str, *cells: str) -> None:
    """Make a notebook of these cells, after those that start a run."""
    sources = [SETUP, DECLARE, RUN, *cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, served.directory / name)


def started(page: Page, served: Jupyter, name: str, way: str = "") -> None:
    """Open a notebook, in JupyterLab unless another way is given, and run it up to its run."""
    opened(page, served, way or f"lab/workspaces/{Path(name).stem}/tree", name)  # one that restores no other notebook
    for beginning in ("%load_ext", "%%fries_dataflow", "%fries_run"):
        run_cell(page, beginning)


def all_drawn(page: Page, views: int) -> None:
    """See that the notebook in front has so many plots, and that each has figures in it once it is in sight."""
    expect(page.locator(PLOTS)).to_have_count(views)
    for number in range(views):
        page.wait_for_function(DRAWN, arg=number)


def restored(page: Page, *wanted: Locator) -> None:
    """See that all of these are there after a reload; reload again where Jupyter has given one of them up."""
    given_up = page.get_by_text(GIVEN_UP)
    for _ in range(3):
        for one in wanted:
            one.or_(given_up.first).first.wait_for(state="attached")
        if not given_up.count():
            return
        page.reload()


def all_restored(page: Page, name: str, views: int) -> None:
    """Bring a notebook that was opened again to the front, and see that it has all its plots."""
    tab = page.get_by_role("main").get_by_role("tab", name=name)
    tab.click()
    given_up = page.locator(IN_FRONT).get_by_text(GIVEN_UP)
    for _ in range(3):
        page.locator(PLOTS).nth(views - 1).or_(given_up.first).first.wait_for(state="attached")
        if not given_up.count():
            break
        page.reload()
        tab.click()
    all_drawn(page, views)


def test_no_view_is_blank_in_two_notebooks_after_a_reload(
    served: Jupyter, program: BrowserContext, tmp_path: Path
) -> None:
    """Lab makes views before they are in the page, and those of a notebook behind another without any width."""
    names = ("one.ipynb", "two.ipynb")
    with shown(program, tmp_path) as here:
        page = here.page
        for name in names:
            written(served, name, *(SHOW.format(number) for number in range(VIEWS)))
            started(page, served, name)
            for number in range(VIEWS):
                run_cell(page, f"# view {number}")
            all_drawn(page, VIEWS)
            saved(page, served, name)
        page.goto(served.address(f"lab/workspaces/both/tree/{names[0]}"))
        expect(page.locator(".jp-NotebookPanel")).to_have_count(1)  # a click before Lab has restored it is lost
        page.locator(".jp-FileBrowser").get_by_text(names[1]).dblclick()
        for name in (*reversed(names), *names):
            all_restored(page, name, VIEWS)
        page.reload()
        for name in names:
            all_restored(page, name, VIEWS)
        assert here.errors == []


def test_constraints_are_shown_and_clicks_are_handled_while_a_cell_runs(
    served: Jupyter, program: BrowserContext, tmp_path: Path
) -> None:
    """An operator is selected, its change is planned, and the run is stopped, all before the cell is over.

    Where the kernel has no subshells, the view says that a click waits.
    """
    with shown(program, tmp_path) as here:
        page = here.page
        cells = (CONSTRAIN, SHOW.format(0), JUDGE, BUSY.format(1), WITHOUT_SUBSHELLS, BUSY.format(2))
        written(served, "busy.ipynb", *cells)
        started(page, served, "busy.ipynb")
        run_cell(page, CONSTRAIN)
        view = run_cell(page, "# view 0").locator(".jp-OutputArea")
        expect(view.locator(".fries-dag g.node")).to_have_count(4)
        constraint_in_each_width(page, view, tmp_path)
        prompt = begun(page, "# busy 1")
        view.get_by_role("button", name="Accept").click()
        expect(view.get_by_role("status").filter(has_text="done by fries in")).to_be_visible()
        view.locator('.fries-dag g.node[data-operator="FM"]').click()
        line = editor_of(view, "FM")
        expect(line).to_have_text("dict")  # by the proposal
        line.press("ControlOrMeta+Enter")
        expect(view.get_by_role("status").filter(has_text="nothing has changed yet")).to_be_visible()
        view.get_by_role("button", name="Stop").click()
        expect(view.get_by_role("status").first).to_contain_text(re.compile("stopped|finished"))
        expect(prompt).to_have_text("[*]:")
        (served.directory / "over 1").touch()
        expect(prompt).not_to_have_text("[*]:")
        a_click_waits_without_subshells(page, served)
        assert here.abroad == []
        assert here.errors == []


def test_rows_are_asked_for_while_their_tab_is_in_sight(
    served: Jupyter, program: BrowserContext, tmp_path: Path
) -> None:
    """Of the operator that is selected in the picture; a click shows the way of a row, another tab ends it."""
    with shown(program, tmp_path) as here:
        page = here.page
        written(served, "rows.ipynb", WATCHED, SHOW.format(0), HIDDEN)
        started(page, served, "rows.ipynb")
        run_cell(page, "# watched")
        view = run_cell(page, "# view 0").locator(".jp-OutputArea")
        view.locator('.fries-dag g.node[data-operator="FM"]').click()
        view.locator(".lm-TabBar-tab", has_text="Rows").click()
        rows, way = (view.get_by_role("region", name=name, exact=True) for name in ("Newest rows", "Way of the row"))
        rows.evaluate("one => one.scrollIntoView()")
        expect(rows.locator("tbody td.number")).to_have_text(re.compile(r"^([4-9]|\d\d+)$"))  # refreshed some times
        expect(rows.locator("thead th")).to_have_text(["_side", "CARD_NO", "round", "_source"])
        expect(rows.locator("tbody td").first).to_have_text("•••")
        rows.locator("tbody tr").click()
        expect(way.locator("tbody th")).to_have_text("MC")
        expect(rows.locator("tbody tr")).to_have_attribute("aria-selected", "true")
        page.screenshot(path=tmp_path / "rows.png")
        view.locator(".lm-TabBar-tab", has_text="Details").click()
        expect(run_cell(page, "# hidden").locator(".jp-OutputArea")).to_contain_text("0 questions")
        assert here.errors == []


FORMER = ["class Score:", "    def process(self, row, state): return row", "", "Score()"]
NEW = ["class Score:", "    def process(self, row, state):", "        return dict(row)", "", "Score()"]


def test_a_function_is_edited_tried_applied_written_back_and_undone(
    served: Jupyter, program: BrowserContext, tmp_path: Path
) -> None:
    """An error is underlined at its line; the class of a cell gets the text that runs; Revert gives the former one."""
    with shown(program, tmp_path) as here:
        page = here.page
        written(served, "edit.ipynb", SHOW.format(0), ENDED)
        started(page, served, "edit.ipynb")
        view = run_cell(page, "# view 0").locator(".jp-OutputArea")
        view.locator('.fries-dag g.node[data-operator="FM"]').click()
        editor = editor_of(view, "FM")
        lines = editor.locator(".cm-line")
        expect(lines).to_have_text(FORMER)
        edit_function(page, view, "FM", "class Score:\ndef process(self, row, state):\nreturn dict(row) +")
        expect(editor.locator(".cm-lintRange-error").first).to_be_visible()
        expect(view.get_by_role("alert").filter(has_text="FM, line 3: ")).to_be_visible()
        edit_function(page, view, "FM", "class Score:\ndef process(self, row, state):\nreturn dict(row)")
        page.keyboard.insert_text("\n\nScore()")
        expect(lines).to_have_text(NEW)
        expect(view.locator(".fries-preview")).to_contain_text("FM: 1 of 1 row differs; none dropped")
        view.get_by_role("button", name="Apply", exact=True).click()
        expect(view.get_by_role("status").filter(has_text="done by fries in").first).to_be_visible()
        expect(view.get_by_role("button", name="What runs now")).to_have_count(0)
        view.get_by_role("button", name="Write it back into the cell").click()
        expect(view.get_by_text("The cell has the new text")).to_be_visible()
        expect(cell_with(page, "class Score:").locator(CELLS_TEXT)).to_contain_text("return dict(row)")
        page.screenshot(path=tmp_path / "written.png")
        view.locator(".lm-TabBar-tab", has_text="Changes").click()
        view.get_by_role("button", name="Revert").click()
        view.locator(".lm-TabBar-tab", has_text="Function").click()
        expect(lines).to_have_text(FORMER)
        expect(view.locator(".fries-preview")).to_have_count(0)
        cell_with(page, "# ended").locator(CELLS_TEXT).click()
        page.keyboard.press("Shift+Enter")
        expect(view.get_by_role("alert").filter(has_text="No news from the kernel since")).to_be_visible()
        page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()  # Lab says that the kernel has died
        editor.click()
        page.keyboard.type("x")
        expect(lines).to_have_text(FORMER)
        assert here.abroad == []
        assert here.errors == []


def constraint_in_each_width(page: Page, view: Locator, pictures: Path) -> None:
    """The plot has the limit of a constraint, the panel a drawing that fits."""
    view.locator(".lm-TabBar-tab", has_text="Constraints").click()
    panel = view.locator(".fries-constraints")
    expect(panel).to_contain_text("not yet judged: at most 60 ms over 15 s")
    run_cell(page, "# judged")
    expect(panel).to_contain_text("violated: mean 50 ms, worst 75 ms")
    expect(panel.locator("rect.bar")).to_have_count(4 + 3)  # FM, the edge in two parts, MC; and their sum by cause
    page.wait_for_function(f"({LIMITS})().includes(60)")
    for width, drawn in ((1280, 760), (800, 360)):
        page.set_viewport_size({"width": width, "height": 900})
        expect(panel.locator("svg")).to_have_attribute("width", str(drawn))
        panel.evaluate("one => one.scrollIntoView()")
        page.screenshot(path=pictures / f"constraints-{width}.png")
        drawing, frame = panel.locator("svg").bounding_box(), view.locator(".fries-live").bounding_box()
        assert drawing
        assert frame
        assert drawing["x"] >= frame["x"]
        assert drawing["x"] + drawing["width"] <= frame["x"] + frame["width"] + 1


def a_click_waits_without_subshells(page: Page, served: Jupyter) -> None:
    """The view says so, and takes the click when the cell is over."""
    view = run_cell(page, "# without").locator(".jp-OutputArea")
    expect(view.locator(".fries-dag g.node")).to_have_count(4)
    begun(page, "# busy 2")
    view.locator('.fries-dag g.node[data-operator="FM"]').click()
    waits = view.get_by_text("this click takes effect after the cell")
    expect(waits).to_be_visible()
    line = editor_of(view, "FM")
    expect(line).to_have_count(0)
    (served.directory / "over 2").touch()
    expect(line).to_be_visible()
    expect(waits).to_have_count(0)


def begun(page: Page, beginning: str) -> Locator:
    """Start the cell that holds this text, and give its prompt, which says that it runs."""
    cell = cell_with(page, beginning)
    cell.locator(CELLS_TEXT).click()
    page.keyboard.press("Shift+Enter")
    prompt = cell.locator(".jp-InputPrompt")
    expect(prompt).to_have_text("[*]:")
    return prompt


def test_a_plan_is_read_and_stepped_through_and_a_saved_notebook_shows_its_pictures(
    served: Jupyter, program: BrowserContext, tmp_path: Path
) -> None:
    """Words beside the picture, a counter-example in steps; without its kernel a view's picture takes its place."""
    with shown(program, tmp_path) as here:
        page = here.page
        written(served, "kept.ipynb", SHOW.format(0), "%fries_plan FM MC", "# again\n%fries_plan MC FM", EDITED)
        started(page, served, "kept.ipynb")
        view = run_cell(page, "# view 0").locator(".jp-OutputArea")
        expect(view.locator(".fries-live")).to_be_visible()
        picture = view.locator(".jp-RenderedSVG img")
        expect(picture).to_be_hidden()
        plan = run_cell(page, "%fries_plan FM MC").locator(".jp-OutputArea")
        a_plan_has_its_words(plan)
        again = run_cell(page, "# again").locator(".jp-OutputArea")
        a_counter_example_is_stepped_through(page, plan.locator("form.fries-steps"), again.locator("form.fries-steps"))
        difference = run_cell(page, "dict(row)").locator(".jp-OutputArea")
        button = difference.get_by_role("button", name="Apply")
        expect(button).to_be_visible()
        saved(page, served, "kept.ipynb")
        assert here.errors == []
        served.end_kernels()
        page.reload()
        error = view.get_by_text("model not found")
        expect(error).to_have_count(1)
        expect(error).to_be_hidden()
        expect(picture).to_be_visible()
        changed = difference.locator('svg g.node[data-operator="MC"]')
        changed.scroll_into_view_if_needed()
        expect(changed).to_have_attribute("data-state", "changed head mcs")
        lost = difference.get_by_text("model not found")
        expect(lost).to_have_count(1)
        expect(lost).to_be_hidden()
        expect(button).to_have_count(0)


def a_plan_has_its_words(plan: Locator) -> None:
    """Lab shows one kind of a bundle; the one that it takes says who is told, what naive would break, and why."""
    for words in ("FM", "not safe", "fries sends", "Next: %fries_reconfigure FM=new_function MC=new_function"):
        expect(plan).to_contain_text(words)
    operator = plan.locator('svg g.node[data-operator="FM"][data-state="target head mcs"]')
    expect(operator.locator("title")).to_contain_text("target of the change")


def a_counter_example_is_stepped_through(page: Page, first: Locator, second: Locator) -> None:
    """By its buttons and by the arrow keys, in each of two displays on its own; Enter leaves the page as it is."""
    for steps in (first, second):
        expect(steps.locator("section:visible")).to_contain_text("t1 passes numbers.")
    second.get_by_text("Step 2 of 6").locator("..").click()  # labelled Next
    expect(second.locator("section:visible")).to_contain_text("FM processes t1 with its old function.")
    for key, said in (("ArrowRight", "reaches FM"), ("Enter", "reaches FM"), ("ArrowRight", "reaches MC")):
        page.keyboard.press(key)
        expect(second.locator("section:visible")).to_contain_text(said)
    second.get_by_text("Step 3 of 6").locator("..").click()  # labelled Previous
    expect(second.locator("section:visible")).to_contain_text("reaches FM")
    expect(first.locator("section:visible")).to_contain_text("t1 passes numbers.")


def test_clicks_are_answered_in_their_order_though_no_message_counts_as_handled(
    served: Jupyter, program: BrowserContext, tmp_path: Path
) -> None:
    """As if the kernel were at work on the first message for ever: the page then holds the state of a widget back.

    Operators, texts and rows are chosen by messages of their own, so a click on a button never overtakes them. A tab
    says that it is shown by a state; it fills without. In Notebook 7, whose view has its plot and picture as in Lab.
    """

    def forward(socket: WebSocketRoute) -> None:
        kernel = socket.connect_to_server()
        kernel.on_message(lambda message: None if handled(message) else socket.send(message))

    with shown(program, tmp_path) as here:
        page = here.page
        page.route_web_socket(re.compile("/api/kernels/.*/channels"), forward)
        written(served, "slow.ipynb", SHOW.format(0))
        started(page, served, "slow.ipynb", "notebooks")
        view = run_cell(page, "# view 0").locator(".jp-OutputArea")
        all_drawn(page, 1)
        for operator in ("FM", "MC"):
            view.locator(f'.fries-dag g.node[data-operator="{operator}"]').click()
        for operator, function in (("FM", "Score()"), ("MC", "dict")):
            edit_function(page, view, operator, function)
        for scheduler in ("multiversion", "naive", "epoch"):
            view.get_by_label("Scheduler").select_option(scheduler)
        for guard in ("0", "60", "2.5"):
            view.get_by_label("Guard (s)").fill(guard)
        view.get_by_role("button", name="Apply").click()
        expect(view.get_by_role("status").filter(has_text="done by epoch in")).to_be_visible()
        for tab, rows in (("Details", 6), ("Changes", 1), ("Details", 6), ("Changes", 1)):
            view.locator(".lm-TabBar-tab", has_text=tab).click()
            expect(view.locator(".fries-table tbody tr:visible")).to_have_count(rows)
        expect(view.get_by_role("row", name="u1")).to_contain_text("FM, MC")
        assert here.errors == []


def handled(message: str | bytes) -> bool:
    """Whether a message to the page says that the kernel has handled one of the page's widgets."""
    plain = message.encode() if isinstance(message, str) else message
    return b'"idle"' in plain and b'"comm_msg"' in plain


def test_every_button_of_the_dashboard(served: Jupyter, program: BrowserContext, tmp_path: Path) -> None:
    """Sizes, tabs, replay, revert, cancel, and files; a panel that fails, and in the end a kernel that has died."""
    with shown(program, tmp_path) as here:
        page = here.page
        written(served, "all.ipynb", "%fries_dashboard", LOADED, BROKEN, ENDED)
        started(page, served, "all.ipynb")
        view = run_cell(page, "%fries_dashboard").locator(".jp-OutputArea")
        expect(view.locator('.fries-table[aria-label="Operators"] tbody tr')).to_have_count(4)
        run_cell(page, "# loaded")
        view.locator(".lm-TabBar-tab", has_text="Details").click()
        expect(view.get_by_role("row", name="FM")).to_contain_text("90 %")
        the_whole_run_and_back(page, view)
        sizes_of_the_picture(page, view)
        view.locator(".lm-TabBar-tab", has_text="State").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(view.get_by_role("row", name="u1")).to_have_attribute("aria-selected", "true")
        in_both_themes(page, view, tmp_path)
        replay_by_keyboard(page, view)
        view.get_by_role("button", name="Revert").click()
        expect(view.get_by_role("row", name="u2")).to_have_attribute("aria-selected", "true")
        every_file(page, view)
        trouble(page, view, tmp_path)
        assert here.abroad == []


def test_the_view_stays_beside_the_notebook(served: Jupyter, program: BrowserContext, tmp_path: Path) -> None:
    """In a wide JupyterLab: while cells run, after a reload, and where the user has put it; elsewhere in its cell."""
    written(served, "beside.ipynb", "%fries_reconfigure FM=dict", "# further\nprint(*range(60), sep='\\n')", BRANCHED)
    place = served.directory / "beside.ipynb"
    place.write_text(place.read_text().replace(EXTENSION, f"{EXTENSION}\\n%config FriesMagics.beside = True"))
    with shown(program, tmp_path) as here:
        page = here.page
        page.set_viewport_size({"width": 1280, "height": 800})
        started(page, served, "beside.ipynb")
        panel, cell = page.locator(".jupyterlab-sidecar"), page.locator(".jp-Notebook")
        expect(panel.locator(".fries-status")).to_contain_text("fraud: running")
        expect(cell.locator(".fries-status")).to_have_count(0)
        expect(cell.locator(".fries-beside")).to_contain_text("fraud is shown beside the notebook")
        for beginning in ("%fries_reconfigure", "# further"):
            run_cell(page, beginning)
        expect(panel.locator(".fries-status")).to_be_in_viewport()
        expect(panel).to_contain_text("FM by fries")
        panel.get_by_role("button", name="Undo").click()
        expect(panel).to_contain_text("changes: 2 done")
        page.screenshot(path=tmp_path / "beside.png")
        in_a_narrow_panel(page, panel)
        cell.get_by_text("# further").click()  # what is saved is what is in front
        saved(page, served, "beside.ipynb")
        page.reload()
        restored(page, panel.locator(".fries-status"), cell.get_by_role("button", name="Show it here"))
        expect(panel.locator(".fries-status")).to_contain_text("changes: 2 done")
        cell.get_by_role("button", name="Show it here").click()
        expect(cell.locator(".fries-status")).to_contain_text("changes: 2 done")
        expect(panel).to_have_count(0)
        page.set_viewport_size({"width": 1280, "height": 300})
        strip = page.locator(".fries-strip")
        cell.locator(".jp-OutputArea pre").last.evaluate("one => one.scrollIntoView({ block: 'end' })")
        expect(strip).to_contain_text("FM by fries")
        strip.get_by_role("button", name="Go to it").click()
        expect(cell.locator(".fries-status")).to_be_in_viewport()
        expect(strip).to_have_count(0)
        page.set_viewport_size({"width": 1280, "height": 800})
        cell.get_by_role("button", name="Beside the notebook").click()
        expect(panel.locator(".fries-status")).to_contain_text("changes: 2 done")
        expect(cell.locator(".fries-status")).to_have_count(0)
        assert here.errors == []


def in_a_narrow_panel(page: Page, panel: Locator) -> None:
    """A difference moves nothing; with less room the plot is below the picture, and a click shows the drawer."""
    plot = panel.locator(".fries-latency")
    assert is_beside_the_picture(plot)
    run_cell(page, "alerts")
    expect(panel.locator('.fries-dag g.node[data-operator="alerts"]')).to_have_attribute("data-state", "added")
    assert is_beside_the_picture(plot)
    panel.get_by_role("button", name="Dismiss").click()
    page.set_viewport_size({"width": 1100, "height": 800})
    panel.locator(".fries-status").evaluate("one => one.scrollIntoView()")
    assert not is_beside_the_picture(plot)
    expect(panel.locator(".fries-drawer")).not_to_be_in_viewport()
    panel.locator('.fries-dag g.node[data-operator="FM"]').click()
    expect(panel.locator(".fries-drawer").get_by_text("FM map, ")).to_be_in_viewport()
    page.set_viewport_size({"width": 1280, "height": 800})
