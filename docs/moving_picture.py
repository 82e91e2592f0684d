"""The moving picture of the README, ``docs/dashboard.gif``: an operator is replaced by clicks in a real JupyterLab.

    python docs/moving_picture.py

A cursor runs the cell, so that the view opens beside the notebook; payments queue up in front of FM; the cursor clicks
FM, its function is typed anew, recent rows are previewed, and it is applied. The last frame stays on the large line
with both delays. All is found by roles and names, and waiting is left out. It needs the extra ``test`` and a Chromium.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser_setting import CELLS_TEXT, cell_with, chromium, editor_of, jupyter, opened, run_cell, shown  # noqa: E402
from playwright.sync_api import Locator, Page  # noqa: E402

TARGET = ROOT / "docs" / "dashboard.gif"
WIDTH, HEIGHT, SHOWN_WIDTH, COLOURS = 1_100, 700, 880, 64
TAKES = 6
QUEUE_S = 12
"""How long payments queue up: twice as many arrive as FM processes."""
FUNCTION = "MerchantModel(window=5)"
CELLS = (
    """%load_ext fries_nb
from fries_nb.workloads.fraud import *
from fries_nb.workloads.payments import payments_path""",
    """%%fries_dataflow fraud
p = flow.source("payments", fn.replay(payments_path(), rate=150))
c = p.map("FC", CustomerModel(5), key="CUSTOMER_ID")
m = c.map("FM", MerchantModel(5, cost_ms=10), key="TERMINAL_ID")
m.map("MC", Combine([0.4, 0.6])).sink("scored", fn.memory())""",
    "%fries_run fraud --audit",
    'run.set_rate("payments", 400)  # FM processes 200',
)
# It follows the mouse of the page, and shows where that is pressed.
CURSOR = """() => {
  const cursor = document.createElement("div");
  cursor.innerHTML = `<svg width="26" height="30" viewBox="0 0 26 30"><circle r="11" cx="12" cy="12" fill="#e69f00"
    opacity="0"/><path d="M3 2v20l5-5 4 9 4-2-4-8h7z" fill="#111" stroke="#fff" stroke-width="1.6"/></svg>`;
  cursor.style.cssText = "position:fixed;left:-3px;top:-2px;z-index:2147483647;pointer-events:none";
  document.body.append(cursor);
  const ring = cursor.querySelector("circle");
  const to = event => { cursor.style.transform = `translate(${event.clientX}px, ${event.clientY}px)`; };
  for (const kind of ["mousemove", "pointermove"]) addEventListener(kind, to, true);
  const shows = opacity => () => setTimeout(() => ring.setAttribute("opacity", opacity), opacity ? 0 : 250);
  for (const kind of ["mousedown", "pointerdown"]) addEventListener(kind, shows(0.6), true);
  for (const kind of ["mouseup", "pointerup"]) addEventListener(kind, shows(0), true);
}"""
HAS_RUN = re.compile(r"\[\d+\]")
Frame = tuple[Image.Image, int]
"""A picture, and for how many ms it is shown."""


def main() -> None:
    """Make the picture; a take whose change was over before its prediction was made is repeated."""
    for _ in range(TAKES):
        frames, words = _take()
        print(words)
        if "instead of" in words:
            _write(frames)
            return
    raise SystemExit(f"no take of {TAKES} shows both delays; the machine may be busy")


def _take() -> tuple[list[Frame], str]:
    """The frames of one run, and the words of the large line at its end."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as directory, jupyter(Path(directory)) as served, chromium() as program:
        nbformat.write(notebook, served.directory / "payments.ipynb")
        # As people have it: the tests' setting shows views in their cells.
        (Path(directory) / "ipython" / "profile_default" / "ipython_config.py").write_text("")
        with shown(program, Path(directory)) as here:
            here.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
            opened(here.page, served, "lab/tree", "payments.ipynb")
            film = _Film(here.page)
            return list(film.play()), film.line.inner_text()


