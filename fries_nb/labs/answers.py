"""Answers of students: whether there is one, in which form, what has to be run before, and what a wrong one is told.

>>> needs({"run": 1}, run="task 1", change="task 2")
Traceback (most recent call last):
fries_nb.errors.LabError: 'change' is not defined yet; run the cells of task 2 first, from the first one on
>>> sorted(names_in(["B", "A"], "ABC")) == sorted(names_in("A, B", "ABC"))
True

Questions with one right answer, a number or a choice, and what is wrong with the likely wrong ones.

The notebooks name a question only, so that its answer is not in the cell below it.

>>> check_quantities(one_worker=20, three_workers=None)
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: one_worker: how many calls fit into a second, one after the other? (the next
wrong answer is explained)
>>> check_quantities(one_worker=20, three_workers=None)
Traceback (most recent call last):
fries_nb.errors.LabError: one_worker: 20 payments a second is not right: 20 ms is the time of one payment
>>> check_quantities(one_worker=50, three_workers=150)
Right. one_worker: 50 payments a second; three_workers: 150 payments a second.
>>> check_choices(lines="600")
Traceback (most recent call last):
fries_nb.errors.LabError: not right yet: lines: which rows are processed twice, ...
>>> check_choices(lines="600")
Traceback (most recent call last):
fries_nb.errors.LabError: lines: not '600'; rows that were read after the last checkpoint are read again, and the file
remembers both times
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import LabError, exception_text, unknown
from fries_nb.report.dag import STATES, draw
from fries_nb.report.layout import layout

WRONG_ANSWERS: Counter[Hashable] = Counter()
"""How often each question was answered wrongly in this process: a new kernel begins anew."""
_WIDTH = 900.0


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture with its text, as a cell shows it."""

    text: str
    svg: str = ""  # the picture; may be empty

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
        parts: components, those of the answer if it names any; edges inside of one are emphasized.
    """

    graph: Graph
    targets: Collection[str]  # the operators that change
    given: Collection[str]  # the operators of the answer
    right: Collection[str]  # those of the right one
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

    ``question``: what tells the question from all others. ``hint``: what to look at again, which does not give the
    answer away. ``why``: what is wrong with the answer. ``drawn``: the answer, drawn with the hint as it is, with the
    explanation judged.

    Returns:
        The error, to be raised.
    """
    WRONG_ANSWERS[question] += 1
    if WRONG_ANSWERS[question] == 1:
        return LabError(f"not right yet: {hint} (the next wrong answer is explained)", drawn and drawn.answered())
    return LabError(why, drawn and drawn.judged())


def needs(defined: Mapping[str, Any], **where: str) -> None:
    """Refuse to go on before these names are defined.

    ``defined``: the names of the notebook, ``globals()``. ``where``: name to the part of the lab that defines it.

    Raises:
        LabError: one is not defined; says which cells to run first.
    """
    for name, part in where.items():
        if name not in defined:
            raise LabError(f"{name!r} is not defined yet; run the cells of {part} first, from the first one on")


def answered(answer: Any, form: str) -> None:
    """Refuse an answer that was left open.

    ``form``: how one is written.

    Raises:
        LabError: there is none.
    """
    if answer is None or answer is ...:
        raise LabError(f"there is no answer yet; write it in the cell above as {form}, run that cell, then this one")


