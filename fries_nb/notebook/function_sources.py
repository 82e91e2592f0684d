"""Where the form's new functions come from: expressions that the user types, or functions that the author offers.

A notebook is its user's own, so text typed into the form is evaluated as a cell is. A page of Voila is not: its kernel
belongs to the author and its visitors to anybody. There, and wherever functions are offered, nothing that the page
sends is evaluated; it sends the number of an offered function, and that is looked up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Protocol

import ipywidgets
from IPython.core.error import UsageError

from fries_nb.dataflow.graph import Graph, Kind, Operator
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import PlanError
from fries_nb.notebook.assignments import evaluate
from fries_nb.notebook.summaries import changeable

Offer = Mapping[str, Mapping[str, Any]]
"""Operator name to label to the function, or ``fn.Update``, that the label stands for."""
HINT = "To change operators, click them in the picture; all that you choose change together."
_NOTHING = "choose ..."
_FREE_TEXT_IS_OFF = "Functions are chosen from what the author of this page offers; typing others is off."


class FunctionSource(Protocol):
    """What a form asks for new functions.

    Attributes:
        hint: shown while no operator is selected.
    """

    hint: str

    def has(self, operator: str) -> bool:
        """Whether the operator can be given a new function here."""

    def refusal(self, operator: Operator) -> str:
        """Why it cannot."""

    def field(self, operator: str) -> ipywidgets.Widget:
        """A new input for the function of an operator."""

    def read(self, operator: str, field: ipywidgets.Widget) -> str:
        """What the input holds now; empty if nothing was entered."""

    def missing(self, operator: str) -> str:
        """What to say of an operator whose input is empty."""

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The functions, or updates, that these entries stand for.

        Raises:
            UsageError, FriesError: an entry stands for none.
        """


class TypedFunctions:
    """Expressions, evaluated with the user's names.

    Args:
        graph: of the operators.
        names: the user's.
    """

    def __init__(self, graph: Graph, names: dict[str, Any]) -> None:
        self.hint = HINT if changeable(graph) else "No operator here runs a function that could change."
        self._graph = graph
        self._names = names

    def has(self, operator: str) -> bool:
        """Whether the operator runs a function of the user's."""
        return operator in changeable(self._graph)

    def refusal(self, operator: Operator) -> str:
        """Why an operator cannot be changed."""
        return f"{operator.name} is a {operator.kind}, which has no function to change"

    def field(self, operator: str) -> ipywidgets.Widget:
        """A line of text."""
        example = f"{_wanted(self._graph.operator(operator))}; Enter plans the change"
        return _laid_out(ipywidgets.Text(placeholder=example, tooltip=f"new function of {operator}"), operator)

    def read(self, operator: str, field: ipywidgets.Widget) -> str:
        """The expression as it was typed."""
        return str(field.value).strip()

    def missing(self, operator: str) -> str:
        """Says what to type."""
        wanted = _wanted(self._graph.operator(operator))
        return f"{operator} has no new function; type {wanted}, or click {operator} again"

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The values of the expressions."""
        return evaluate(dict(entries), self._names) if entries else {}


class OfferedFunctions:
    """The author's choice; what the page sends selects from it and is never evaluated.

    Raises:
        PlanError: the offer is no mapping of mappings, or an operator could not run what is offered for it.
        DataflowError: the same, or there is no such operator.
    """

    def __init__(self, graph: Graph, offer: Offer) -> None:
        self._offer = {operator: dict(_labelled(operator, given)) for operator, given in _mapping(offer).items()}
        for operator, functions in self._offer.items():
            for function in functions.values():
                check_updates(graph, as_updates({operator: function}))
        names = ", ".join(name for name in graph if self._offer.get(name))
        self.hint = (
            f"To change {names}, click them in the picture. {_FREE_TEXT_IS_OFF}"
            if names
            else f"{_FREE_TEXT_IS_OFF} None is offered here; the author can, by fn.show(run, offer={{...}})."
        )

    def has(self, operator: str) -> bool:
        """Whether functions are offered for the operator."""
        return bool(self._offer.get(operator))

    def refusal(self, operator: Operator) -> str:
        """Says that nothing is offered."""
        return f"no function is offered for {operator.name}"

    def field(self, operator: str) -> ipywidgets.Widget:
        """A list of the labels."""
        return _laid_out(ipywidgets.Dropdown(options=[_NOTHING, *self._offer[operator]], index=0), operator)

    def read(self, operator: str, field: ipywidgets.Widget) -> str:
        """The label that is selected.

        Only the number of the selection is believed: the page can send other labels.
        """
        labels = ["", *self._offer[operator]]
        return labels[field.index] if field.index in range(len(labels)) else ""

    def missing(self, operator: str) -> str:
        """Says to choose."""
        return f"{operator} has no new function; choose one, or click {operator} again"

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The functions behind the labels."""
        if not entries:
            raise UsageError("nothing to change; choose a function first")
        return {operator: self._offer[operator][label] for operator, label in entries.items()}


def functions_for(graph: Graph, names: dict[str, Any], offer: Offer | None) -> FunctionSource:
    """What the form of a run asks: under Voila nobody types, whatever is offered.

    Raises:
        FriesError: see ``OfferedFunctions``.
    """
    if offer is not None or under_voila(os.environ):
        return OfferedFunctions(graph, offer or {})
    return TypedFunctions(graph, names)


def under_voila(environment: Mapping[str, str]) -> bool:
    """Whether this kernel was started for a page of Voila, by what Voila tells its kernels.

    >>> under_voila({"SERVER_SOFTWARE": "voila/0.5.13"}), under_voila({"VOILA_PREHEAT": "True"}), under_voila({})
    (True, True, False)
    """
    told = environment.get("SERVER_SOFTWARE", "").startswith("voila")
    return told or any(name.startswith("VOILA_") for name in environment)


def _laid_out(field: ipywidgets.Widget, operator: str) -> ipywidgets.Widget:
    field.description = operator
    field.style.description_width = "90px"
    field.layout.width = "auto"
    return field


def _wanted(operator: Operator) -> str:
    """What is to be typed for an operator, by what it runs now."""
    if operator.kind is Kind.JOIN:
        return f"the new table of {operator.name}, as in spark.table(...)"
    function = operator.function
    if isinstance(function, FunctionType) and function.__name__ == "<lambda>":
        example = "lambda row: ..."
    elif isinstance(function, FunctionType | type):
        example = function.__name__
    else:
        example = getattr(function, "__name__", "") or f"{type(function).__name__}(...)"
    return f"the new function of {operator.name}, as in {example}"


def _mapping(offer: Any) -> Offer:
    if not isinstance(offer, Mapping):
        raise PlanError(_expected(f"offer={offer!r}"))
    return offer


def _labelled(operator: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not given or not all(isinstance(label, str) and label for label in given):
        raise PlanError(_expected(f"{given!r} for operator {operator!r}"))
    return given


def _expected(got: str) -> str:
    return f"{got}: expected operator to label to function, as in offer={{'FM': {{'lighter': LightModel()}}}}"
