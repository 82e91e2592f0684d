"""The options on a magic's line, parsed as ``@argument`` declares them; every misuse is one line."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, parse_argstring

from fries_nb.errors import close_match

RUN = argument("run", nargs="?", help="name of the dataflow or variable of the run; the one that runs if left out")
SCHEDULER = argument("--scheduler", default="fries", help="fries, epoch or naive (fries)")
NO_PRUNING = argument(
    "--no-pruning", action="store_true", help="synchronise one-to-many operators that need not be as well"
)


def arguments(magic: Any, line: str) -> Namespace:
    """The arguments of a magic's line; ``output`` and ``wait`` are checked, and names lose their quotes.

    Raises:
        UsageError: it does not take them; suggests a close match, and where the help is.
    """
    name = magic.__name__
    try:
        args: Namespace = parse_argstring(magic, line)
    except UsageError as error:
        got = re.match(r"unrecognized arguments: (\S+)", str(error))
        hint = close_match(got[1], options(magic)) if got else ""
        raise UsageError(f"{name}: {error}{hint}; %{name}? shows its help") from error
    except ValueError as error:
        raise UsageError(f"{name}: {error} in: {line}") from error
    if not getattr(args, "output", "_").isidentifier():
        raise UsageError(f"-o {args.output} is not the name of a variable")
    if not 0 <= getattr(args, "wait", 0) < float("inf"):
        raise UsageError(f"--wait {args.wait:g}: expected a number of seconds, 0 or more")
    for given in ("name", "run", "of", "path"):
        if hasattr(args, given):
            setattr(args, given, _unquoted(getattr(args, given)))
    return args


def options(magic: Any) -> list[str]:
    """All options of a magic, as they are typed."""
    return [option for action in magic.parser._actions for option in action.option_strings]


def _unquoted(name: str | None) -> str | None:
    """Quotes arrive with an argument; they are not part of the name."""
    return name[1:-1] if name and len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name
