"""Parsing of a magic's options, as declared with ``@argument``; every misuse is reported in one line."""

from __future__ import annotations

import keyword
import os
import re
from argparse import Namespace
from typing import Any
from unicodedata import east_asian_width

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, parse_argstring
from traitlets import HasTraits

from fries_nb.errors import close_match
from fries_nb.scheduling import SCHEDULERS

RUN = argument("run", nargs="?", help="name of the dataflow or variable of the run; the one that runs if left out")
SCHEDULER = argument("--scheduler", help=f"{', '.join(SCHEDULERS)} (fries)")
NO_PRUNING = argument(
    "--no-pruning", action="store_true", help="synchronise one-to-many operators that need not be as well"
)


_LONGEST = 200
_AROUND, _INDENT = 60, "    "
"""Letters shown before and after a mark, and the indentation of both lines."""
_NUMBERS = {
    "wait": (0, "a number of seconds, 0 or more"),
    "guard": (0, "a number of seconds, 0 or more"),
    "hosts": (1, "a whole number, 1 or more"),
    "workers": (1, "a whole number, 1 or more"),
    "commit_interval": (0.001, "a number of seconds, more than 0"),
    "latency": (0.001, "a number of milliseconds, more than 0"),
    "at_once": (1, "a number of bins, 1 or more"),
    "window": (0.001, "a number of seconds, more than 0"),
}
"""Options by what they hold: the least, and what is expected."""
_PATHS = {"path": "the path of the file", "checkpoint": "--checkpoint"}


def arguments(magic: Any, line: str, configured: HasTraits | None = None) -> Namespace:
    """The arguments of a magic's line; numbers and ``output`` are checked, and names lose their quotes.

    Args:
        magic: the magic, decorated with ``@magic_arguments``.
        line: what follows the magic's name.
        configured: supplies values of options that the line leaves out, from traits of the same name.

    Returns:
        The parsed options by name.

    Raises:
        UsageError: an option is unknown, malformed or out of range; suggests a close match and names the help.
    """
    name = magic.__name__
    help_of = f"%{name}? shows its help"
    try:
        args: Namespace = parse_argstring(magic, line)
    except UsageError as error:
        got = re.match(r"unrecognized arguments: (\S+)", str(error))
        raise UsageError(f"{name}: {shortened(str(error))}{_meant(magic, got[1]) if got else ''}; {help_of}") from error
    except ValueError as error:
        raise UsageError(f"{name}: {error} in: {shortened(line)}") from error
    output = getattr(args, "output", "_")
    if not output.isidentifier() or keyword.iskeyword(output):
        raise UsageError(f"-o {shortened(output)} is not the name of a variable")
    for given in ("name", "run", "of", "path", "checkpoint"):
        if hasattr(args, given):
            setattr(args, given, _plain(given, getattr(args, given)))
    args.given = {name for name, value in vars(args).items() if value is not None}
    for name, value in (configured.trait_values(config=True) if configured else {}).items():
        if getattr(args, name, value) is None:
            setattr(args, name, value)
    for name, (least, what) in _NUMBERS.items():
        number = getattr(args, name, None)
        if number is not None and not least <= number < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} {number:g}: expected {what}")
    return args


def options(magic: Any) -> list[str]:
    """All options of a magic, with their dashes."""
    return [option for action in magic.parser._actions for option in action.option_strings]


def shortened(text: str) -> str:
    """User input for use in a message, cut to a bounded length.

    >>> shortened("abc" * 100)[-10:]
    'cabcab ...'
    """
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def marked(line: str, column: int) -> str:
    """A line of source and, below it, a caret at a column, as Python shows it; begins with a line end.

    Of a long line the part around the column is shown. Letters of double width have two columns above the caret.

    Args:
        line: the line.
        column: index of the letter to mark; beyond the end of the line it marks the end.

    >>> print("invalid syntax" + marked("FM=Model(x y)", 11))
    invalid syntax
        FM=Model(x y)
                   ^
    """
    begin = max(0, min(column, len(line)) - _AROUND)
    before, after = line[begin:column], line[column : column + _AROUND]
    shown = f"{'... ' if begin else ''}{before}"
    rest = " ..." if len(line) > column + _AROUND else ""
    wide = sum(2 if east_asian_width(letter) in "WF" else 1 for letter in shown)
    return f"\n{_INDENT}{shown}{after}{rest}\n{_INDENT}{' ' * wide}^"


def _meant(magic: Any, got: str) -> str:
    if got in ("-h", "--help"):
        return ""
    if re.match("--?[A-Za-z]", got):
        return close_match(got[:_LONGEST], options(magic))
    if magic.__name__ == "fries_reconfigure":
        return "; a change is OPERATOR=expression, and a name with spaces has quotes"
    takes_names = any(not action.option_strings for action in magic.parser._actions)
    return ", a name with spaces has quotes" if takes_names else "; it takes none"


def _plain(argument: str, given: str | None) -> str | None:
    """An argument's value without its quotes; in paths ``~`` is expanded.

    Raises:
        UsageError: a path is empty.
    """
    if given is None:
        return None
    if argument not in _PATHS:
        return unquoted(given)
    if not unquoted(given).strip():
        raise UsageError(f"{_PATHS[argument]} is empty; expected a path")
    return os.path.expanduser(unquoted(given))


def unquoted(name: str) -> str:
    """The name without the quotes that it was typed with."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name
