"""Colours of the pictures, for light and dark pages.

A picture says its colours outright (not by CSS variables, which few programs but browsers know), and again for dark
pages: where the reader's system asks for it, and where JupyterLab shows its own dark or light theme whatever the
system says.

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

# Okabe and Ito's palette, which the colour-blind tell apart.
ORANGE, SKY, GREEN, BLUE, VERMILION = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00"
GREY = "#8b949e"
"""To be seen on light and on dark pages, without being a colour of anything."""
PAPER, INK, SOFT, LINE, BAND = "#ffffff", "#1b1f24", "#57606a", "#d0d7de", "#f3f5f7"
NIGHT_PAPER, NIGHT_INK, NIGHT_SOFT, NIGHT_LINE, NIGHT_BAND = "#15191e", "#e6e9ed", "#a3acb8", "#3a424c", "#232a32"

_ILLEGAL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


def themed(scope: str, light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Rules below the selector ``scope``; ``dark`` overrides some of ``light``."""

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
    """Each of a group's selectors below ``where``."""
    return ", ".join(f"{where}{selector.strip()}" for selector in selectors.split(","))


def escaped(text: str) -> str:
    """The text for XML, in or out of quotes; what XML cannot say (control characters, half surrogates) becomes �."""
    # Within quotes plain tabs and line ends would be read as blanks.
    return escape(_ILLEGAL.sub("\ufffd", text)).replace("\n", "&#10;").replace("\t", "&#9;")


def number(value: float) -> str:
    """A coordinate: at most one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")
