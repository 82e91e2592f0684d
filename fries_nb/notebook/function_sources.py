"""Sources of new functions for the form: expressions that the user types, or functions that the author offers.

Text typed in a notebook is evaluated as a cell would be, since the kernel is the user's own. Under Voila the kernel
belongs to the author while visitors may be anybody: there, and wherever functions are offered, nothing that the page
sends is evaluated. The page sends the label of an offered function.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Protocol

from IPython.core.error import UsageError

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import PlanError
from fries_nb.notebook.assignments import evaluate
from fries_nb.notebook.entry_field import EntryField
from fries_nb.notebook.summaries import changeable

Offer = Mapping[str, Mapping[str, Any]]
"""Operator name to label to the function, or ``fn.Update``, of that label."""
HINT = "To change operators, click them in the picture; all that you choose change together."
_NOTHING = "choose ..."
_FREE_TEXT_IS_OFF = "Functions are chosen from what the author of this page offers; typing others is off."


class FunctionSource(Protocol):
    """A source of new functions for the form.

    Attributes:
        hint: text shown while no operator is selected.
        reads_only: whether the page is for looking only: it changes nothing, and does not end the run.
    """

    hint: str
    reads_only: bool

    def has(self, operator: str) -> bool:
        """Whether this source has functions for the operator."""

    def refusal(self, operator: Operator) -> str:
        """The reason why it has none."""

    def field(self, operator: str) -> EntryField:
        """A new line of the form for the operator."""

    def read(self, operator: str, field: EntryField) -> str:
        """The value of the input; empty if nothing was entered."""

    def missing(self, operator: str) -> str:
        """The message for an operator whose input is empty."""

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """Operator name to the function, or update, of each entry.

        Args:
            entries: operator name to the value of its input.

        Raises:
            UsageError: an entry is not a valid expression.
            FriesError: an expression raised it.
        """


class TypedFunctions:
    """Python expressions, evaluated in the user's namespace.

    Args:
        graph: the dataflow.
        names: the user's namespace.
    """

    def __init__(self, graph: Graph, names: dict[str, Any]) -> None:
        self.hint = HINT if changeable(graph) else "No operator here runs a function that could change."
        self.reads_only = False
        self._graph = graph
        self._names = names

    def has(self, operator: str) -> bool:
        """Whether the operator runs a user function."""
        return operator in changeable(self._graph)

    def refusal(self, operator: Operator) -> str:
        """The reason why the operator cannot be changed."""
        return f"{operator.name} is a {operator.kind}, which has no function to change"

    def field(self, operator: str) -> EntryField:
        """A text field."""
        example = f"{_wanted(self._graph.operator(operator))}; Enter plans the change"
        return EntryField(operator, example)

    def read(self, operator: str, field: EntryField) -> str:
        """The expression as typed."""
        return field.value.strip()

    def missing(self, operator: str) -> str:
        """An example of an expression."""
        wanted = _wanted(self._graph.operator(operator))
        return f"{operator} has no new function; type {wanted}, or click {operator} again"

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The values of the expressions."""
        return evaluate(dict(entries), self._names) if entries else {}


class OfferedFunctions:
    """A fixed choice of functions, offered by the author. The page selects one by its label; nothing is evaluated.

    Args:
        graph: the dataflow.
        offer: operator name to label to function.

    Raises:
        PlanError: the offer is not a mapping of mappings, or an operator cannot run a function that is offered for it.
        DataflowError: as PlanError, or the offer names an unknown operator.
    """

    def __init__(self, graph: Graph, offer: Offer) -> None:
        self._offer = {operator: dict(_labelled(operator, given)) for operator, given in _mapping(offer).items()}
        for operator, functions in self._offer.items():
            for function in functions.values():
                check_updates(graph, as_updates({operator: function}))
        names = ", ".join(name for name in graph if self._offer.get(name))
        self.reads_only = not names
        self.hint = (
            f"To change {names}, click them in the picture. {_FREE_TEXT_IS_OFF}"
            if names
            else f"{_FREE_TEXT_IS_OFF} None is offered here; the author can, by fn.show(run, offer={{...}})."
        )

    def has(self, operator: str) -> bool:
        """Whether functions are offered for the operator."""
        return bool(self._offer.get(operator))

    def refusal(self, operator: Operator) -> str:
        """The message that nothing is offered for the operator."""
        return f"no function is offered for {operator.name}"

    def field(self, operator: str) -> EntryField:
        """A drop-down list of the labels."""
        return EntryField(operator, _NOTHING, tuple(self._offer[operator]), tooltip=f"new function of {operator}")

    def read(self, operator: str, field: EntryField) -> str:
        """The selected label; empty for any other text, since the page could send one."""
        return field.value if field.value in self._offer[operator] else ""

    def missing(self, operator: str) -> str:
        """The message that nothing is selected."""
        return f"{operator} has no new function; choose one, or click {operator} again"

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The functions of the selected labels."""
        if not entries:
            raise UsageError("nothing to change; choose a function first")
        return {operator: self._offer[operator][label] for operator, label in entries.items()}


def functions_for(graph: Graph, names: dict[str, Any], offer: Offer | None) -> FunctionSource:
    """The function source of a run's form: typed expressions, unless functions are offered or the page is one of Voila.

    Args:
        graph: the dataflow.
        names: the user's namespace.
        offer: operator name to label to function; ``None`` if nothing is offered.

    Returns:
        The source.

    Raises:
        FriesError: see ``OfferedFunctions``.
    """
    if offer is not None or under_voila(os.environ):
        return OfferedFunctions(graph, offer or {})
    return TypedFunctions(graph, names)


def under_voila(environment: Mapping[str, str]) -> bool:
    """Whether Voila started this kernel, by the environment variables that Voila sets.

    >>> under_voila({"SERVER_SOFTWARE": "voila/0.5.13"}), under_voila({"VOILA_PREHEAT": "True"}), under_voila({})
    (True, True, False)
    """
    told = environment.get("SERVER_SOFTWARE", "").startswith("voila")
    return told or any(name.startswith("VOILA_") for name in environment)


def _wanted(operator: Operator) -> str:
    """The placeholder of an operator's text field, after the function that it runs now."""
    if operator.traits.holds is Holds.TABLE:
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
