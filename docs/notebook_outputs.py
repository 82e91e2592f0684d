"""The outputs with which the notebooks are kept, so that GitHub and nbviewer show pictures: each is run on real Spark.

    python docs/notebook_outputs.py                        # all of notebooks/
    python docs/notebook_outputs.py 00_quickstart.ipynb    # or some

Viewers without a kernel have neither widgets nor scripts, remove SVG from HTML, and some spoil SVG by itself. So what
is drawn is kept as a PNG, taken from nbconvert's page in a Chromium, beside its words; text and tables are kept as they
are. The notebook's metadata has a digest of the code that was run. It needs the extra ``test``.
"""

from __future__ import annotations

import base64
import getpass
import io
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bokeh
import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser_setting import PATIENCE_MS, chromium  # noqa: E402 - after its place is known
from notebook_files import NOTEBOOKS, VIEWED, code_digest  # noqa: E402
from playwright.sync_api import Browser, Page  # noqa: E402

BOKEH_JS = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
WIDTH, COLOURS = 1_120, 40
DRAWN = ("image/svg+xml", "application/javascript", "application/vnd.bokehjs_load.v0+json")
CELL_TIMEOUT_S = 900
LOADED = "bk-notebook-logo"
"""In Bokeh's line that says that it was loaded."""
# Tools of a plot and buttons of frames do nothing in a picture.
HIDDEN = ".fries-steps input { display: none; }"
WITHOUT_TOOLS = """() => globalThis.Bokeh?.documents.flatMap(one => [...one._all_models.values()])
  .filter(one => "toolbar_location" in one).forEach(one => { one.toolbar_location = null; })"""
# Bokeh draws some time after its script has run.
IS_DRAWN = """() => [...document.querySelectorAll("[data-root-id]")].every(one => one.childElementCount > 0)
  && (globalThis.Bokeh?.documents ?? []).every(one => one.is_idle)"""


def main() -> None:
    """Run the notebooks that are named, or all, and write their outputs into them."""
    names = sys.argv[1:] or sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
    with tempfile.TemporaryDirectory() as directory, chromium() as program, _page(program) as page:
        for name in names:
            path = NOTEBOOKS / name
            notebook = nbformat.read(path, as_version=4)
            _execute(notebook, Path(directory))
            _keep(notebook, page)
            text = nbformat.writes(notebook) + "\n"
            found = [private for private in _private(directory) if private in text]
            if found:
                raise SystemExit(f"{name}: an output names {found[0]!r}, which is of this machine; nothing is written")
            path.write_text(text, encoding="utf-8")
            print(f"{name}: {path.stat().st_size >> 10} KiB", flush=True)


def _execute(notebook: NotebookNode, directory: Path) -> None:
    """Run all cells in a kernel of their own; what the kernel adds to the metadata is dropped."""
    metadata = dict(notebook.metadata)
    notebook.cells.append(nbformat.v4.new_code_cell(VIEWED))
    resources = {"metadata": {"path": str(directory)}}
    client = NotebookClient(
        notebook, kernel_name="python3", resources=resources, timeout=CELL_TIMEOUT_S, iopub_timeout=60,
        store_widget_state=False, record_timing=False,
    )  # fmt: skip
    client.execute()
    del notebook.cells[-1]
    notebook.metadata = NotebookNode(metadata)


def _keep(notebook: NotebookNode, page: Page) -> None:
    """Put pictures in place of all that is drawn, leave out what is not seen, and note what was run."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    drawn = [output for cell in code for output in cell.outputs if _is_drawn(output)]
    pictures = dict(zip(map(id, drawn), _pictures(drawn, page), strict=True))
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
        cell.outputs = [kept for output in cell.outputs if (kept := _kept(output, pictures, number)) is not None]
    notebook.metadata["fries_nb"] = {"outputs_of": code_digest(notebook)}


def _is_drawn(output: NotebookNode) -> bool:
    data = output.get("data", {})
    return any(kind in data for kind in DRAWN) or "<style>" in data.get("text/html", "") or _is_bokehs(data)


def _is_bokehs(data: NotebookNode) -> bool:
    return "data-root-id" in data.get("text/html", "")


def _kept(output: NotebookNode, pictures: dict[int, bytes | None], number: int) -> NotebookNode | None:
    """An output as it is kept; none if nothing is seen of it, or its place is a widget's."""
    if LOADED in output.get("data", {}).get("text/html", ""):
        return None
    if id(output) in pictures:
        png = pictures[id(output)]
        if png is None and _is_bokehs(output.data):
            raise SystemExit("a plot was not drawn; the machine may be busy")
        if png is None:
            return None
        words = output.data.get("text/plain", "A picture.")
        data = {"image/png": base64.b64encode(png).decode(), "text/plain": words}
        return nbformat.v4.new_output("display_data", data, metadata={"image/png": {"alt": words.splitlines()[0]}})
    if "data" in output:
        if "application/vnd.jupyter.widget-view+json" in output.data or not any(output.data.values()):
            return None
        output.metadata = NotebookNode()
    if output.output_type == "execute_result":
        output.execution_count = number
    return output


def _pictures(outputs: list[NotebookNode], page: Page) -> Iterator[bytes | None]:
    """Each output as nbconvert's page shows it, as a PNG; none where nothing is seen."""
    cells = [nbformat.v4.new_code_cell("", outputs=[output]) for output in outputs]
    text, _ = HTMLExporter(template_name="lab").from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
        # A plot's script waits for BokehJS for a second only.
        file.write(text.replace("<head>", f'<head><script src="file://{BOKEH_JS}"></script>', 1))
        file.flush()
        page.goto(f"file://{file.name}")
        page.add_style_tag(content=HIDDEN)
        page.wait_for_function(IS_DRAWN)
        page.evaluate(WITHOUT_TOOLS)
        page.wait_for_function(IS_DRAWN)
        for place in page.locator(".jp-OutputArea-child").all():
            shown = place.locator(".jp-OutputArea-output")
            box = shown.bounding_box() if shown.count() else None
            yield _small(shown.screenshot()) if box and box["height"] > 1 else None


def _small(png: bytes) -> bytes:
    """The picture without margins at its right and below, in few colours, those of thin lines among them."""
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    inverse = whole.point([255 - value for value in range(256)] * 3)
    _, _, right, below = inverse.getbbox() or (0, 0, *whole.size)
    cut = whole.crop((0, 0, min(right + 8, whole.width), min(below + 4, whole.height)))
    file = io.BytesIO()
    cut.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


@contextmanager
def _page(program: Browser) -> Iterator[Page]:
    """A page without a network."""
    page = program.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme="light")
    page.emulate_media(media="print")  # frames to step through are shown one below the other

    page.set_default_timeout(PATIENCE_MS)
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    yield page
    page.close()


def _private(directory: str) -> set[str]:
    """What would tell of this machine: its name, the user's, and their directories."""
    places = {str(ROOT), str(Path.home()), directory, sys.prefix, f"{tempfile.gettempdir()}/"}
    named = places | {socket.gethostname(), getpass.getuser()}
    return {one for one in named if len(one) > 4 or "/" in one.strip("/")}


if __name__ == "__main__":
    main()
