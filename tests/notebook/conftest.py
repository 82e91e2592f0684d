"""What tests of the notebook share: a shell, a dataflow in it, stand-ins for runs; a Jupyter and a browser."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from browser_setting import Jupyter, chromium, jupyter
from IPython.core.interactiveshell import InteractiveShell
from notebook_files import NOTEBOOKS, bare
from notebook_shell import FRAUD, StandIn, ipython, replace_runs, told
from playwright.sync_api import Browser, BrowserContext


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """A fresh shell with the extension."""
    with ipython(tmp_path_factory.mktemp("ipython")) as shell:
        yield shell


@pytest.fixture
def with_fraud(shell: InteractiveShell) -> None:
    """A dataflow in the shell."""
    told(shell, FRAUD)


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Lets flows start stand-ins in place of runs, and collects them."""
    return replace_runs(monkeypatch)


@pytest.fixture
def run(shell: InteractiveShell, with_fraud: None, stand_ins: list[StandIn]) -> StandIn:
    """A stand-in that runs."""
    told(shell, "%fries_run")
    return stand_ins[0]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One for all tests, with the repository's notebooks, whose outputs would pass for what a test waits for."""
    with jupyter(tmp_path_factory.mktemp("jupyter")) as served:
        for path in NOTEBOOKS.glob("*.ipynb"):
            nbformat.write(bare(path.name), served.directory / path.name)
        yield served


@pytest.fixture
def served(server: Jupyter) -> Iterator[Jupyter]:
    """The same; no kernel is left to the next test."""
    yield server
    server.end_kernels()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a file; its event loop must not run in others."""
    with chromium() as one:
        yield one


@pytest.fixture
def program(browser: Browser) -> Iterator[BrowserContext]:
    """What the Chromium has for one test: nothing, at first."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        yield context
