"""What the README shows works: its Python blocks run in order, in one namespace, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a Markdown text, each with the line of its first statement."""
    fences = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, fence.start(1)) + 1, fence.group(1)) for fence in fences]


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """Every Python block runs, and what it asserts holds; the tour prints rows, and a delay without the start in it."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    blocks, toured = python_blocks(README.read_text()), False
    assert blocks
    for line, block in blocks:
        # Padded with empty lines, so that a failure points at the README's own line.
        exec(compile("\n" * (line - 1) + block, str(README), "exec"), namespace)
        if "print(f\"replaced in" in block:
            printed = capsys.readouterr().out
            assert re.search(r"^replaced in \d+\.\d ms$", printed, re.MULTILINE)
            assert len(re.findall(r"^\| +\d+\|2018-04-01 ", printed, re.MULTILINE)) == 3, printed
            result = namespace["result"]
            assert f"replaced in {result.delay_ms:.1f} ms" in printed
            assert result.waited_ms > 0  # for the start, which is no part of the delay
            toured = True
    assert toured


def test_blocks_are_found_with_their_lines():
    """The reader of blocks takes Python ones only and knows where they stand."""
    assert python_blocks("a\n```python\nx = 1\n```\n```sh\nls\n```\n") == [(3, "x = 1\n")]
