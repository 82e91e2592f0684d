"""What the browser test of the dashboard does with its buttons, one theme after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser_setting import cell_with, run_cell
from playwright.sync_api import Locator, Page, expect

LOADED = """# loaded
from fries_nb.telemetry.metrics import Latency, MetricsSnapshot, OperatorMetrics
of = OperatorMetrics(100, 1_000.0, 50, 5_000, busy=0.9, blocked=0.1)
StandIn.metrics = lambda self: MetricsSnapshot(dict.fromkeys(self.graph.by_name, of), Latency(9, 4.0, 9.0))
from types import SimpleNamespace
from fries_nb.telemetry.history import PlotMark, Point, WaitingPoint
hour = [Point(100.0 + second, 4.0, 9.0, 1_000.0) for second in range(3_600)]
marks = [PlotMark(at_s, f"u{at_s:.0f}", kind, "FM by fries") for since_s in (400.0, 3_650.0) for at_s, kind in
         ((since_s, "request"), (since_s + 0.25, "done"))]
told = {"latency": hour, "marks": marks, "waiting": [WaitingPoint(100.0 + second, 7) for second in range(3_600)]}
StandIn.history = property(lambda self, of=StandIn.history.fget: SimpleNamespace(**vars(of(self)) | told))
change = run.reconfigure({"FM": Score(), "MC": dict})
"""
BROKEN = """# broken
from fries_nb.controller.states import ChangeProgress, ChangeState
def broken(self): raise RuntimeError("no hosts")
StandIn.host_rates = broken
run.outcome = None
run.progress = ChangeProgress(ChangeState.PREPARING, workers=8, prepared=3)
change = run.reconfigure({"FM": dict})
"""
ENDED = "# ended\nimport os; os._exit(1)"
# Whether the plot's line of p50 has this colour.
LINES = """colour => (globalThis.Bokeh?.documents ?? []).flatMap(one => [...one._all_models.values()])
  .some(one => one.type === "Line" && one.line_color?.value === colour)"""


def trouble(page: Page, view: Locator, pictures: Path) -> None:
    """A panel that fails, a change that waits, and a kernel that has died."""
    run_cell(page, "# broken")
    view.locator(".lm-TabBar-tab", has_text="Details").click()
    expect(view.get_by_text("Hosts cannot be shown: RuntimeError: no hosts")).to_be_visible()
    view.locator(".lm-TabBar-tab", has_text="Changes").click()
    expect(view.get_by_text("u3: prepared 3 of 8 workers")).to_be_visible()
    view.get_by_role("button", name="Cancel").click()
    expect(view.get_by_text("change u3: it is cancelled")).to_be_visible()
    cell_with(page, "# ended").click()
    page.keyboard.press("Shift+Enter")
    expect(view.get_by_role("alert").filter(has_text="No news from the kernel since")).to_be_visible()
    expect(view.get_by_text("fraud: running")).to_be_hidden()
    page.screenshot(path=pictures / "silent.png")


# The range that the plot shows, and the words at its marks.
SHOWN = """() => {
  const models = (globalThis.Bokeh?.documents ?? []).flatMap(one => [...one._all_models.values()]);
  const [across, labels] = ["across", "labels"].map(name => models.findLast(one => one.name === name));
  return [across.start, across.end, labels.data.words];
}"""


def the_whole_run_and_back(page: Page, view: Locator) -> None:
    """The plot shows the end of the run; its reader sees the beginning, selects a part of it, and goes back."""

    def sees(condition: str) -> None:
        page.wait_for_function(f"() => {{ const [start, end, words] = ({SHOWN})(); return {condition}; }}")

    sees("start > 3_300 && end > 3_599 && words.length === 1")
    view.get_by_role("button", name="Whole run").click()
    sees("start < 0 && end > 3_599 && words.length === 2 && words[1] === '250 ms: FM by fries'")
    plot = view.locator(".fries-latency")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    for part, act in ((0.3, page.mouse.down), (0.5, page.mouse.up)):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 0.4 * box["height"], steps=3)
        act()
    sees("start > 0 && end < 3_000 && end - start < 2_000")
    view.get_by_role("button", name="Follow").click()
    sees("start > 3_300 && end > 3_599")


BOTH = 444
"""Width of a view from which on the plot has room beside the picture."""


def is_beside_the_picture(plot: Locator) -> bool:
    """Whether it is, and not below it; it is never above."""
    above, box = plot.page.locator(".fries-dag").first.bounding_box(), plot.bounding_box()
    assert above
    assert box
    is_beside = box["y"] < above["y"] + above["height"] / 2
    assert box["x"] >= above["x"] + above["width"] - 1 if is_beside else box["y"] >= above["y"] + above["height"]
    return is_beside


def sizes_of_the_picture(page: Page, view: Locator) -> None:
    """It is as large as asked for, and fits what it has at first and at last."""
    picture = view.locator(".fries-dag svg")

    def width() -> float:
        return float(picture.evaluate("one => one.getBoundingClientRect().width"))

    first = width()
    view.get_by_role("button", name="Larger").click()
    assert width() == pytest.approx(1.25 * first, rel=0.01)
    for _ in range(2):
        view.get_by_role("button", name="Smaller").click()
    assert width() == pytest.approx(0.8 * first, rel=0.01)
    view.get_by_role("button", name="Fit the width").click()
    assert width() == pytest.approx(first, rel=0.01)
    whole = view.get_by_role("button", name="on the whole screen")
    whole.click()
    expect(whole).to_have_text("Leave full screen")
    assert width() > 1.2 * first
    plot = view.locator(".fries-latency").bounding_box()  # beside the picture, and on the screen
    assert plot
    assert 0 <= plot["y"] < page.evaluate("innerHeight") - 200
    assert plot["x"] + plot["width"] <= page.evaluate("innerWidth")
    whole.click()
    expect(whole).to_have_text("Full")


def in_both_themes(page: Page, view: Locator, pictures: Path) -> None:
    """Keep screenshots in both widths and themes; nothing is wider than the view."""
    for theme in ("Light", "Dark"):
        page.keyboard.press("Control+Shift+C")  # the palette of commands
        page.keyboard.type(f"Use Theme: JupyterLab {theme}", delay=5)
        page.keyboard.press("Enter")
        expect(page.locator("body")).to_have_attribute("data-jp-theme-light", str(theme == "Light").lower())
        page.wait_for_function(LINES, arg={"Light": "#0072B2", "Dark": "#56B4E9"}[theme])
        for width in (1280, 800):
            page.set_viewport_size({"width": width, "height": 900})
            for tab in ("Function", "Details", "Changes"):
                view.locator(".lm-TabBar-tab", has_text=tab).click()
                view.get_by_role("button", name="Stop", exact=True).evaluate("one => one.scrollIntoView()")
                page.screenshot(path=pictures / f"{tab}-{width}-{theme}.png")
                wide = "one => one.scrollWidth > one.clientWidth + 1"
                assert not view.locator(".fries-live").evaluate(wide), (tab, width, theme)


def replay_by_keyboard(page: Page, view: Locator) -> None:
    """A marker travels along its edge; the picture shows the plan again afterwards."""
    expect(view.get_by_role("button", name="Close")).to_have_count(0)  # what was done is played once by itself
    view.get_by_role("button", name="Replay").click()
    expect(view.get_by_text("4 of 4: ")).to_be_visible()  # it plays by itself, each step for a moment
    expect(view.locator(".widget-play .fa-play")).to_be_visible()  # and has ended, so that it stays where it is put
    view.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    expect(view.get_by_text("3 of 4: ")).to_be_visible()
    expect(view.locator('.fries-dag g.edge[data-edge="1"] .travelling')).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(view.get_by_text("2 of 4: ")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(view.get_by_text("1 of 4: The message leaves the controller for FM")).to_be_visible()
    view.get_by_role("button", name="Close").click()
    expect(view.locator(".travelling")).to_have_count(0)
    expect(view.locator('.fries-dag g.node[data-operator="FM"]')).to_have_attribute("data-state", re.compile("changed"))


def every_tab(view: Locator) -> None:
    """Each shows what it has of a run, or why it has nothing."""
    for tab, seen in (
        ("Details", '.fries-table[aria-label="Load of hosts"] tbody tr'),
        ("Details", '.fries-table[aria-label="Operators"] tbody tr >> text=FM'),
        ("Details", "text=No times and no loops"), ("Constraints", "text=No latency constraint"),
        ("Changes", '.fries-table[aria-label="Changes"] tbody tr'),
    ):  # fmt: skip
        view.locator(".lm-TabBar-tab", has_text=tab).click()
        expect(view.locator(seen).first).to_be_visible()


def replay(view: Locator) -> None:
    """It plays the selected change to its end, and is closed."""
    expect(view.get_by_role("button", name="Close")).to_have_count(0)  # what was done is played once by itself
    view.get_by_role("button", name="Replay").click()
    expect(view.get_by_text(re.compile(r"\b(\d+) of \1: "))).to_be_visible()
    view.get_by_role("button", name="Close").click()
    expect(view.get_by_role("button", name="Close")).to_have_count(0)


def revert(view: Locator) -> None:
    """The selected change is undone by another one."""
    view.get_by_role("button", name="Revert").click()
    done = view.locator('.fries-table[aria-label="Changes"] tbody tr', has_text="done")
    expect(done).to_have_count(2)


def every_file(page: Page, view: Locator) -> None:
    """Each button saves its file, with the name and the kind that it says."""
    view.locator(".lm-TabBar-tab", has_text="Details").click()
    beginnings = {"csv": b"change,", "parquet": b"PAR1", "svg": b"<svg", "png": b"\x89PNG"}
    for what, kind in (("changes", "csv"), ("changes", "parquet"), ("dataflow", "svg"), ("whole view", "png")):
        with page.expect_download() as saving:
            view.get_by_role("button", name=f"Save {what} as {kind.upper()}").click()
        assert saving.value.suggested_filename == f"fraud {what}.{kind}"
        assert saving.value.path().read_bytes().startswith(beginnings[kind])
