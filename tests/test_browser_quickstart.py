"""The quickstart in a real JupyterLab: points move, a plan is seen, a click replaces an operator while it runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from browser_setting import PATIENCE_MS, browser, jupyterlab, opened, run_cell
from notebook_files import NOTEBOOKS
from playwright.sync_api import Locator, Page, expect

WIDE, NARROW = 1280, 800

# What the plot shows at this moment, out of Bokeh's own documents.
SHOWN = """name => {
  const documents = globalThis.Bokeh?.documents ?? [];
  const sources = documents.flatMap(one => [...one._all_models.values()]).filter(one => one.name === name);
  return sources.length ? sources[0].data : null;
}"""
# Bokeh's figures stand in shadow trees, where a selector of the page does not reach.
WIDE_ENOUGH = """least => {
  const within = root => [...root.querySelectorAll("*")].flatMap(
    one => one.shadowRoot ? [one, ...within(one.shadowRoot)] : [one]);
  const figures = within(document).filter(one => one.classList.contains("bk-Figure"));
  return figures.length > 0 && figures.every(one => one.offsetWidth >= least);
}"""
LEAST_WIDTH = 250
expect.set_options(timeout=PATIENCE_MS)


def last_point(page: Page) -> float:
    """Time of the newest point in the plot, seconds since the run began."""
    page.wait_for_function(f"({SHOWN})('points')?.at.length > 2")
    return float(page.evaluate(f"({SHOWN})('points').at.at(-1)"))


def until_points_move(page: Page) -> None:
    """Wait until the plot shows points from a second later than now."""
    page.wait_for_function(f"({SHOWN})('points').at.at(-1) > {last_point(page) + 1}")


def in_both_widths(page: Page, view: Locator, pictures: Path, name: str) -> None:
    """See that the plot has room in each width, and keep a screenshot."""
    for width in (NARROW, WIDE):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(WIDE_ENOUGH, arg=LEAST_WIDTH)
        view.scroll_into_view_if_needed()
        page.screenshot(path=pictures / f"{name}-{width}.png")
        page.locator(".jp-OutputArea-output").filter(has=page.locator(".fries-dag")).screenshot(
            path=pictures / f"{name}-{width}-view.png"
        )


def test_a_hot_replacement_by_clicks(tmp_path: Path) -> None:
    """Run, look, plan, apply, stop: what the README promises a newcomer, without any other machine."""
    (tmp_path / "work").mkdir()
    shutil.copy(NOTEBOOKS / "00_quickstart.ipynb", tmp_path / "work")
    with jupyterlab(tmp_path) as address, browser(tmp_path) as here:
        page = here.page
        opened(page, address, "00_quickstart.ipynb")
        for beginning in ("%load_ext", "%%fries_dataflow"):
            run_cell(page, beginning)
        view = run_cell(page, "%fries_run").locator(".jp-OutputArea")
        until_points_move(page)
        in_both_widths(page, view, tmp_path, "running")

        replace_by_clicks(view)
        page.wait_for_function(f"({SHOWN})('labels').words.some(words => words.includes('FM by fries'))")
        page.wait_for_function(f"({SHOWN})('marks').at.length === 2")  # the request and its end
        until_points_move(page)
        in_both_widths(page, view, tmp_path, "changed")

        view.get_by_role("button", name="Stop").click()
        expect(view.get_by_role("status").first).to_contain_text("stopped")
        assert here.abroad == []
        assert here.errors == []


def replace_by_clicks(view: Locator) -> None:
    """Choose FM in the picture, give it a new function, plan, apply."""
    merchant = view.locator('.fries-dag g.node[data-operator="FM"]')
    merchant.click()
    expect(view.get_by_label("Operator", exact=True)).to_have_value("FM")
    view.get_by_label("Function", exact=True).fill("MerchantModel(window=5)")
    view.get_by_role("button", name="Plan").click()
    expect(merchant).to_have_attribute("data-state", re.compile("target"))
    view.get_by_role("button", name="Apply").click()
    expect(view.get_by_role("status").filter(has_text="done by fries in")).to_be_visible()
