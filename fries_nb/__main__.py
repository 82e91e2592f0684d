"""``python -m fries_nb COMMAND``: each command is a module of ``fries_nb.commands``; ``COMMANDS`` lists them.

Bad input is answered by one short line on standard error and exit code 2; a second line has the address of the page on
such an error, if there is one.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from fries_nb import __version__
from fries_nb.errors import FriesError, UncommittedWarning, close_match, with_page

COMMANDS = ("demo", "plan", "diff", "audit", "experiment", "bench", "archive", "doctor")
"""Modules of ``fries_nb.commands``: each has ``add_parser(subparsers)``, and its parser sets ``run(args)``."""


class _Parser(argparse.ArgumentParser):
    """Refuses in one line instead of with its usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help shows what is expected)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _Parser(prog="python -m fries_nb", description="Dataflows on Spark whose operators are replaced live.")
    if given and not given[0].startswith("-") and given[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        parser.error(f"no command {given[0]!r}; expected one of {known}{close_match(given[0], COMMANDS)}")
    parser.add_argument("--version", action="version", version=f"fries_nb {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in given[:1] if given and given[0] in COMMANDS else COMMANDS:
        importlib.import_module(f"fries_nb.commands.{name}").add_parser(subparsers)
    chosen = parser.parse_args(given)
    warnings.simplefilter("ignore", UncommittedWarning)  # what commands run is measured, and its output not kept
    try:
        return int(chosen.run(chosen))
    except FriesError as error:
        print(with_page(f"{parser.prog} {given[0]}: {error}", error), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