class _Film:
    """What is done in the page, and the frames of it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._at = (WIDTH * 0.4, HEIGHT * 0.75)
        self._panel = page.locator(".jupyterlab-sidecar")
        self.line = self._panel.get_by_role("status").filter(has_text="rows mixed").first

    def play(self) -> Iterator[Frame]:
        """From the cell that starts the run to the line that says how long the change took."""
        page, panel = self._page, self._panel
        page.keyboard.press("ControlOrMeta+b")  # the list of files goes
        for beginning in ("%load_ext", "%%fries_dataflow"):
            run_cell(page, beginning)
        page.evaluate(CURSOR)
        page.mouse.move(*self._at)
        yield self._frame(400)
        yield from self._run("%fries_run")
        panel.locator('g.node[data-operator="FM"]').wait_for()
        page.wait_for_timeout(3_000)
        yield self._frame(700)
        yield from self._run("run.set_rate")
        yield from self._queue_up()
        yield from self._click(panel.locator('g.node[data-operator="FM"]').first)
        yield from self._type(editor_of(panel, "FM"), FUNCTION)
        panel.locator(".fries-preview").first.wait_for()
        page.wait_for_timeout(1_500)
        yield self._frame(1_300)
        yield from self._click(panel.get_by_role("button", name="Apply", exact=True).first)
        self.line.wait_for()
        self.line.scroll_into_view_if_needed()
        page.wait_for_timeout(1_500)
        yield self._frame(4_000)

    def _run(self, beginning: str) -> Iterator[Frame]:
        """Click into a cell, and run it."""
        cell = cell_with(self._page, beginning)
        yield from self._click(cell.locator(CELLS_TEXT))
        self._page.keyboard.press("Shift+Enter")
        cell.locator(".jp-InputPrompt", has_text=HAS_RUN).wait_for()
        yield self._frame(300)

    def _queue_up(self) -> Iterator[Frame]:
        """A few frames while the queue grows."""
        for _ in range(QUEUE_S // 3):
            self._page.wait_for_timeout(3_000)
            yield self._frame(300)

    def _click(self, target: Locator) -> Iterator[Frame]:
        yield from self._move(target)
        self._page.mouse.down()
        yield self._frame(120)
        self._page.mouse.up()
        yield self._frame(200)

    def _move(self, target: Locator) -> Iterator[Frame]:
        """Move the cursor into a target, slower at both ends."""
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box is not None, "it is seen"
        (left, top), to = self._at, (box["x"] + min(box["width"] / 2, 160), box["y"] + min(box["height"] / 2, 40))
        for share in (0.1, 0.35, 0.65, 0.9, 1.0):
            self._page.mouse.move(left + share * (to[0] - left), top + share * (to[1] - top))
            yield self._frame(60)
        self._at = to

    def _type(self, editor: Locator, text: str) -> Iterator[Frame]:
        """Type in place of what an editor holds."""
        editor.wait_for()
        yield from self._click(editor)
        self._page.keyboard.press("ControlOrMeta+a")
        yield self._frame(400)
        for start in range(0, len(text), 3):
            self._page.keyboard.type(text[start : start + 3])
            yield self._frame(110)

    def _frame(self, shown_ms: int) -> Frame:
        return Image.open(io.BytesIO(self._page.screenshot())), shown_ms


def _write(frames: list[Frame]) -> None:
    """All frames have the colours of the last one, so that only what moves differs."""
    size = SHOWN_WIDTH, round(HEIGHT * SHOWN_WIDTH / WIDTH)
    small = [frame.convert("RGB").resize(size, Image.Resampling.LANCZOS) for frame, _ in frames]
    palette = small[-1].quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    pictures = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in small]
    times = [shown_ms for _, shown_ms in frames]
    pictures[0].save(TARGET, save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=False)
    print(f"{TARGET.name}: {len(pictures)} frames, {sum(times) / 1000:.1f} s, {TARGET.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
