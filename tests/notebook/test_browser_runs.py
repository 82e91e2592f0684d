"""A displayed run in JupyterLab and Voila: points move, and clicks change operators while it runs.

A view in Notebook 7 is seen in ``test_browser_views.py``.
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
from dashboard_clicks import BOTH, every_file, every_tab, is_beside_the_picture, replay, revert, sizes_of_the_picture
from notebook_files import bare
from playwright.sync_api import BrowserContext, Locator, Page, expect

WIDE, NARROW = 1280, 800

# What the plot shows at this moment, out of Bokeh's own documents.
SHOWN = """name => {
  const documents = globalThis.Bokeh?.documents ?? [];
  const sources = documents.flatMap(one => [...one._all_models.values()]).filter(one => one.name === name);
  return sources.length ? sources[0].data : null;
}"""
# The number of lines of requests and ends of changes; those of checkpoints are dotted.
CHANGED = f"({SHOWN})('lines').dash.filter(dash => dash !== 'dotted').length"
# Bokeh's figures stand in shadow trees, where a selector of the page does not reach.
WIDE_ENOUGH = """least => {
  const within = root => [...root.querySelectorAll("*")].flatMap(
    one => one.shadowRoot ? [one, ...within(one.shadowRoot)] : [one]);
  const figures = within(document).filter(one => one.classList.contains("bk-Figure"));
  return figures.length > 0 && figures.every(one => one.offsetWidth >= least);
}"""
LEAST_WIDTH = 250
# Icons and formulas, which a page of Voila asks for whatever it shows, and does without.
VOILAS_OWN = re.compile(
    r"https://cdn\.jsdelivr\.net/npm/(@fortawesome/fontawesome-free|font-awesome)@[^?]*\.css"
    r"|https://cdnjs\.cloudflare\.com/ajax/libs/(font-awesome|mathjax)/"
)
QUICKSTART = {
    "FM": "fn.Update(MerchantModel(window=10), state=pad_to_ten, back=keep_five)",
    "MC": "Combine([0.4, 0.4, 0.2])",
}
RUNS = {"FM": "MerchantModel(window=5", "MC": "Combine([0.4, 0.6]"}
OFFERED = {"FM": "fast", "MC": "merchants first"}
BRANCH = 'flow.stream("MC").filter("MC_filter", lambda row: True).sink("MC_filtered", fn.memory())'
ARRIVED = """# arrived
while not run.output("MC_filtered").count():
    run.checkpoint()
