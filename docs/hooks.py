"""Pages and pictures of the site that are made when it is built: from the magics, the commands and the errors.

MkDocs calls the functions named ``on_...``.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from IPython.core.magic_arguments import MagicArgumentParser
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from pictures import pictures

from fries_nb.__main__ import COMMANDS
from fries_nb.errors import PAGES, SITE
from fries_nb.notebook.magics import FriesDashboard, FriesDifferences, FriesMagics, FriesRescaling
from fries_nb.notebook.questions import FriesComparing, FriesConstraints, FriesProgress, FriesQuestions
from fries_nb.notebook.rollout_magics import FriesRollouts

MAGICS = (
    FriesMagics, FriesRollouts, FriesDifferences, FriesDashboard, FriesQuestions, FriesComparing, FriesRescaling,
    FriesConstraints, FriesProgress,
)  # fmt: skip
COLUMNS = "88"
"""Width of the help of commands."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The address of the site is stated once, in the package."""
    config.site_url = SITE
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is generated."""
    made = {
        **{f"pictures/{name}.svg": drawing for name, drawing in pictures().items()},
        "reference/magics.md": "\n\n".join(magics()),
        "reference/commands.md": "\n\n".join(commands()),
    }
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    moving = "dashboard.gif"  # is beside the pages, where the README finds it as well
    files.append(File.generated(config, f"pictures/{moving}", abs_src_path=str(Path(__file__).parent / moving)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills in the table of errors."""
    if page.file.src_uri != "reference/errors.md":
        return markdown
    rows = [f"| `{kind.__name__}` | [{place}](../{_source(place)}) |" for kind, place in PAGES.items()]
    return markdown.replace("<!-- table of errors -->", "\n".join(["| error | page |", "|---|---|", *rows]))


def _source(place: str) -> str:
    """The Markdown file of a page.

    >>> _source("howto/cluster/#ports")
    'howto/cluster.md#ports'
    """
    path, _, anchor = place.partition("#")
    return f"{path.rstrip('/')}.md" + (f"#{anchor}" if anchor else "")


def magics() -> Iterator[str]:
    """The page on magics: the help that ``%magic?`` shows."""
    yield "# Magics"
    yield (
        "`%load_ext fries_nb` registers them. `%fries_run?` shows the help of one. A line magic begins with `%`, and a "
        "cell magic, which takes the rest of the cell as its body, with `%%`."
    )
    for group in MAGICS:
        for kind in ("line", "cell"):
            for name in group.magics[kind].values():
                if kind == "cell" and name in group.magics["line"].values():
                    continue  # it is both, and listed already
                yield from _magic("%" if kind == "line" else "%%", name, getattr(group, name).parser)


def _magic(sign: str, name: str, parser: MagicArgumentParser) -> Iterator[str]:
    yield f"## `{sign}{name}` {{ #{name} }}"
    yield plain(parser.description or "")
    rows = []
    for action in parser._actions:
        names = ", ".join(action.option_strings) or (action.metavar or action.dest)
        value = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
        rows.append(f"| `{names}{value}` | {(action.help or '').replace('%%', '%')} |")
    if rows:
        yield "\n".join(["| argument | |", "|---|---|", *rows])


def plain(text: str) -> str:
    r"""A docstring as Markdown.

    >>> print(plain("Do.\n\n    Examples::\n\n        %do"))
    Do.
    <BLANKLINE>
    Examples:
    <BLANKLINE>
        %do
    """
    return re.sub(r"::\n", ":\n", inspect.cleandoc(text))


def commands() -> Iterator[str]:
    """The page on commands: what ``--help`` prints."""
    os.environ["COLUMNS"] = COLUMNS
    yield "# Commands"
    yield "Each has `--help`. Bad input is answered by one short line and exit code 2."
    for name in COMMANDS:
        module = importlib.import_module(f"fries_nb.commands.{name}")
        parsers = argparse.ArgumentParser(prog="python -m fries_nb").add_subparsers()
        module.add_parser(parsers)
        yield f"## `{name}`"
        yield f"```text\n{parsers.choices[name].format_help().strip()}\n```"
