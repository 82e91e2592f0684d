"""Answers of students: whether there is one, in which form, and what has to be run before it is checked.

>>> needs({"run": 1}, run="task 1", change="task 2")
Traceback (most recent call last):
fries_nb.errors.LabError: 'change' is not defined yet; run the cells of task 2 first, from the first one on
>>> sorted(names_in(["B", "A"], "ABC")) == sorted(names_in("A, B", "ABC"))
True
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from fries_nb.errors import LabError, exception_text, unknown


@dataclass(frozen=True, repr=False)
class Passed:
    """A check that an answer has passed, as a cell shows it.

    Attributes:
        text: what the answer shows.
        svg: a picture of it; may be empty.
    """

    text: str
    svg: str = ""

    def __repr__(self) -> str:
        return f"Right. {self.text}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = {"text/plain": repr(self)}
        return shown | {"text/html": f"<p>{escape(repr(self))}</p>{self.svg}"} if self.svg else shown


def needs(defined: Mapping[str, Any], **where: str) -> None:
    """Refuse to go on before these names are defined.

    Args:
        defined: the names of the notebook, ``globals()``.
        where: name to the part of the lab that defines it.

    Raises:
        LabError: one is not defined; says which cells to run first.
    """
    for name, part in where.items():
        if name not in defined:
            raise LabError(f"{name!r} is not defined yet; run the cells of {part} first, from the first one on")


def answered(answer: Any, form: str) -> None:
    """Refuse an answer that was left open.

    Args:
        answer: the answer.
        form: how one is written.

    Raises:
        LabError: there is none.
    """
    if answer is None or answer is ...:
        raise LabError(f"there is no answer yet; write it in the cell above as {form}, run that cell, then this one")


def names_in(answer: Any, known: Iterable[str], what: str = "operator") -> set[str]:
    """The names of an answer, whether it is a set, a list, or a text with commas.

    Args:
        answer: the answer.
        known: all names.
        what: what they name.

    Raises:
        LabError: there is no answer, or it has another form or an unknown name.
    """
    known = list(known)
    example = ", ".join(map(repr, known[:2]))
    answered(answer, f"a set of names, such as {{{example}}}")
    names = re.findall(r"[^\s,]+", answer) if isinstance(answer, str) else answer
    if isinstance(names, Mapping) and not names:
        return set()  # {} is meant as the empty set
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise LabError(f"got {answer!r}; expected a set of names, such as {{{example}}}")
    for name in names:
        if name not in known:
            raise LabError(unknown(what, name, known))
    return set(names)


def number_in(answer: Any, what: str) -> float:
    """The number of an answer.

    >>> number_in("12", "the latency in ms")
    Traceback (most recent call last):
    fries_nb.errors.LabError: got '12' for the latency in ms; expected a number

    Args:
        answer: the answer.
        what: what it counts, with its unit.

    Raises:
        LabError: there is no answer, or it is no number.
    """
    answered(answer, f"a number, {what}")
    if isinstance(answer, bool) or not hasattr(answer, "__float__") or isinstance(answer, str):
        raise LabError(f"got {answer!r} for {what}; expected a number")
    return float(answer)


def result_of(function: Any, *arguments: Any) -> Any:
    """What a function of an answer returns.

    >>> result_of(lambda: None)
    Traceback (most recent call last):
    fries_nb.errors.LabError: <lambda> returns nothing yet; write its body, and return the result

    Args:
        function: the function.
        arguments: what it is called with.

    Returns:
        Its result.

    Raises:
        LabError: it cannot be called, raises, or returns nothing.
    """
    name = getattr(function, "__name__", repr(function))
    if not callable(function):
        raise LabError(f"got {name}; expected a function")
    try:
        result = function(*arguments)
    except NotImplementedError:  # what nbgrader leaves in the place of an answer
        result = None
    except Exception as error:
        given = ", ".join(map(str, arguments))
        raise LabError(f"{name} raised {exception_text(error)}, for {given}") from error
    if result is None:
        raise LabError(f"{name} returns nothing yet; write its body, and return the result")
    return result


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, sorted.

    >>> listed({"B", "A", "C"})
    'A, B and C'
    """
    *first, last = sorted(names)
    return f"{', '.join(first)} and {last}" if first else last
