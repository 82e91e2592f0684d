"""Every error that a user can meet: what was got, what was expected, the likely mistake.

A ``FriesError`` is one or two lines and is meant to be read, so a notebook shows it without a stack of frames.

>>> unknown("operator", "FN", ["FC", "FM", "MC"])
"no operator 'FN'; expected one of FC, FM, MC; did you mean 'FM'?"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FriesError(Exception):
    """Base of all errors raised on purpose by fries_nb."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: show the message alone (a user's mistake is not a crash of ours)."""
        return [f"{type(self).__name__}: {self}"]


class DataflowError(FriesError):
    """A declaration that no dataflow can have: duplicate name, cycle, unknown stream, bad JSON."""


class PlanError(FriesError):
    """A change that cannot be planned: unknown operator, empty change, change of a source."""


class ReconfigurationError(FriesError):
    """A change that was refused or aborted; nothing changed anywhere."""


class OperatorError(FriesError):
    """The user's own function raised; carries the operator, and the traceback from the user's frame on.

    ``operator`` is the operator's name; ``details`` the traceback text, empty when there is none.
    """

    def __init__(self, message: str, operator: str = "", details: str = "") -> None:
        super().__init__(message)
        self.operator = operator
        self.details = details


class DeclarationError(OperatorError):
    """An operator did at run time what its declaration excludes (say, two rows from a one-to-one)."""


class ProtocolError(FriesError):
    """A message that is illegal in the present state of a worker or the controller."""


class LinkError(FriesError):
    """A frame that is truncated, oversized, of an older incarnation, or from a stranger."""


class SessionError(FriesError):
    """Spark cannot be started, or the session at hand cannot serve: no Java, too few slots, Connect."""


class SourceError(FriesError):
    """A source that cannot be read: no such path, no rows, a bad rate."""


class SinkError(FriesError):
    """A sink that cannot be written or committed, or a row that does not fit its schema."""


class ColumnError(SinkError):
    """A sink got a column in two types that no one type holds.

    ``column`` is its name; ``before`` the columns that came before, as a serialized Arrow schema.
    """

    def __init__(self, message: str, column: str, before: bytes) -> None:
        super().__init__(message)
        self.column = column
        self.before = before


class CheckpointError(FriesError):
    """A checkpoint that cannot be written or read: no room, damaged, of another flow or version."""


class PlaceHeldError(CheckpointError):
    """A checkpoint place that another run holds, or has taken over; says which process, where and since when."""


class RunError(FriesError):
    """The run is over or has failed; says why, and what stays readable."""


class TraceError(FriesError):
    """A line of a trace that is not a data or an update record."""


class UncommittedWarning(UserWarning):
    """A run was stopped without being drained, or has failed: what it had read is not, or not all, in its output."""


class MemoryWarning(UserWarning):
    """There is too little free memory for the Spark that is about to start."""


def close_match(got: str, options: Iterable[str]) -> str:
    """The tail of an error message that suggests what was likely meant, or an empty string.

    >>> close_match("mc", ["FC", "MC"])
    "; did you mean 'MC'?"
    >>> close_match("zebra", ["FC", "MC"])
    ''
    """
    known = {option.lower(): option for option in options}
    found = difflib.get_close_matches(got.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {known[found[0]]!r}?" if found else ""


def unknown(what: str, got: str, options: Iterable[str]) -> str:
    """The message for a name that does not exist, listing at most ten that do."""
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
