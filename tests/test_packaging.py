"""What is built of this project: the source distribution has its own tests, what is installed is typed and whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from email import message_from_bytes
from pathlib import Path

import pytest
from patience import PATIENCE_S

import fries_nb as fn

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "*.egg-info", "__pycache__", "spark-warehouse", "bench-results", "*.html"
)
COMMANDS = (
    "sdist", "--dist-dir", "dist", "build", "--build-base", "built", "--build-lib", "installed",
    "bdist_wheel", "--skip-build", "--dist-dir", "dist",
)  # fmt: skip
KEPT = (
    ("notebooks", "*.ipynb"), ("binder", "*"), ("docs", "*.*"), ("docs/pages", "**/*.*"), ("docs/editor", "*.*"),
    ("tests", "**/*.py"), ("fries_nb", "**/*.py"), ("fries_nb/report", "*.jinja"), ("notebooks/labs", "*.*"),
)  # fmt: skip
RUN = """
import fries_nb as fn

flow = fn.Dataflow("clean")
flow.source("numbers", fn.rate(5_000, count=2_000)).map("A", lambda row: {**row, "a": 1}).sink("out", fn.memory())
if __name__ == "__main__":
    run = flow.run(hosts=1, workers=1, audit=True)
    print(fn.__file__, fn.__version__, run.wait(600), run.output().count(), run.audit().serializable)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the source distribution and the wheel in ``dist``, and what the wheel holds in ``installed``.

    All are built from a copy, by the setuptools of this environment: one of its own would take a minute.
    """
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
    for folder, pattern in KEPT:
        expected |= {str(file.relative_to(ROOT)) for file in (ROOT / folder).glob(pattern) if file.is_file()}
    assert sorted(expected - held) == []


def test_what_is_installed_is_typed_whole_and_says_what_it_is(built: Path) -> None:
    """Scripts and styles of the widgets included; tests not."""
    names = {str(file.relative_to(built / "installed")) for file in built.glob("installed/**/*") if file.is_file()}
    assert "fries_nb/py.typed" in names
    files = [path for kind in ("py", "js", "css", "jinja") for path in (ROOT / "fries_nb").rglob(f"*.{kind}")]
    assert sorted({str(path.relative_to(ROOT)) for path in files} - names) == []
    assert [name for name in names if not name.startswith("fries_nb/")] == []
    described = message_from_bytes(next(built.glob("*.egg-info/PKG-INFO")).read_bytes())
    assert "Typing :: Typed" in described.get_all("Classifier", [])
    assert {url.partition(",")[0] for url in described.get_all("Project-URL", [])} >= {"Homepage", "Issues"}


def test_the_wheel_runs_in_an_environment_of_its_own_and_from_another_directory(built: Path, tmp_path: Path) -> None:
    """Installed by pip, with only its dependencies beside it: nothing of the source tree is imported, by hosts either.

    The dependencies are those of this environment, since to download them anew takes minutes.
    """
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "clean.py").write_text(RUN)
    venv.create(environment, with_pip=False)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files do not count
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    [wheel] = built.glob("dist/fries_nb-*.whl")
    subprocess.run([*pip, "--python", environment, "install", "--no-deps", wheel], check=True, timeout=PATIENCE_S)
    python = str(environment / "bin" / "python")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(
        [python, "clean.py"], cwd=elsewhere, env=clean, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    expected = [str(packages / "fries_nb" / "__init__.py"), fn.__version__, "finished", "2000", "True"]
    assert told.stdout.split() == expected, told.stderr[-3_000:]
    version = subprocess.run(
        [python, "-m", "fries_nb", "--version"], cwd=elsewhere, env=clean, capture_output=True, text=True, check=True
    )
    assert version.stdout == f"fries_nb {fn.__version__}\n"
