"""Questions with one right answer, a number or a choice, and what is wrong with the likely wrong ones.

The notebooks name a question only, so that its answer is not in the cell below it.

>>> check_quantities(one_worker=20, three_workers=None)
Traceback (most recent call last):
fries_nb.errors.LabError: one_worker: 20 payments a second is not right: 20 ms is the time of one payment
>>> check_quantities(one_worker=50, three_workers=150)
Right. one_worker: 50 payments a second; three_workers: 150 payments a second.
>>> check_choices(lines="600")
Traceback (most recent call last):
fries_nb.errors.LabError: lines: not '600'; rows that were read after the last checkpoint are read again, and the file
remembers both times
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fries_nb.errors import LabError
from fries_nb.labs.answers import Passed, answered
from fries_nb.labs.queues import check_quantity


class Quantity(NamedTuple):
    """A number that is asked for: the right one, what it counts, and likely wrong ones with what is wrong with them."""

    right: float
    what: str
    mistakes: Mapping[float, str]


class Choice(NamedTuple):
    """A choice: the right one, all that there are, and why."""

    right: Any
    options: tuple[Any, ...]
    why: str


_RATE, _MS = "payments a second", "ms"
_SHARE = "of what it can process"
_IN_LINE: Mapping[float, str] = {0: "the marker comes in line with the rows", 60: "60 rows take 20 ms each"}
_HEAVY = "that is the heavy model"
_UPSIDE_DOWN = "divide what comes by what it can process, not the other way round"

QUANTITIES: Mapping[str, Quantity] = {
    # lab 1
    "one_worker": Quantity(50, _RATE, {20: "20 ms is the time of one payment", 0.05: "1/20 is a rate per ms"}),
    "three_workers": Quantity(150, _RATE, {50: "three workers wait for three calls at once"}),
    "growth": Quantity(30, _RATE, {80: "50 of the 80 are processed in that second", 50: "50 leave it each second"}),
    "waiting": Quantity(60, "payments", {160: "160 arrive, and 100 of them are processed", 30: "after two seconds"}),
    "latency_ms": Quantity(
        1_200, _MS, {20: "it waits for 60 others first", 60: "60 payments take 20 ms each", 1.2: "expected in ms"}
    ),
    "throughput": Quantity(250, "rows a second", {400: "B lets fewer through", 500: "that is what C could process"}),
    "c_is_busy": Quantity(0.5, "of its time", {0.8: "fewer than 400 rows a second reach C", 50: "expected as a share"}),
    # lab 5
    "at_fm_fries": Quantity(0, _MS, {1_200: "FM is the head, and its message overtakes the queue"}),
    "at_fm_epoch": Quantity(1_200, _MS, _IN_LINE),
    "at_mc_fries": Quantity(1_200, _MS, {**_IN_LINE, 0: "MC is no head; the marker from FM comes in line"}),
    "at_mc_epoch": Quantity(1_200, _MS, _IN_LINE),
    # lab 6
    "rows_out": Quantity(60, "rows", {35: "each row counts once, also those that were on their way"}),
    # lab 8
    "fill_ms": Quantity(1_280, _MS, {1.28: "that is in seconds", 128: "that is the number of rows"}),
    "mean_wait_ms": Quantity(640, _MS, {1_280: "only the first row waits until the buffer is full"}),
    "bytes_for_20_ms": Quantity(256, "bytes", {128: "if it fills in 20 ms, rows wait 10", 4: "that is in rows"}),
    "heavy_at_60": Quantity(0.6, _SHARE, {60: "expected as a share", 1.67: _UPSIDE_DOWN}),
    "heavy_at_150": Quantity(1.5, _SHARE, {0.67: _UPSIDE_DOWN}),
    "light_at_150": Quantity(0.6, _SHARE, {1.5: _HEAVY}),
    "light_at_300": Quantity(1.2, _SHARE, {3.0: _HEAVY}),
    "light_at_300_two_hosts": Quantity(0.6, _SHARE, {1.2: "two workers process twice as much"}),
}

_BOTH = (True, False)
CHOICES: Mapping[str, Choice] = {
    # lab 1
    "queue_with_two": Choice(False, _BOTH, "two workers process 100 payments a second, and 80 arrive"),
    # lab 5
    "mixed": Choice(
        "inside",
        ("light", "in front", "inside"),
        "naive spoils the rows between FM and MC; under which load do rows wait there?",
    ),
    # lab 6
    "versions_met": Choice(
        ("new", "new"),
        (("old", "old"), ("new", "new"), ("old", "new"), ("new", "old")),
        "such a payment is read again from the position in the checkpoint, with the change in effect",
    ),
    "output_is_right": Choice(True, _BOTH, "with checkpoints the output is that of a run without a failure"),
    "lines": Choice(
        "more",
        ("600", "fewer", "more"),
        "rows that were read after the last checkpoint are read again, and the file remembers both times",
    ),
}


def check_quantities(**answers: Any) -> Passed:
    """Check numbers that are asked for.

    Args:
        answers: name of the question to the answer.

    Returns:
        The numbers.

    Raises:
        LabError: one is missing or wrong; says the likely mistake.
    """
    for name, answer in answers.items():
        question = QUANTITIES[name]
        try:
            check_quantity(answer, question.right, question.what, question.mistakes)
        except LabError as error:
            raise LabError(f"{name}: {error}") from None
    return Passed("; ".join(f"{name}: {QUANTITIES[name].right:g} {QUANTITIES[name].what}" for name in answers) + ".")


def chosen(**answers: Any) -> None:
    """Refuse to go on before something was chosen; what is chosen is not judged.

    Args:
        answers: name of the question to the answer.

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

    Args:
        answers: name of the question to the answer.

    Returns:
        Why they are right.

    Raises:
        LabError: one is missing or wrong; says why.
    """
    chosen(**answers)
    for name, answer in answers.items():
        question = CHOICES[name]
        if (tuple(answer) if isinstance(answer, list) else answer) != question.right:
            raise LabError(f"{name}: not {answer!r}; {question.why}")
    return Passed("; ".join(f"{name}: {CHOICES[name].right!r}" for name in answers) + ".")
