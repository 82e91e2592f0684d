"""What is built of this project: the source distribution has its own tests, what is installed is typed and whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from email import message_from_bytes
from pathlib import Path

import pytest
from patience import PATIENCE_S

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "*.egg-info", "__pycache__", "spark-warehouse", "bench-results", "*.html"
)
COMMANDS = ("sdist", "--dist-dir", "dist", "build", "--build-base", "built", "--build-lib", "installed")
"""What a wheel holds is what ``build`` lays out; to pack it would take a package more."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``dist``, a source distribution, and ``installed``, what a wheel holds; built from a copy."""
    copy = tmp_path_factory.mktemp("build") / "project"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    made = subprocess.run(
        [sys.executable, "setup.py", *COMMANDS],
        cwd=copy, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return copy


def test_the_source_distribution_holds_notebooks_binder_and_what_tests_import(built: Path) -> None:
    """All that lies in these directories; and every Python file of the package."""
    with tarfile.open(next(built.glob("dist/*.tar.gz"))) as whole:
        held = {name.partition("/")[2] for name in whole.getnames()}
    expected = {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "fries_nb/py.typed", "tests/conftest.py"}
    for folder, pattern in (("notebooks", "*.ipynb"), ("binder", "*"), ("tests", "**/*.py"), ("fries_nb", "**/*.py")):
        expected |= {str(file.relative_to(ROOT)) for file in (ROOT / folder).glob(pattern) if file.is_file()}
    assert sorted(expected - held) == []


def test_what_is_installed_is_typed_whole_and_says_what_it_is(built: Path) -> None:
    """Scripts and styles of the widgets included; tests not."""
    names = {str(file.relative_to(built / "installed")) for file in built.glob("installed/**/*") if file.is_file()}
    assert "fries_nb/py.typed" in names
    files = [path for kind in ("py", "js", "css") for path in (ROOT / "fries_nb").rglob(f"*.{kind}")]
    assert sorted({str(path.relative_to(ROOT)) for path in files} - names) == []
    assert [name for name in names if not name.startswith("fries_nb/")] == []
    described = message_from_bytes(next(built.glob("*.egg-info/PKG-INFO")).read_bytes())
    assert "Typing :: Typed" in described.get_all("Classifier", [])
    assert {url.partition(",")[0] for url in described.get_all("Project-URL", [])} >= {"Homepage", "Issues"}