print("rows of the branch:", run.output("MC_filtered").count() > 0)"""
expect.set_options(timeout=PATIENCE_MS)


def test_the_quickstart_in_jupyterlab(served: Jupyter, program: BrowserContext, tmp_path: Path) -> None:
    """Run, look, plan, apply, stop: what the README promises a newcomer, without any other machine."""
    with shown(program, tmp_path) as here:
        page = here.page
        opened(page, served, "lab/tree", "00_quickstart.ipynb")
        for beginning in ("%load_ext", "%%fries_dataflow"):
            run_cell(page, beginning)
        view = run_cell(page, "%fries_run").locator(".jp-OutputArea")
        until_points_move(page)
        in_both_widths(page, view, tmp_path, "running")
        a_source_pauses_and_goes_on(view)
        replace_by_clicks(view, QUICKSTART)
        until_the_change_is_seen(page)
        in_both_widths(page, view, tmp_path, "changed")
        until_stopped(view)
        kept = saved(page, served, "00_quickstart.ipynb")
        assert re.search(r"[\d.]+ m?s: FM, MC by fries", kept)  # in the picture that stays
        an_edited_cell_is_applied(page, tmp_path)
        assert here.abroad == []
        assert here.errors == []


def test_two_visitors_of_the_app_in_voila(served: Jupyter, program: BrowserContext, tmp_path: Path) -> None:
    """Voila runs the notebook for each: two kernels, two Sparks, two live views; what one changes, no other sees.

    The dark theme of the page holds for pictures too, whatever the system has. Visitors choose what the author offers.
    """
    notebook = bare("10_dashboard_app.ipynb")
    notebook.cells.append(nbformat.v4.new_code_cell("%fries_plan FM MC"))
    nbformat.write(notebook, served.directory / "watch.ipynb")
    assert program.browser
    with (
        shown(program, tmp_path) as first,
        program.browser.new_context(viewport={"width": WIDE, "height": 900}) as elsewhere,
        shown(elsewhere, tmp_path) as second,
    ):
        for visitor in (first, second):
            visitor.page.goto(f"{served.address('voila/render/watch.ipynb')}&theme=dark", wait_until="commit")
        for visitor in (first, second):
            until_points_move(visitor.page)
            expect(visitor.page.locator(".fries-live").get_by_role("textbox")).to_have_count(0)
        choose_functions(first.page.locator("body"), OFFERED)
        until_the_change_is_seen(first.page)
        in_both_widths(first.page, first.page.locator("body"), tmp_path, "changed")
        every_button(first.page, first.page.locator("body"))
        paper = first.page.locator("svg .paper").last
        assert paper.evaluate("one => getComputedStyle(one).fill") == "rgb(21, 25, 30)"
        assert second.page.evaluate(CHANGED) == 0
        choose_functions(second.page.locator("body"), {"MC": "customers first"})
        until_stopped(first.page.locator("body"))
        until_points_move(second.page)
        second.page.wait_for_function(f"({SHOWN})('labels').words.some(words => words.includes('MC by fries'))")
        # Its change and the way back, in the status: the plot may have lost the first one on a slow machine.
        expect(first.page.locator("body")).to_contain_text("changes: 2 done")
        for visitor in (first, second):
            assert [address for address in visitor.abroad if not VOILAS_OWN.match(address)] == []
            assert visitor.errors == []


def an_edited_cell_is_applied(page: Page, pictures: Path) -> None:
    """A branch is written into the cell of a run by the canvas's menu; its difference is applied on the canvas."""
    edit(page, "%fries_run fraud", "%fries_run fraud --commit-interval 0.5 --audit\nrun")
    view = run_cell(page, "%fries_run fraud").locator(".jp-OutputArea")
    a_branch_is_added_by_keys(page, view)
    edit(page, "%%fries_dataflow", None, "  # edited")
    shown = run_cell(page, "%%fries_dataflow").locator(".jp-OutputArea")
    for place in (shown, view.locator(".fries-dag")):
        for name, state in (("MC_filter", "added"), ("MC_filtered", "added"), ("MC", "target head mcs")):
            expect(place.locator(f'svg g.node[data-operator="{name}"]')).to_have_attribute("data-state", state)
    expect(shown).to_contain_text("MC at the message: its out-edges change")
    expect(shown).to_contain_text("predicted delay")
    expect(shown.get_by_role("button", name="Apply")).to_be_visible()
    line = view.get_by_text("MC_filter, MC_filtered added")
    for part, name in ((shown.locator("figure"), "difference"), (line, "canvas")):
        part.evaluate("one => one.scrollIntoView()")
        page.screenshot(path=pictures / f"{name}.png")
    view.get_by_role("button", name="Apply").first.click()
    expect(shown).to_contain_text("done by fries in")
    expect(line).to_have_count(0)
    expect(view.locator('.fries-dag g.node[data-operator="MC_filter"]')).not_to_have_attribute("data-state", "added")
    page.screenshot(path=pictures / "applied.png")
    edit(page, "%fries_plan FM MC", ARRIVED)
    expect(run_cell(page, "# arrived")).to_contain_text("rows of the branch: True")
    edit(page, "# arrived", "%fries_stop --now")
    run_cell(page, "%fries_stop --now")


def a_branch_is_added_by_keys(page: Page, view: Locator) -> None:
    """The menu has what can follow the selected operator, and writes it into the cell; a right click opens it, too."""
    menu, node = view.locator(".fries-canvas-menu"), view.locator('.fries-dag g.node[data-operator="MC"]')
    expect(menu.get_by_role("button", name="Add ...")).to_be_disabled()
    node.click(button="right")
    expect(menu.get_by_role("menuitem").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu.get_by_role("menuitem")).to_have_count(0)
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    expect(menu.get_by_role("menuitem", name="Map behind MC")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(cell_with(page, "%%fries_dataflow").locator(CELLS_TEXT)).to_contain_text(BRANCH)
    expect(menu).to_contain_text("The line is in the cell")


def edit(page: Page, beginning: str, text: str | None, more: str = "") -> None:
    """Write a text into the first cell that holds this one, in place of what is there, or behind it."""
    cell_with(page, beginning).locator(CELLS_TEXT).click()
    page.keyboard.press("ControlOrMeta+a" if text is not None else "ControlOrMeta+End")
    page.keyboard.insert_text(more if text is None else text)


def every_button(page: Page, view: Locator) -> None:
    """Click the buttons for sizes, tabs, replay, revert and files, and see what each does."""
    sizes_of_the_picture(page, view)
    every_tab(view)
    replay(view)
    revert(view)
    every_file(page, view)


def last_point(page: Page) -> float:
    """Time of the newest point in the plot, seconds since the run began."""
    page.wait_for_function(f"({SHOWN})('points')?.at.length > 2")
    return float(page.evaluate(f"({SHOWN})('points').at.at(-1)"))


def until_points_move(page: Page) -> None:
    """Wait until the plot shows points from a second later than now."""
    page.wait_for_function(f"({SHOWN})('points').at.at(-1) > {last_point(page) + 1}")


def a_source_pauses_and_goes_on(view: Locator) -> None:
    """By the panel of the source, while it alone is selected."""
    source = view.locator('.fries-dag g.node[data-operator="payments"]')
    pause = view.get_by_role("button", name="Pause")
    expect(pause).to_be_hidden()
    source.click()
    told = view.get_by_role("status").filter(has_text="payments reads ")
    number = view.get_by_label("rows a second")
    expect(told).to_contain_text(re.compile("not behind|behind for"))
    before = number.input_value()
    pause.click()
    expect(told).to_contain_text("paused")
    expect(number).to_have_value("0")
    view.get_by_role("button", name="Go on").click()
    expect(told).not_to_contain_text("paused")
    expect(number).to_have_value(before)
    source.click()
    expect(pause).to_be_hidden()


def replace_by_clicks(view: Locator, functions: dict[str, str]) -> None:
    """Choose the operators in the picture, plan, edit the function of each, see what it makes of rows, apply."""
    select_operators(view, functions)
    for operator, function in functions.items():
        expect(editor_of(view, operator)).to_contain_text(RUNS[operator])
        edit_function(view.page, view, operator, function)
        preview = view.locator(".fries-preview")
        expect(preview).to_contain_text(re.compile(rf"{operator}: \d+ of \d+ rows? differs?; none dropped"))
        expect(preview.locator("tbody tr").first).to_be_visible()
    apply(view)
    for operator, function in functions.items():
        expect(editor_of(view, operator)).to_have_text(function)
        expect(view.locator(".fries-editor", has_text=operator).get_by_role("button")).to_have_count(0)


def choose_functions(view: Locator, functions: dict[str, str]) -> None:
    """Choose operators in the picture, plan, choose a function for each by its label, apply."""
    select_operators(view, functions)
    for operator, label in functions.items():
        view.get_by_label(operator, exact=True).and_(view.get_by_role("combobox")).select_option(label)
    apply(view)


def select_operators(view: Locator, functions: dict[str, str]) -> None:
    """Choose operators in the picture, and see the plan of their change in it."""
    for operator in functions:
        view.locator(f'.fries-dag g.node[data-operator="{operator}"]').click()
    view.get_by_role("button", name="Plan").click()
    for operator in functions:
        chosen = view.locator(f'.fries-dag g.node[data-operator="{operator}"]')
        expect(chosen).to_have_attribute("data-state", re.compile("target"))
        expect(chosen).to_have_attribute("aria-pressed", "true")


def apply(view: Locator) -> None:
    """Apply the change, and wait until it is done."""
    view.get_by_role("button", name="Apply").click()
    expect(view.get_by_role("status").filter(has_text="done by fries in")).to_be_visible()


def until_the_change_is_seen(page: Page) -> None:
    """Wait until the plot has the line of the request, the line of its end, and points after them."""
    page.wait_for_function(f"({SHOWN})('labels').words.some(words => words.includes('FM, MC by fries'))")
    page.wait_for_function(f"{CHANGED} === 2")
    until_points_move(page)


def in_both_widths(page: Page, view: Locator, pictures: Path, name: str) -> None:
    """See that the plot has room in each width, beside the picture or just below it; and keep screenshots."""
    for width in (NARROW, WIDE):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(WIDE_ENOUGH, arg=LEAST_WIDTH)
        view.get_by_role("button", name="Stop").evaluate("one => one.scrollIntoView()")
        page.screenshot(path=pictures / f"{name}-{width}.png")
        frame = view.locator(".fries-live").bounding_box()
        assert frame
        assert is_beside_the_picture(view.locator(".fries-latency")) == (frame["width"] >= BOTH)


def until_stopped(view: Locator) -> None:
    """End the run by a click: what it has read is processed first."""
    view.get_by_role("button", name="Stop").click()
    expect(view.get_by_role("status").first).to_contain_text("finished")
