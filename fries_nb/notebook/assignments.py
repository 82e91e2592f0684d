"""Parser for the line of a change: any number of ``OPERATOR=expression`` assignments and options, in any order.

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
import re
import tokenize
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from tokenize import TokenInfo
from typing import Any, NoReturn

from IPython.core.error import UsageError

from fries_nb.errors import DataflowError, FriesError, PlanError, close_match, exception_text
from fries_nb.notebook.options import marked, shortened

PLACEHOLDER = "new_function"
"""Placeholder for the user's function in the suggested next step."""
_EXPECTED = "expected OPERATOR=expression, as in FM=MerchantModel(window=10)"
_OPTION = re.compile(r"--[A-Za-z][\w-]*|-[A-Za-z](?=\s|$)")


@dataclass(frozen=True)
class AssignmentLine:
    """A line, split into options and assignments.

    Attributes:
        options: the options, as a line without the assignments.
        expressions: operator name to the Python expression of its new function, in the order of the line.
    """

    options: str
    expressions: dict[str, str] = field(default_factory=dict)


def split_line(line: str, options: Collection[str]) -> AssignmentLine:
    """Cut a line into its options and its assignments.

    Args:
        line: what follows the magic's name.
        options: the options that exist. Those with one dash (``-o``) are recognised only if they are listed, since
            ``x -o`` is a subtraction; two dashes that touch a word are always an option.

    Returns:
        The options and the assignments, separately.

    Raises:
        UsageError: a bracket or quote is left open, an operator has two expressions, or one is empty or ends in a
            comma.
    """
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
    """Evaluate the expressions in the user's namespace.

    Args:
        expressions: operator name to expression.
        names: the user's namespace.

    Returns:
        Operator name to the expression's value.

    Raises:
        UsageError: there are no expressions, or one is not valid Python or raises; names the operator.
        FriesError: an expression raised it.
    """
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
        hint = _meant(error.name, names) if error.name else ""
        raise UsageError(f"{operator}={shortened(expression)}: {error}{hint}") from error
    except (Exception, SystemExit) as error:
        said = shortened(" ".join(exception_text(error).split()))
        raise UsageError(f"{operator}={shortened(expression)}: {said}") from error


def _meant(missing: str, names: dict[str, Any]) -> str:
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
    """The tokens of a line.

    Raises:
        UsageError: a bracket or a quote has no counterpart; marks it.
    """
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
