"""A real Jupyter and a real browser for tests: Chromium, driven by Playwright, and no other machine.

One server shows a notebook in JupyterLab, in Notebook 7 and in Voila.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from patience import PATIENCE_S
from playwright.sync_api import Browser as Program
from playwright.sync_api import BrowserContext, Error, Locator, Page, Route, sync_playwright
from quick_start import quickly

PATIENCE_MS = int(PATIENCE_S * 1000)
"""For anything to appear, on busy cores; what is there already is not waited for."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# No news from the network; all else as JupyterLab ships it, windowing too.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
# The toolbar says "idle" before there is a kernel, and what is run then is lost; these parts of the pages know.
HAS_KERNEL = {
    "lab": '#jp-main-statusbar :text("| Idle")',
    "notebooks": '.jp-NotebookKernelLogo img[src*="kernelspecs"]',
}
CONNECTED = """async address => {
  const kernels = await (await fetch(address)).json();
  return kernels.some(kernel => kernel.connections > 0 && kernel.execution_state === "idle");
}"""
# Notebook 7 throws while it starts, with an empty notebook as well: its keyboard shortcuts hear of a plugin whose
# settings are not read yet, and on busy cores it asks for commands that are not registered yet. Nothing of ours is
# in this place.
NOTEBOOKS_OWN = "/static/notebook/"


@dataclass(frozen=True)
class Jupyter:
    """A server that runs, and the directory whose notebooks it shows."""

    root: str
    token: str
    directory: Path

    def address(self, way: str) -> str:
        """Of a page, or of a part of its REST interface."""
        return f"{self.root}/{way}?token={self.token}"

    def end_kernels(self) -> None:
        """End all kernels, and with each its Spark."""
        for kernel in json.loads(self._ask("GET", "api/kernels")):
            self._ask("DELETE", f"api/kernels/{kernel['id']}")

    def _ask(self, method: str, way: str) -> bytes:
        question = Request(f"{self.root}/{way}", method=method, headers={"Authorization": f"token {self.token}"})
        with urlopen(question) as answer:
            return bytes(answer.read())


@contextmanager
def jupyter(directory: Path) -> Iterator[Jupyter]:
    """A server that shows the directory ``work`` in this one, where it keeps all its files."""
    (directory / "work").mkdir()
    for name, setting in SETTINGS.items():
        place = directory / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(setting))
    own = {f"JUPYTER_{kind}_DIR": str(directory / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{kind}_DIR": str(directory / kind.lower()) for kind in ("SETTINGS", "WORKSPACES")}
    own |= {"IPYTHONDIR": str(directory / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
    profile = directory / "ipython" / "profile_default" / "ipython_config.py"
    profile.parent.mkdir(parents=True)
    profile.write_text("get_config().FriesMagics.beside = False\n")  # the journey with a panel beside sets it
    token = secrets.token_hex(16)
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    options += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={directory / 'work'}"]
    server = subprocess.Popen(
        [*quickly("jupyterlab.labapp"), *options], env=os.environ | own, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Jupyter(f"http://127.0.0.1:{_port(server)}", token, directory / "work")
    finally:
        server.terminate()  # it takes its kernels along
        server.wait()


def _port(server: subprocess.Popen[str]) -> str:
    """Where the server says that it listens; what else it says is read so that it never waits for its reader."""
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/lab", line):
            threading.Thread(target=server.stderr.read, name="jupyter-log", daemon=True).start()
            return found[1]
    raise AssertionError(f"Jupyter did not start: {''.join(said)}")


SLOW_MODEL = "[anywidget] Failed to initialize model"
"""anywidget gives each model two seconds, however busy the machine is. One that never comes shows nothing, and a test
misses that."""


@dataclass
class Browser:
    """A page, and what happened in it.

    Attributes:
        page: Playwright's.
        abroad: addresses of other machines that the page asked for; they were refused.
        errors: exceptions of scripts that nobody caught, without those of Notebook 7 alone.
    """

    page: Page
    abroad: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def reach(self, route: Route) -> None:
        """Lets through what stays on this machine."""
        if urlsplit(route.request.url).hostname in ("127.0.0.1", None):
            route.continue_()
        else:
            self.abroad.append(route.request.url)
            route.abort()

    def hear(self, error: Error) -> None:
        """Keeps an exception, unless all scripts that its stack names are Notebook 7's, or the machine was too slow."""
        if SLOW_MODEL in str(error):
            return
        scripts = re.findall(r"(?:https?|blob):\S+", error.stack or "")
        if not scripts or not all(NOTEBOOKS_OWN in script for script in scripts):
            self.errors.append(error.stack or str(error))


@contextmanager
def chromium() -> Iterator[Program]:
    """A Chromium.

    Raises:
        AssertionError: there is none on PATH.
    """
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert found, "no chromium on PATH; install it (Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield program
        finally:
            program.close()


@contextmanager
def shown(program: BrowserContext, pictures: Path) -> Iterator[Browser]:
    """A page of a Chromium; if something goes wrong, what it showed is kept as ``pictures/failed.png``.

    What its console said is printed then: a live view that Jupyter could not restore is explained nowhere else.
    """
    page = program.new_page()
    page.set_default_timeout(PATIENCE_MS)
    here = Browser(page)
    page.route("**/*", here.reach)
    page.on("pageerror", here.hear)
    console: list[str] = []
    page.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
    try:
        yield here
    except BaseException:
        print(*console, sep="\n")
        page.screenshot(path=pictures / "failed.png")
        raise
    finally:
        page.close()


def opened(page: Page, served: Jupyter, way: str, notebook: str) -> None:
    """Open a notebook in JupyterLab (``lab/...``) or Notebook 7 (``notebooks``), and wait until it has its kernel."""
    page.goto(served.address(f"{way}/{notebook}"))
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.locator(HAS_KERNEL[way.partition("/")[0]]).wait_for()
    page.wait_for_function(CONNECTED, arg=served.address("api/kernels"))


CELLS_TEXT = ".jp-InputArea .cm-content"  # a view in the output has editors of its own


def cell_with(page: Page, beginning: str) -> Locator:
    """The first cell that holds this text."""
    return page.locator(".jp-CodeCell").filter(has=page.locator(CELLS_TEXT, has_text=beginning)).first


def editor_of(view: Locator, operator: str) -> Locator:
    """The text in the editor of an operator."""
    return view.get_by_label(operator, exact=True).and_(view.get_by_role("textbox"))


def edit_function(page: Page, view: Locator, operator: str, text: str) -> None:
    """Type a text in place of that in the editor of an operator, key by key."""
    editor_of(view, operator).click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.type(text)


def run_cell(page: Page, beginning: str) -> Locator:
    """Run the first cell that holds this text, wait until it has run, and give it."""
    cell = cell_with(page, beginning)
    cell.locator(CELLS_TEXT).click()
    page.keyboard.press("Shift+Enter")
    cell.locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]")).wait_for()
    return cell


def saved(page: Page, served: Jupyter, notebook: str) -> str:
    """The text of the notebook's file after it was saved by its button."""
    with page.expect_response(lambda answer: notebook in answer.url and answer.request.method == "PUT"):
        page.locator('[data-command="docmanager:save"]').first.click()
    return (served.directory / notebook).read_text()
