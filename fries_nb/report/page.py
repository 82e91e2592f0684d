r"""A self-contained HTML page: no script, no network access, no other files; follows the reader's light or dark mode.

``page.jinja`` is what all pages share; ``run.jinja`` and ``comparison.jinja`` have the words of each.

>>> part("next_step", "a < b")
Markup('<p>Next: <code>a &lt; b</code></p>')
>>> rendered("page.jinja", title="A & B", contents="two").startswith('<!DOCTYPE html>\n<html lang="en">')
True

Frames that a reader steps through, without script: one is shown at a time, with buttons for its neighbours.

The frames follow each other in a form whose radio buttons choose one; style rules (``stepper.css``) turn the labels of
its neighbours into ``Previous`` and ``Next``. Keys work as for all radio buttons: Tab enters the group, arrows step. A
form keeps the radio buttons of several displays on one page apart. Where style rules are missing (an untrusted
notebook), where the browser does not know them, and in print, all frames are shown one below the other.

>>> html = part("stepper", "Two frames", ["first", "second"])
>>> html.count('type="radio"'), html.count("checked>"), "Step 2 of 2" in html
(2, 1, True)
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from os import PathLike
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fries_nb.errors import RunError
from fries_nb.report.markup import inline
from fries_nb.running.results import Place
from fries_nb.words import counted, milliseconds


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {"counted": counted, "inline": inline, "milliseconds": milliseconds}
    return found


def rendered(template: str, **values: object) -> str:
    """A page by a template; text is escaped."""
    return _templates().get_template(template).render(values)


def part(name: str, *values: object) -> Markup:
    """What the macro ``name`` of ``parts.jinja`` makes of values; text among them is escaped."""
    macro: Callable[..., str] = getattr(_templates().get_template("parts.jinja").module, name)
    return Markup(macro(*values))


def setting_words(place: Place) -> str:
    """The setting in one line, with the versions of the software."""
    software = f"Python {platform.python_version()}, PySpark {version('pyspark')}, fries_nb {version('fries_nb')}"
    machine = f"{platform.system()} {platform.machine()} with {counted(os.cpu_count() or 1, 'core')}"
    credit = f"{place.budget / (1 << 20):,.3g} MiB of credit a host"
    began = f"Begun {datetime.fromtimestamp(place.began_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{began} · {counted(place.hosts, 'host')}, {credit} · {software} · {machine}"


def writable(path: str | PathLike[str]) -> Path:
    """The path, if a file can be written there."""
    chosen = Path(path)
    if not chosen.parent.is_dir() or chosen.is_dir():
        raise RunError(f"cannot write a report to {str(path)!r}; expected a file name in a directory that exists")
    return chosen


def write_page(path: str | PathLike[str], text: str) -> str:
    """Write the document to a file and return its path."""
    try:
        writable(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write a report to {str(path)!r}: {error.strerror}") from None
    return str(path)
