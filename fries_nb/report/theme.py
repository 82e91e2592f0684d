"""Colours of the pictures, for light and dark pages.

A picture states its colours directly (not as CSS variables, which few programs except browsers support), and again for
dark pages: by the reader's system setting, and by JupyterLab's own theme, which overrides the system setting.

>>> print(themed(".p", {"text": "fill: #000"}, {"text": "fill: #fff"}))
.p text { fill: #000 }
@media (prefers-color-scheme: dark) { .p text { fill: #fff } }
[data-jp-theme-light="true"] .p text { fill: #000 }
[data-jp-theme-light="false"] .p text { fill: #fff }
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

FONT = "font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"

# The palette of Okabe and Ito, which is distinguishable with colour blindness.
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8b949e"
"""A neutral grey, legible on light and on dark pages."""
PAPER, INK, SOFT, LINE, BAND = "#ffffff", "#1b1f24", "#57606a", "#d0d7de", "#f3f5f7"
NIGHT_PAPER, NIGHT_INK, NIGHT_SOFT, NIGHT_LINE, NIGHT_BAND = "#15191e", "#e6e9ed", "#a3acb8", "#3a424c", "#232a32"

_ILLEGAL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


def themed(scope: str, light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """CSS rules below a selector: from selectors to declarations, of which dark pages override some."""

    def rules(where: str, declared: Mapping[str, str]) -> str:
        return " ".join(f"{_within(where, selector)} {{ {said} }}" for selector, said in declared.items())

    inside = f"{scope} "
    return "\n".join(
        [
            rules(inside, light),
            f"@media (prefers-color-scheme: dark) {{ {rules(inside, dark)} }}",
            rules(f'[data-jp-theme-light="true"] {inside}', light),
            rules(f'[data-jp-theme-light="false"] {inside}', dark),
        ]
    )


def _within(where: str, selectors: str) -> str:
    """Each selector of a group, prefixed with ``where``."""
    return ", ".join(f"{where}{selector.strip()}" for selector in selectors.split(","))


def escaped(text: str) -> str:
    """The text escaped for XML, inside and outside of quotes; characters that XML excludes become �."""
    # XML normalises unescaped tabs and line ends in attribute values to spaces.
    return escape(_ILLEGAL.sub("\ufffd", text)).replace("\n", "&#10;").replace("\t", "&#9;")


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def picture(kind: str, size: tuple[float, float], heard: str, css: str, *contents: str, role: str = "img") -> str:
    """A drawing on paper as SVG: its class is ``fries-<kind>-svg``, and ``heard`` is read aloud in its place."""
    width, height = map(number, size)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fries-{kind}-svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="{role}" aria-label="{escaped(heard)}"><style>{css}</style>'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>{"".join(contents)}</svg>'
    )