def names_in(answer: Any, known: Iterable[str], what: str = "operator") -> set[str]:
    """The names of an answer, whether it is a set, a list, or a text with commas.

    ``known``: all names. ``what``: what they name.

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

    ``what``: what it counts, with its unit.

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


class Quantity(NamedTuple):
    """A number that is asked for: the right one, what it counts, a hint, and what is wrong with likely wrong ones."""

    right: float
    what: str
    hint: str
    mistakes: Mapping[float, str]


class Choice(NamedTuple):
    """A choice: the right one, all that there are, a hint, and why."""

    right: Any
    options: tuple[Any, ...]
    hint: str
    why: str


WITHIN = 0.02
"""Numbers that are off by this share are right as well."""
_RATE, _MS = "payments a second", "ms"
_SHARE = "of what it can process"
_IN_LINE: Mapping[float, str] = {0: "the marker comes in line with the rows", 60: "60 rows take 20 ms each"}
_HEAVY = "that is the heavy model"
_UPSIDE_DOWN = "divide what comes by what it can process, not the other way round"
_WAY = "from where does the scheduler send its message, and where does it come in line with the rows that wait?"
_LOAD = "how many payments a second come, and how many can FM process with this model and these workers?"

QUANTITIES: Mapping[str, Quantity] = {
    # lab 1
    "one_worker": Quantity(
        50, _RATE, "how many calls fit into a second, one after the other?",
        {20: "20 ms is the time of one payment", 0.05: "1/20 is a rate per ms"},
    ),
    "three_workers": Quantity(
        150, _RATE, "what does each worker do while another one waits for its call?",
        {50: "three workers wait for three calls at once"},
    ),
    "growth": Quantity(
        30, _RATE, "how many arrive in a second, and how many of them leave in it?",
        {80: "50 of the 80 are processed in that second", 50: "50 leave it each second"},
    ),
    "waiting": Quantity(
        60, "payments", "how many have arrived by then, and how many have been processed?",
        {160: "160 arrive, and 100 of them are processed", 30: "after two seconds"},
    ),
    "latency_ms": Quantity(
        1_200, _MS, "which payments have to be processed before it, and how long do they take?",
        {20: "it waits for 60 others first", 60: "60 payments take 20 ms each", 1.2: "expected in ms"},
    ),
    "throughput": Quantity(
        250, "rows a second", "follow the rows: how many does each operator let through?",
        {400: "B lets fewer through", 500: "that is what C could process"},
    ),
    "c_is_busy": Quantity(
        0.5, "of its time", "how many rows a second reach it, and how long does it take for each?",
        {0.8: "fewer than 400 rows a second reach C", 50: "expected as a share"},
    ),
    # lab 5
    "at_fm_fries": Quantity(0, _MS, _WAY, {1_200: "FM is the head, and its message overtakes the queue"}),
    "at_fm_epoch": Quantity(1_200, _MS, _WAY, _IN_LINE),
    "at_mc_fries": Quantity(1_200, _MS, _WAY, {**_IN_LINE, 0: "MC is no head; the marker from FM comes in line"}),
    "at_mc_epoch": Quantity(1_200, _MS, _WAY, _IN_LINE),
    # lab 6
    "rows_out": Quantity(
        60, "rows", "what becomes of the payments that were read and not committed when the host was lost?",
        {35: "each row counts once, also those that were on their way"},
    ),
    # lab 8
    "fill_ms": Quantity(
        1_280, _MS, "how many rows fit into the buffer, and how long is it from one row to the next?",
        {1.28: "that is in seconds", 128: "that is the number of rows"},
    ),
    "mean_wait_ms": Quantity(
        640, _MS, "how long does the first row wait in the buffer, and how long the last one?",
        {1_280: "only the first row waits until the buffer is full"},
    ),
    "bytes_for_20_ms": Quantity(
        256, "bytes", "how long may the buffer take to fill, if rows wait as long as that on average?",
        {128: "if it fills in 20 ms, rows wait 10", 4: "that is in rows"},
    ),
    "heavy_at_60": Quantity(0.6, _SHARE, _LOAD, {60: "expected as a share", 1.67: _UPSIDE_DOWN}),
    "heavy_at_150": Quantity(1.5, _SHARE, _LOAD, {0.67: _UPSIDE_DOWN}),
    "light_at_150": Quantity(0.6, _SHARE, _LOAD, {1.5: _HEAVY}),
    "light_at_300": Quantity(1.2, _SHARE, _LOAD, {3.0: _HEAVY}),
    "light_at_300_two_hosts": Quantity(0.6, _SHARE, _LOAD, {1.2: "two workers process twice as much"}),
}

_BOTH = (True, False)
CHOICES: Mapping[str, Choice] = {
    # lab 1
    "queue_with_two": Choice(
        False, _BOTH, "how many payments a second do two workers process, and how many arrive?",
        "two workers process 100 payments a second, and 80 arrive",
    ),
    # lab 5
    "mixed": Choice(
        "inside", ("light", "in front", "inside"), "which rows meet one operator before its message, the other after?",
        "naive spoils the rows between FM and MC; under which load do rows wait there?",
    ),
    # lab 6
    "versions_met": Choice(
        ("new", "new"), (("old", "old"), ("new", "new"), ("old", "new"), ("new", "old")),
        "where does such a payment come from after the recovery, and what has been decided by then?",
        "such a payment is read again from the position in the checkpoint, with the change in effect",
    ),
    "output_is_right": Choice(
        True, _BOTH, "what do checkpoints restore, and from where do the sources read on?",
        "with checkpoints the output is that of a run without a failure",
    ),
    "lines": Choice(
        "more", ("600", "fewer", "more"), "which rows are processed twice, and is the file part of a checkpoint?",
        "rows that were read after the last checkpoint are read again, and the file remembers both times",
    ),
}  # fmt: skip


def _mistake(question: Quantity, given: float) -> str:
    """What is wrong with a number."""
    for mistake, sentence in question.mistakes.items():
        if abs(given - mistake) <= WITHIN * abs(mistake):
            return f"{given:g} {question.what} is not right: {sentence}"
    return f"{given:g} {question.what} is too {'much' if given > question.right else 'little'}: calculate it again"


def check_quantities(**answers: Any) -> Passed:
    """Check numbers that are asked for.

    ``answers``: name of the question to the answer.

    Raises:
        LabError: one is missing or wrong; gives a hint, then says the likely mistake.
    """
    for name, answer in answers.items():
        question = QUANTITIES[name]
        try:
            given = number_in(answer, question.what)
        except LabError as error:
            raise LabError(f"{name}: {error}") from None
        if abs(given - question.right) > WITHIN * abs(question.right):
            raise wrong(name, f"{name}: {question.hint}", f"{name}: {_mistake(question, given)}")
    return Passed("; ".join(f"{name}: {QUANTITIES[name].right:g} {QUANTITIES[name].what}" for name in answers) + ".")


def chosen(**answers: Any) -> None:
    """Refuse to go on before something was chosen; what is chosen is not judged.

    ``answers``: name of the question to the answer.

    Raises:
        LabError: nothing was chosen, or something that there is not.
    """
    for name, answer in answers.items():
        options = CHOICES[name].options
        shown = " or ".join(map(repr, options))
        answered(answer, f"{name} = {shown}; predict before you measure")
        if (tuple(answer) if isinstance(answer, list) else answer) not in options:
            raise LabError(f"{name}: got {answer!r}; expected {shown}")


def check_choices(**answers: Any) -> Passed:
    """Check choices.

    ``answers``: name of the question to the answer.

    Raises:
        LabError: one is missing or wrong; gives a hint, then says why.
    """
    chosen(**answers)
    for name, answer in answers.items():
        question = CHOICES[name]
        if (tuple(answer) if isinstance(answer, list) else answer) != question.right:
            raise wrong(name, f"{name}: {question.hint}", f"{name}: not {answer!r}; {question.why}")
    return Passed("; ".join(f"{name}: {CHOICES[name].right!r}" for name in answers) + ".")
