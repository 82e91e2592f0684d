"""Errors and warnings that users can meet. Messages say what was given, what was expected, and the likely mistake.

A ``FriesError`` has a message of one or two lines; notebooks and commands show it without a stack trace, and below it
the page of the documentation that tells more, if there is one.

>>> unknown("operator", "FN", ["FC", "FM", "MC"])
"no operator 'FN'; expected one of FC, FM, MC; did you mean 'FM'?"
>>> see(CheckpointError("no checkpoint in 'a/path'"))
'See: https://fries-nb.github.io/fries_nb/howto/checkpoints/'
"""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

_MOST_CHARS = 10_000


class FriesError(Exception):
    """Base class of all errors that fries_nb raises on purpose.

    Attributes:
        mentions: column to the value of a row that the message mentions; masked if the column is not to be shown.
    """

    mentions: Mapping[str, Any] = MappingProxyType({})

    def _render_traceback_(self) -> list[str]:
        """Called by IPython; shows the message and the address of its page only."""
        return [with_page(f"{type(self).__name__}: {self}", self)]


class DataflowError(FriesError):
    """An invalid declaration: duplicate name, cycle, unknown stream, malformed JSON."""


class PlanError(FriesError):
    """A change that cannot be planned: unknown operator, empty change, change of a source."""


class ReconfigurationError(FriesError):
    """A change that was refused or aborted; nothing was changed."""


class DoubtfulChangeError(ReconfigurationError):
    """A change that was not made since its rehearsal drops every tuple or is 100 times slower; it can be forced."""


class OperatorError(FriesError):
    """A user function raised.

    Args:
        message: the message.
        operator: name of the operator.
        details: the traceback from the user's first frame on; empty if there is none.
    """

    def __init__(self, message: str, operator: str = "", details: str = "") -> None:
        super().__init__(message)
        self.operator = operator
        self.details = details


class DeclarationError(OperatorError):
    """An operator violated its declaration at run time, as a one-to-one operator that emitted two rows."""


class KeyTypeError(OperatorError):
    """A value, or a column, of a type that cannot be that of a key: a list, a struct, a map."""


class ProtocolError(FriesError):
    """A message that is not allowed in the current state of a worker or the controller."""


class LinkError(FriesError):
    """A connection was lost or cannot be made, or a frame is truncated, oversized, or of an older incarnation."""


class SessionError(FriesError):
    """Spark cannot be started, or the session is not suitable: no Java, too few task slots, Spark Connect."""


class SourceError(FriesError):
    """A source that cannot be read: no such path, no rows, an invalid rate."""


class SinkError(FriesError):
    """A sink that cannot be written or committed, or a row that does not fit its schema."""


class ColumnError(SinkError):
    """A column arrived at a sink in a type that is incompatible with its earlier type.

    Args:
        message: the message.
        column: name of the column.
        before: the earlier columns, as a serialized Arrow schema.
    """

    def __init__(self, message: str, column: str, before: bytes) -> None:
        super().__init__(message)
        self.column = column
        self.before = before


class CheckpointError(FriesError):
    """A checkpoint that cannot be written or read: no space, damaged, of another dataflow or version."""


class PlaceHeldError(CheckpointError):
    """A checkpoint directory that another run holds or has taken over; names its process, machine and start time."""


class TokenError(FriesError):
    """A timestamp token used wrongly: after it was dropped, for an earlier time, or outside of its function."""


class RunError(FriesError):
    """The run has ended or failed; gives the reason, and what remains readable."""


class TraceError(FriesError):
    """A trace that is malformed, empty or incomplete."""


