"""Doctests in docstrings become blocks of code on the pages of the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around the doctests of each docstring."""

    def on_object(self, *, obj: griffe.Object, **arguments: Any) -> None:
        """Called for each object that is read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""A docstring with fences around its doctests.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2\n\nReturns:\n    It.")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nReturns:\n    It.'
    """
    return EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
