"""What the README and the pages of the site show works: their Python blocks run in order, as a reader would type them.

The blocks of one text are one program, with a namespace of its own; all texts share one Spark. Blocks with the tag
``py`` instead of ``python`` need what the tests do not have, and are not run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = ROOT / "docs" / "pages"
NOT_RUN = {"howto/checkpoints.md": "S3", "howto/cluster.md": "a cluster", "howto/other-notebooks.md": "marimo"}
"""Pages with blocks that are not run, and what they need."""


def python_blocks(text: str, tag: str = "python") -> list[tuple[int, str]]:
    """The blocks of a Markdown text with this tag, each with the line of its first statement."""
    fences = re.finditer(rf"^```{tag}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, fence.start(1)) + 1, fence.group(1)) for fence in fences]


def pages_with(tag: str) -> list[str]:
    """The pages that have blocks with this tag."""
    names = [str(page.relative_to(PAGES)) for page in sorted(PAGES.rglob("*.md"))]
    return [name for name in names if python_blocks((PAGES / name).read_text(), tag)]


def play(path: Path, block: str, line: int, namespace: dict[str, object]) -> None:
    """Run a block; it is padded with empty lines, so that a failure points at the text's own line."""
    exec(compile("\n" * (line - 1) + block, str(path), "exec", dont_inherit=True), namespace)


@pytest.mark.usefixtures("spark")
def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """Every Python block runs, and what it asserts holds; the tour prints rows, and a delay without the start in it."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    blocks, toured = python_blocks(README.read_text()), False
    assert blocks
    for line, block in blocks:
        play(README, block, line, namespace)
        if "print(f\"replaced in" in block:
            printed = capsys.readouterr().out
            assert re.search(r"^replaced in \d+\.\d ms$", printed, re.MULTILINE)
            assert len(re.findall(r"^\| +\d+\|2018-04-01 ", printed, re.MULTILINE)) == 3, printed
            result = namespace["result"]
            assert f"replaced in {result.delay_ms:.1f} ms" in printed
            assert result.waited_ms > 0  # for the start, which is no part of the delay
            toured = True
    assert toured


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", pages_with("python"))
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    """Every Python block runs, and what it asserts holds."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": Path(name).stem.replace("-", "_")}
    for line, block in python_blocks((PAGES / name).read_text()):
        play(PAGES / name, block, line, namespace)


def test_the_pages_whose_code_is_not_run_say_so():
    """There are no others, and no block has any other tag by which Python could escape the tests."""
    assert pages_with("py") == sorted(NOT_RUN)
    for name in NOT_RUN:
        assert re.search(r"not\s+run\s+by\s+the\s+tests", (PAGES / name).read_text()), name
    tags = {tag for page in PAGES.rglob("*.md") for tag in re.findall(r"^ *```(\S+)", page.read_text(), re.MULTILINE)}
    assert tags == {"python", "py", "sh"}


def test_blocks_are_found_with_their_lines():
    """The reader of blocks takes those of one tag only and knows where they stand."""
    text = "a\n```python\nx = 1\n```\n```py\ny = 2\n```\n```sh\nls\n```\n"
    assert python_blocks(text) == [(3, "x = 1\n")]
    assert python_blocks(text, "py") == [(6, "y = 2\n")]
