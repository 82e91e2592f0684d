"""Reads a report, and checks what holds for every one."""

from __future__ import annotations

import re
from html.parser import HTMLParser

NASTY = '<b>&"\''
SECTIONS = ["The dataflow", "Latency", "Latency constraints", "Changes", "Operators", "Audit"]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page: its headings and texts, whether its tags are balanced, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.named_drawings = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.named_drawings += tag == "svg" and {"role", "aria-label"} <= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.references += [value or "" for name, value in attrs if name in {"href", "src", "xlink:href", "action"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in {"h1", "h2", "h3"}:
            self.headings.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def stands_alone(text: str) -> Page:
    """Checks what holds for every report; returns it read."""
    page = Page(text)
    assert all(reference.startswith("#") for reference in page.references)
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import|<script|<link", text)
    assert re.sub(r'xmlns(:\w+)?="[^"]*"', "", text).count("://") == 0
    assert len(set(page.ids)) == len(page.ids)
    assert NASTY not in text
    assert page.tags.count("svg") == page.named_drawings
    assert page.tags.count("table") == page.tags.count("caption")
    return page
