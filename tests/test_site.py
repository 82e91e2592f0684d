"""The documentation site: ``make docs`` builds it without network, and every error's page is on it."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from patience import PATIENCE_S

from fries_nb.__main__ import main
from fries_nb.commands import audit
from fries_nb.errors import (
    PAGES,
    SITE,
    CheckpointError,
    DataflowError,
    DeclarationError,
    FriesError,
    OperatorError,
    PlaceHeldError,
    see,
)

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: whatever asks the network fails."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make docs`` builds, with this Python as that of its virtual environment."""
    venv = tmp_path_factory.mktemp("venv")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (venv / "bin" / "python").chmod(0o755)
    for stamp in (".created", ".installed", ".installed-docs"):  # in the order in which make would make them
        (venv / stamp).touch()
    offline = {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        ["make", "docs", f"VENV={venv}"],
        cwd=ROOT, env={**os.environ, **offline}, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return ROOT / "build" / "site"


def missing(site: Path, place: str) -> str:
    """What of a place on the site, ``path/#anchor``, is not there; empty if it is."""
    path, _, anchor = place.partition("#")
    page = site / path / "index.html"
    if not page.is_file():
        return f"no page {path}"
    return "" if not anchor or f'id="{anchor}"' in page.read_text() else f"no {anchor} in {path}"


def test_every_page_of_an_error_is_on_the_site(site: Path) -> None:
    """And its section, where one is named."""
    assert [lack for place in PAGES.values() if (lack := missing(site, place))] == []
    listed = (site / "reference" / "errors" / "index.html").read_text()
    assert [kind.__name__ for kind in PAGES if f"<td><code>{kind.__name__}</code></td>" not in listed] == []


def test_a_page_that_is_not_there_is_seen(site: Path) -> None:
    """The check is not empty."""
    assert missing(site, "howto/nothing/") == "no page howto/nothing/"
    assert missing(site, "howto/cluster/#nothing") == "no nothing in howto/cluster/"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No fonts, scripts, styles or pictures of other hosts; there are pictures, and they have parts."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    texts = [re.sub(r"<a\s[^>]*>", "", page.read_text()) for page in pages]  # what the reader may follow is not loaded
    found = {url for text in texts for url in re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', text)}
    assert [url for url in found if not url.startswith(SITE)] == []
    drawn = {picture.stem: picture.read_text() for picture in (site / "pictures").glob("*.svg")}
    used = {name for page in pages for name in re.findall(r'src="[./]*pictures/([\w-]+)\.svg"', page.read_text())}
    assert drawn.keys() == used
    assert [name for name, svg in drawn.items() if svg.count("<text") < 3] == []


def test_the_pages_on_magics_and_commands_have_all_of_them(site: Path) -> None:
    """With their arguments."""
    magics = (site / "reference" / "magics" / "index.html").read_text()
    groups = ("run", "reconfigure", "plan", "rescale", "constrain", "frontier")
    assert [name for name in groups if f'id="fries_{name}"' not in magics] == []
    assert "--scheduler" in magics
    commands = (site / "reference" / "commands" / "index.html").read_text()
    assert "usage: python -m fries_nb plan" in commands
    assert "FLOW.json" in commands


def test_doctests_are_code_on_the_pages(site: Path) -> None:
    """As Markdown, ``>>>`` would be quotations."""
    pages = [page.read_text() for page in (site / "reference").rglob("*.html")]
    assert not any("<blockquote" in page for page in pages)
    assert any('class="gp"' in page for page in pages)


def test_the_address_is_that_of_the_project() -> None:
    """It is stated in the package, since errors show it, and in the project's description."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Documentation"] == SITE
    assert set(project["optional-dependencies"]["docs"]) <= set(project["optional-dependencies"]["test"])


def test_an_error_shows_its_page_in_a_notebook() -> None:
    """In a line below the message; an error without a page shows its message only."""
    assert CheckpointError("damaged")._render_traceback_() == [
        f"CheckpointError: damaged\nSee: {SITE}howto/checkpoints/"
    ]
    assert DataflowError("unknown")._render_traceback_() == ["DataflowError: unknown"]


def test_the_most_specific_page_is_shown() -> None:
    """A derived error has its own page, or else that of its base."""
    assert see(PlaceHeldError("held")) != see(CheckpointError("damaged")) != ""
    assert see(DeclarationError("two rows")) == see(OperatorError("failed")) != ""
    assert see(FriesError("any")) == see(ValueError("any")) == ""


@pytest.mark.parametrize(("error", "lines"), [(CheckpointError("damaged"), 2), (DataflowError("unknown"), 1)])
def test_a_command_shows_the_page(
    error: FriesError, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the one line of the error."""

    def fails(args: object) -> int:
        raise error

    monkeypatch.setattr(audit, "run", fails)
    assert main(["audit", "trace.jsonl"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [f"python -m fries_nb audit: {error}", see(error)][:lines]


def section(title: str) -> str:
    """A section of the README."""
    return (ROOT / "README.md").read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_tested_masters_are_the_same_in_the_readme_and_on_the_site() -> None:
    """The table that both need."""
    rows = re.findall(r"^\|.*\|$", section("On a cluster"), re.MULTILINE)
    assert len(rows) > 3
    shown = (DOCS / "pages" / "howto" / "cluster.md").read_text()
    assert [row for row in rows if row not in shown] == []


def test_the_figures_of_the_readme_are_among_the_benchmarks() -> None:
    """So a row that is measured anew is not forgotten in the other place."""
    figures = re.findall(r"[\d.,]+(?:M rows/s| ms|M)", section("Benchmarks"))
    assert len(figures) > 5
    shown = (DOCS / "pages" / "benchmarks.md").read_text()
    assert [figure for figure in figures if figure not in shown] == []


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    """At most 200 lines; every file is there, with the section that is named."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 200
    for path, anchor in re.findall(r"\]\((?!http)([^)#]+)#?([^)]*)\)", text):
        assert (ROOT / path).is_file(), path
        if anchor:
            titles = re.findall(r"^#+ (.*?)(?: \{ #(.*) \})?$", (ROOT / path).read_text(), re.MULTILINE)
            assert anchor in {name or title.lower().replace(" ", "-") for title, name in titles}, f"{path}#{anchor}"


@pytest.mark.parametrize("name", ["hooks", "doctests"])
def test_the_examples_of_the_sites_modules_hold(name: str) -> None:
    """Their doctests; they are no modules of the package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted
