"""Parsing of a magic's options, as declared with ``@argument``; every misuse is reported in one line.

Parser for the line of a change: any number of ``OPERATOR=expression`` assignments and options, in any order.

Expressions are plain Python with spaces, quotes and ``=`` signs of their own. The line is therefore split at Python
tokens: an assignment or option begins outside of all brackets, strings and lambda parameters.

>>> line = 'fraud FM=Model(window=10, name="a b=c") MC = lambda row, w=0.2: row | {"p": w} --scheduler epoch "F D"=f'
>>> split = split_line(line, ["--scheduler"])
>>> split.options
'fraud --scheduler epoch'
>>> for name, expression in split.expressions.items():
...     print(name, "<-", expression)
FM <- Model(window=10, name="a b=c")
MC <- lambda row, w=0.2: row | {"p": w}
F D <- f
"""

from __future__ import annotations

import ast
import io
import itertools
import keyword
import linecache
import os
import re
import tokenize
import zlib
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from tokenize import TokenInfo
from typing import Any, NoReturn
from unicodedata import east_asian_width

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, parse_argstring
from traitlets import HasTraits

from fries_nb.dataflow.arguments import Tuples
from fries_nb.errors import DataflowError, FriesError, PlanError, close_match, exception_text
from fries_nb.notebook.summaries import quoted
from fries_nb.planning.schedulers import CHOICES

OF = argument(
    "--of", metavar="NAME", help="of the dataflow or variable of the run; the one that runs if left out"
)
OF_EITHER = argument(
    "--of", metavar="NAME", help="of the dataflow or run; what runs, or else was declared last, if left out"
)
SCHEDULER = argument("--scheduler", help=f"{', '.join(CHOICES)} (fries)")
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
    """The arguments of a magic's line; numbers and ``output`` are checked, and names lose their quotes."""
    # ``configured`` supplies what the line leaves out, from traits of the same name.
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
    for given in ("name", "of", "path", "checkpoint"):
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


def refuse_rest(rest: Sequence[str], operators: Iterable[str]) -> None:
    """Refuse what stands on the line of a change and is no assignment."""
    if not rest:
        return
    begins = rest[0].partition("=")[0].rstrip(":+")
    meant = next((name for name in operators if name == begins or name.split(" ")[0] == begins), "")
    change = f"for a change of the operator: {quoted(meant)}={PLACEHOLDER}"
    hint = change if meant else f"a run is named by --of {shortened(begins)}"
    raise UsageError(f"{shortened(' '.join(rest))}: {_EXPECTED}; {hint}")


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
    takes_names = any(not action.option_strings for action in magic.parser._actions)
    if takes_names:
        return ", a name with spaces has quotes"
    return f"; a run is named by --of {shortened(got)}" if "--of" in options(magic) else "; it takes none"


def _plain(argument: str, given: str | None) -> str | None:
    """An argument's value without its quotes; in paths ``~`` is expanded."""
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


def share_of(given: str, option: str) -> float:
    """A share, as in ``5%`` or ``0.05``.

    Raises:
        UsageError: it is none.
    """
    text = unquoted(given.strip())
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{option} {shortened(given)}: expected a share, as in 5% or 0.05")
    return share


def limit_of(given: str | None) -> float | Tuples | None:
    """A number of rows, or of seconds, as in ``30s``.

    Raises:
        UsageError: it is neither.
    """
    if given is None:
        return None
    text = given.replace("_", "")
    if not text.removesuffix("s").isdecimal() or not int(text.removesuffix("s")):
        raise UsageError(f"--every {shortened(given)}: expected rows of the new version, as in 10000, or seconds, 30s")
    return float(text[:-1]) if text.endswith("s") else Tuples(int(text))


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def size_of(given: str, option: str) -> int:
    """A number of bytes.

    >>> size_of("1MB", "--bytes"), size_of("0.5MiB", "--bytes"), size_of("4_096", "--bytes")
    (1000000, 524288, 4096)

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Z]*)", unquoted(given.strip()).upper().replace("_", ""))
    if found is None or found[2] not in _UNITS:
        raise UsageError(f"{option} {shortened(given)}: expected a number of bytes, as in 1MB, 512KiB or 65536")
    return int(float(found[1]) * _UNITS[found[2]])


PLACEHOLDER = "new_function"
"""Placeholder for the user's function in the suggested next step."""
_EXPECTED = "expected OPERATOR=expression, as in FM=MerchantModel(window=10)"
_OPTION = re.compile(r"--[A-Za-z][\w-]*|-[A-Za-z](?=\s|$)")


@dataclass(frozen=True)
class AssignmentLine:
    """A line, split into its options, and the expression of each operator's new function in the order of the line."""

    options: str
    expressions: dict[str, str] = field(default_factory=dict)