class LabError(FriesError):
    """An answer of a teaching lab that is missing or wrong; says the likely mistake, or what to run first.

    Args:
        message: the message.
        picture: what IPython shows above the message, such as a picture of the answer; ``None`` for nothing.
    """

    def __init__(self, message: str, picture: object = None) -> None:
        super().__init__(message)
        self.picture = picture
        self._shown = picture is None

    def _render_traceback_(self) -> list[str]:
        """Called by IPython, whose ``display`` is a built-in function; twice, as it also stores what it shows."""
        if not self._shown:
            self._shown = True
            vars(builtins)["display"](self.picture)
        return super()._render_traceback_()


SITE = "https://fries-nb.github.io/fries_nb/"
"""Address of the documentation."""
PAGES: Mapping[type[FriesError], str] = {
    ReconfigurationError: "howto/change-fails/",
    DoubtfulChangeError: "howto/change-fails/#a-change-that-drops-every-tuple",
    OperatorError: "howto/change-fails/#a-tuple-that-an-operator-fails-on",
    LinkError: "howto/cluster/#ports",
    SessionError: "howto/cluster/#when-it-does-not-start",
    SourceError: "reference/connectors/",
    SinkError: "reference/connectors/",
    ColumnError: "howto/change-fails/#columns-of-incompatible-types",
    CheckpointError: "howto/checkpoints/",
    PlaceHeldError: "howto/checkpoints/#one-run-at-a-time",
    TokenError: "ideas/progress/#tokens",
}
"""The page on each kind of error, below ``SITE``; it is also that of derived classes without one of their own. An error
whose message says all there is to say has none."""


def exception_text(error: BaseException) -> str:
    """An exception that users' code has raised, as its type and message; making the message is users' code as well.

    >>> exception_text(ValueError("no such day"))
    'ValueError: no such day'
    """
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 (it must not hide the failure that it is part of)
        message = f"(its message cannot be shown: its __str__ raises {type(broken).__name__})"
    more = len(message) - _MOST_CHARS
    shown = message if more <= 0 else f"{message[:_MOST_CHARS]}... ({more:,} more characters)"
    return f"{type(error).__name__}: {shown}"


def see(error: BaseException) -> str:
    """The line that refers to the page on an error; empty if there is none.

    >>> see(DeclarationError("A is one-to-one and emitted two rows")).rpartition("/")[2]
    '#a-tuple-that-an-operator-fails-on'
    >>> see(PlanError("the change is empty"))
    ''
    """
    page = next((PAGES[kind] for kind in type(error).__mro__ if kind in PAGES), "")
    return f"See: {SITE}{page}" if page else ""


def with_page(message: str, error: BaseException) -> str:
    """The message, and below it the line that refers to the page on the error, if there is one."""
    return "\n".join(filter(None, [message, see(error)]))


class UncommittedWarning(UserWarning):
    """A run was stopped without a drain, or failed: tuples that it has read are missing from its output."""


class MemoryWarning(UserWarning):
    """There is too little free memory for the Spark session that is being started."""


def close_match(got: object, options: Iterable[str]) -> str:
    """The end of an error message that suggests a similar name; empty if there is none.

    >>> close_match("mc", ["FC", "MC"])
    "; did you mean 'MC'?"
    >>> close_match("zebra", ["FC", "MC"])
    ''
    """
    known = {option.lower(): option for option in options}
    found = difflib.get_close_matches(str(got).lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {known[found[0]]!r}?" if found else ""


def unknown(what: str, got: object, options: Iterable[str]) -> str:
    """The message for an unknown name, or what is no name, with at most ten of the known ones."""
    names = list(options)
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "") if names else "none"
    return f"no {what} {got!r}; expected one of {shown}{close_match(got, names)}"


def in_one_line(error: str, details: str = "") -> tuple[str, str]:
    r"""Shortens a message of several lines to its first; the full text becomes the details.

    >>> in_one_line("A failed: 2 errors\n  x is missing\n  y is missing")[0]
    'A failed: 2 errors ...'
    """
    lines = [line for line in error.splitlines() if line.strip()]
    if len(lines) < 2:
        return error.strip(), details
    return f"{lines[0].rstrip()} ...", details or error
