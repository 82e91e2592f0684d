"""The words of the package are those of the field: phrases that only their authors find plain do not come back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = {
    r"\bwho\b(?!['\"\]:,)])": "name the process, the operator or the user",
    r"\b(some|no)body\b": "name the process, the operator or the user",
    r"\bwhat comes of\b": "the result of",
    r"\bc[oa]mes? to nothing\b": "is aborted, has no effect",
    r"\bhas it in it\b": "includes, reflects",
    r"\bstands (in front|still|beside|in for)\b": "is paused, is blocked",
    r"\bhears\b": "receives",
    r"\btells it on\b": "forwards",
    r"\bhungry\b": "wants input",
    r"\bparted\b": "separated",
    r"\bit works by\b": "is",
    r"\bof whatever\b": "of any",
    r"\bis no more\b": "has ended",
}
"""Patterns of phrases, and what to say instead."""


def texts() -> Iterator[tuple[str, str]]:
    """The sources, the README, the pages of the site, and the prose of the notebooks, by name."""
    package, site = ROOT / "fries_nb", ROOT / "docs"
    for path in sorted([*package.rglob("*.py"), *site.rglob("*.py"), *site.rglob("*.md")]):
        yield str(path.relative_to(ROOT)), path.read_text()
    yield "README.md", (ROOT / "README.md").read_text()
    for path in sorted((ROOT / "notebooks").rglob("[0-9]*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        yield path.name, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def found_in(name: str, text: str) -> list[str]:
    """Where a text has one of the phrases, and what to say instead."""
    lines = enumerate(text.splitlines(), start=1)
    return [
        f"{name}:{number}: {match[0]!r}; rather: {instead}"
        for number, line in lines
        for phrase, instead in PHRASES.items()
        for match in re.finditer(phrase, line, flags=re.IGNORECASE)
    ]


def test_the_words_are_plain() -> None:
    """None of the phrases is left in docstrings, comments, messages or pages."""
    assert [one for name, text in texts() for one in found_in(name, text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "Who hears a region's driver: tells it on",
        "a rollback of what came to nothing comes to nothing",
        "nobody can say which version the tuple is due",
        "changes are parted by blanks alone",
        "it works by {now}, the running one by {was}",
        "FM stands in front of a tuple",
    ],
)
def test_a_phrase_is_seen(line: str) -> None:
    """The list is not empty."""
    assert found_in("a", line)