def split_line(line: str, options: Collection[str]) -> AssignmentLine:
    """Cut a line into its options and its assignments."""
    # Options with one dash (``-o``) are recognised only if they exist, since ``x -o`` is a subtraction; two dashes that
    # touch a word are always an option.
    starts = [*_starts(line, _tokens(line), options), _Start(len(line), len(line), None)]
    rest = [line[: starts[0].begins]]
    expressions: dict[str, str] = {}
    for start, end in itertools.pairwise(starts):
        text = line[start.value_begins : end.begins].strip()
        if start.name is None:
            rest.append(text)
        elif start.name in expressions:
            raise UsageError(f"{start.name} is assigned twice; a change has one function for each operator")
        elif text.endswith(","):
            got = f"{start.name}={shortened(text)}"
            raise UsageError(f"{got} ends in a comma; separate changes with spaces, not commas")
        elif not text:
            raise UsageError(f"{start.name}= has no expression behind it; {_EXPECTED}")
        else:
            expressions[start.name] = text
    return AssignmentLine(" ".join(part.strip() for part in rest if part.strip()), expressions)


def evaluate(expressions: dict[str, str], names: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the expressions of operators in the user's namespace."""
    if not expressions:
        raise UsageError(f"nothing to change; {_EXPECTED}")
    return {operator: _value(operator, expression, names) for operator, expression in expressions.items()}


def _value(operator: str, expression: str, names: dict[str, Any]) -> Any:
    file = f"<{operator} {zlib.crc32(expression.encode()):08x}>"
    try:
        tree = ast.parse(expression, file, mode="eval")
        linecache.cache[file] = (len(expression), None, [f"{expression}\n"], file)  # for tracebacks of a lambda
        return eval(compile(tree, file, "eval"), names)
    except (DataflowError, PlanError) as error:  # raised by fn.Update, which does not know the operator
        raise type(error)(f"operator {operator!r}: {error}") from error
    except FriesError:
        raise
    except SyntaxError as error:
        place = marked(error.text or expression, error.offset - 1) if error.offset else ""
        got = f"{operator}={shortened(expression)}"
        raise UsageError(f"{got} is not a Python expression: {error.msg}{place}") from error
    except NameError as error:
        hint = _meant_operator(error.name, names) if error.name else ""
        raise UsageError(f"{operator}={shortened(expression)}: {error}{hint}") from error
    except (Exception, SystemExit) as error:
        reason = shortened(" ".join(exception_text(error).split()))
        raise UsageError(f"{operator}={shortened(expression)}: {reason}") from error


def _meant_operator(missing: str, names: dict[str, Any]) -> str:
    if missing == PLACEHOLDER:
        return f"; replace {PLACEHOLDER} with your own, as in MerchantModel(window=10)"
    return close_match(missing, [name for name in names if not name.startswith("_")])


@dataclass(frozen=True)
class _Start:
    """The start of an assignment (``name`` is set) or of an option (it is ``None``), and of its value, as columns."""

    begins: int
    value_begins: int
    name: str | None


def _tokens(line: str) -> list[TokenInfo]:
    """The tokens of a line."""
    tokens: list[TokenInfo] = []
    opened: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            tokens.append(token)
            column = token.start[1]
            if token.type == tokenize.ERRORTOKEN and token.string[0] in "'\"":
                raise UsageError(f"a quote is not closed in: {shortened(line)}{marked(line, column)}")
            if token.string in ("(", "[", "{"):
                opened.append(column)
            elif token.string in (")", "]", "}"):
                if not opened:
                    _refuse_closed(line, column)
                opened.pop()
    except (tokenize.TokenError, SyntaxError) as error:
        if not opened and any(line.count(closing) > line.count(opening) for opening, closing in ("()", "[]", "{}")):
            _refuse_closed(line, len(line))
        place = marked(line, opened[-1]) if opened else ""
        raise UsageError(f"a bracket or quote is not closed in: {shortened(line)}{place}") from error
    return tokens


def _refuse_closed(line: str, column: int) -> NoReturn:
    raise UsageError(f"a bracket is closed that was not opened in: {shortened(line)}{marked(line, column)}")


def _starts(line: str, tokens: list[TokenInfo], options: Collection[str]) -> Iterator[_Start]:
    depth = lambdas = 0
    for token, following in itertools.pairwise(tokens):
        column = token.start[1]
        if token.string in ("(", "[", "{"):
            depth += 1
        elif token.string in (")", "]", "}"):
            depth -= 1
        elif depth:
            continue
        elif token.string == "lambda":
            lambdas += 1
        elif token.string == ":" and lambdas:
            lambdas -= 1
        elif not lambdas and (column == 0 or line[column - 1].isspace()):
            if following.string == "=" and (name := _name(token)):
                yield _Start(column, following.end[1], name)
            elif (option := _OPTION.match(line, column)) and (option[0][:2] == "--" or option[0] in options):
                yield _Start(column, column, None)


def _name(token: TokenInfo) -> str:
    """The operator named by an identifier or string token; empty for other tokens."""
    if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
        return token.string
    if token.type == tokenize.STRING and token.string[0] in "'\"":
        return str(ast.literal_eval(token.string))
    return ""
