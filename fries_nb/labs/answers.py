"""Answers of students: whether there is one, in which form, what has to be run before, and what a wrong one is told.

>>> needs({"run": 1}, run="task 1", change="task 2")
Traceback (most recent call last):
fries_nb.errors.LabError: 'change' is not defined yet; run the cells of task 2 first, from the first one on
>>> sorted(names_in(["B", "A"], "ABC")) == sorted(names_in("A, B", "ABC"))
True
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LabError, exception_text, unknown
from fries_nb.report.dag import STATES, draw
from fries_nb.report.layout import layout

WRONG_ANSWERS: Counter[Hashable] = Counter()
"""How often each question was answered wrongly in this process: a new kernel begins anew."""
_WIDTH = 900.0


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture with its text, as a cell shows it.

    Attributes:
        text: the text.
        svg: the picture; may be empty.
    """

    text: str
    svg: str = ""

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = {"text/plain": repr(self)}
        return shown | {"text/html": f"<p>{escape(repr(self))}</p>{self.svg}"} if self.svg else shown


class Passed(Picture):
    """A check that an answer has passed: what the answer shows, with a picture of it."""

    def __repr__(self) -> str:
        return f"Right. {self.text}"


@dataclass(frozen=True)
class AnsweredSet:
    """An answer that names operators of a dataflow, to be drawn on it.

    Attributes:
        graph: the dataflow.
        targets: the operators that change.
        given: the operators of the answer.
        right: those of the right one.
        parts: components, those of the answer if it names any; edges inside of one are emphasized.
    """

    graph: Graph
    targets: Collection[str]
    given: Collection[str]
    right: Collection[str]
    parts: Collection[Collection[str]] = ()

    def answered(self) -> Picture:
        """The answer, not judged."""
        return self._drawn({name: "answered" for name in self.graph if name in self.given}, STATES)

    def judged(self) -> Picture:
        """The answer, with what is not right in it and what is missing."""
        found = {name: "answered" if name in self.right else "wrong" for name in self.graph if name in self.given}
        lacking = {name: "missing" for name in self.graph if name in {*self.right} - {*self.given}}
        return self._drawn(found | lacking, {**STATES, "answered": "Right"})

    def _drawn(self, states: dict[str, str], meanings: Mapping[str, str]) -> Picture:
        words = {name: f"target {states.get(name, '')}".strip() for name in self.targets}
        seen = {word for state in (states | words).values() for word in state.split()}
        legend = {state: meaning for state, meaning in meanings.items() if state in seen}
        inside = {
            (edge.source, edge.to) for edge in self.graph.edges
            if any({edge.source, edge.to} <= set(part) for part in self.parts)
        }  # fmt: skip
        facts = {name: meanings[state].lower() for name, state in states.items() if state != "answered"}
        placed = layout(self.graph, _WIDTH, False)
        svg = draw(self.graph, placed, {**states, **words}, {}, {}, inside, legend, facts=facts)
        told = [
            f"{meanings[state]}: {listed(name for name in states if states[name] == state)}."
            for state in ("answered", "wrong", "missing")
            if state in states.values()
        ]
        return Picture(" ".join(told) or "Your answer: no operator.", svg)


def wrong(question: Hashable, hint: str, why: str, drawn: AnsweredSet | None = None) -> LabError:
    """The error on a wrong answer: the first one to a question gets a hint, any other one is explained.

    Each attempt counts, also with the same answer again, so that no student gets stuck.

    >>> for attempt in range(2):
    ...     print(wrong("how many rows wait", "which rows have arrived, and which have left?", "60 rows wait, not 30"))
    not right yet: which rows have arrived, and which have left? (the next wrong answer is explained)
    60 rows wait, not 30

    Args:
        question: what tells the question from all others.
        hint: what to look at again, which does not give the answer away.
        why: what is wrong with the answer.
        drawn: the answer, drawn with the hint as it is, with the explanation judged.

    Returns:
        The error, to be raised.
    """
    WRONG_ANSWERS[question] += 1
    if WRONG_ANSWERS[question] == 1:
        return LabError(f"not right yet: {hint} (the next wrong answer is explained)", drawn and drawn.answered())
    return LabError(why, drawn and drawn.judged())


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
