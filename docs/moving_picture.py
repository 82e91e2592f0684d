"""The moving picture of the README, ``docs/dashboard.gif``: the quickstart in a real JupyterLab, cell by cell.

    python docs/moving_picture.py

The view below ``%fries_run`` is taken about twice a second while payments queue up, and while the operators FM and MC
are changed by Epoch, and then by Fries. It needs the extra ``test`` and a Chromium.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser_setting import chromium, jupyter, opened, run_cell, shown  # noqa: E402 - after its place is known
from playwright.sync_api import Locator, Page  # noqa: E402

TARGET = ROOT / "docs" / "dashboard.gif"
FRAME_MS, LAST_MS = 900, 4_000
WIDTH, COLOURS = 720, 64
CELLS = ("import time", "--scheduler epoch", "[0.5, 0.3, 0.2]", "FM = MerchantModel(window=10)")
"""Parts of the cells that let payments queue up, change operators by Epoch and by Fries, and dissolve the queue."""


def main() -> None:
    """Make the picture."""
    with tempfile.TemporaryDirectory() as directory, jupyter(Path(directory)) as served, chromium() as program:
        shutil.copy(ROOT / "notebooks" / "00_quickstart.ipynb", served.directory)
        with shown(program, Path(directory)) as here:
            page = here.page
            page.set_viewport_size({"width": 1100, "height": 1200})
            opened(page, served, "lab/tree", "00_quickstart.ipynb")
            for beginning in ("%load_ext", "%%fries_dataflow"):
                run_cell(page, beginning)
            view = run_cell(page, "%fries_run").locator(".jp-OutputArea")
            frames = [frame for beginning in CELLS for frame in _frames(page, view, beginning)]
    _write(frames)


def _frames(page: Page, view: Locator, beginning: str) -> Iterator[Image.Image]:
    """The view while a cell runs, and a little longer."""
    cell = page.locator(".jp-CodeCell").filter(has=page.locator(".cm-content", has_text=beginning))
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    more = 5
    while more:
        yield Image.open(io.BytesIO(view.screenshot()))
        page.wait_for_timeout(FRAME_MS)
        more -= bool(re.search(r"\[\d+\]", cell.locator(".jp-InputPrompt").inner_text()))


def _write(frames: list[Image.Image]) -> None:
    width, height = frames[0].width, max(frame.height for frame in frames)
    pictures = []
    for frame in frames:
        whole = Image.new("RGB", (width, height), "white")
        whole.paste(frame.convert("RGB"))
        small = whole.resize((WIDTH, round(height * WIDTH / width)), Image.Resampling.LANCZOS)
        pictures.append(small.quantize(COLOURS, dither=Image.Dither.NONE))
    times = [FRAME_MS] * (len(pictures) - 1) + [LAST_MS]
    pictures[0].save(TARGET, save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)
    print(f"{TARGET}: {len(pictures)} frames, {TARGET.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
