"""``%fries_constrain``: declares latency constraints on dataflows and runs, and shows whether they are met.

>>> elements_of(["FC", ARROW, "FM", "FM", "MC"])
[EdgeElement(source='FC', to='FM'), 'FM', 'MC']
>>> spaced('FC->FM "a -> b" -> MC')
'FC → FM "a -> b" → MC'
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.dataflow.constraints import WINDOW_S, EdgeElement, Element, OnViolation
from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import arguments, shortened, unquoted
from fries_nb.notebook.statuses import of_constraint, of_constraints
from fries_nb.notebook.summaries import Summary, quoted
from fries_nb.run import Dataflow, Run

ARROW = "→"
"""An arrow of the line as a token of its own; argparse would take ``->`` for an option."""
_ARROW_OR_QUOTED = re.compile(r"""("[^"]*"|'[^']*')|\s*(?:->|→)\s*""")
_UNJUDGED = ConstraintStatus.NOT_YET_JUDGED
_EXAMPLE = "%fries_constrain FC FM --latency 300"


@magics_class
class FriesConstraints(Magics):
    """``%fries_constrain``."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry) -> None:
        super().__init__(shell)
        self._known = known

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operators", nargs="*", metavar="OPERATOR", help="adjacent operators, or edges as in FC->FM")
    @argument("--latency", type=float, metavar="MS", help="the limit of the mean latency in milliseconds")
    @argument("--window", type=float, metavar="SECONDS", help=f"over which latencies are averaged ({WINDOW_S:g})")
    @argument("--on-violation", metavar="WHAT", help=f"if it cannot be kept: {', '.join(OnViolation)} (tell)")
    @argument("--lighter", metavar="VARIABLE", help="that holds fn.lighter({...}), for propose and apply")
    @argument("--of", metavar="NAME", help="of the dataflow or run; what runs, or else was declared last, if left out")
    def fries_constrain(self, line: str) -> Summary:
        """Limit the mean latency of a sequence of operators and edges; without operators show all limits.

        While a dataflow runs, the limit holds for that run; before, for all runs that are started later. Edges between
        named operators count; an edge at an end of the sequence counts without its outer operator. Examples::

            %fries_constrain FC FM --latency 300
            %fries_constrain payments->FC FC FC->FM --latency 80 --window 5 --on-violation tell
            %fries_constrain FC FM --latency 300 --on-violation propose --lighter small_models
            %fries_constrain FM -> "my operator" --latency 80 --of fraud
            %fries_constrain
        """
        args = arguments(self.fries_constrain, spaced(line))
        if not args.operators:
            _refuse_options(args)
            return self._shown(args.of)
        if args.latency is None:
            raise UsageError(f"--latency is missing; expected a number of milliseconds, as in {_EXAMPLE}")
        run = self._known.run_before_flow(args.of)
        owner = self._known.flow(args.of) if run is None else run
        window_s = WINDOW_S if args.window is None else args.window
        policy = args.on_violation or OnViolation.TELL
        lighter = self._lighter(args.lighter)
        constraint = owner.constrain(elements_of(args.operators), args.latency, window_s, policy, lighter)
        return of_constraint(constraint, owner.name if isinstance(owner, Dataflow) else "", self._then(run))

    def _shown(self, name: str | None) -> Summary:
        """The constraints of the run; without a live run those of the dataflow, as they were judged last."""
        run = self._known.run_before_flow(name)
        if run is not None:
            return of_constraints(run.graph.name, run.constraints(), self._then(run))
        flow = self._known.flow(name)
        states = {
            one: ConstraintState(one, _UNJUDGED, "the dataflow has not run with it") for one in flow.constraints()
        }
        ended = [run for run in self._known.runs() if run.graph.name == flow.name]
        states |= {state.constraint: state for run in ended for state in run.constraints()}
        return of_constraints(flow.name, tuple(states.values()), f"%fries_run {quoted(flow.name)}")

    def _lighter(self, variable: str | None) -> Any:
        """What a variable of the user holds; the constraint refuses it if it is no ``fn.lighter(...)``."""
        if variable is not None and variable not in self.shell.user_ns:
            given = f"--lighter {shortened(variable)}"
            raise UsageError(f"{given}: there is no such variable; expected one that holds fn.lighter({{...}})")
        return None if variable is None else self.shell.user_ns[variable]

    def _then(self, run: Run | None) -> str:
        return "%fries_run" if run is None else f"%fries_constrain, {self._known.variable(run)}.constraints_frame()"


def spaced(line: str) -> str:
    """The line with each arrow outside of quotes as a token of its own."""
    return _ARROW_OR_QUOTED.sub(lambda found: found[1] or f" {ARROW} ", line)


def elements_of(tokens: Sequence[str]) -> list[Element]:
    """The elements of a sequence: names next to an arrow are ends of an edge, others are operators.

    Args:
        tokens: names and arrows.

    Returns:
        The elements in order.

    Raises:
        UsageError: an arrow is not between two names.
    """
    elements: list[Element] = []
    names = [shortened(unquoted(token)) for token in tokens]
    for place, name in enumerate(names):
        before, after = names[place - 1 : place], names[place + 1 : place + 2]
        if name == ARROW:
            if ARROW in (*before, *after) or not (before and after):
                raise UsageError("an arrow needs an operator on each side, as in FC->FM")
            elements.append(EdgeElement(before[0], after[0]))
        elif ARROW not in (*before, *after):
            elements.append(name)
    return elements


def _refuse_options(args: Namespace) -> None:
    """Refuse the options of a limit without the operators to which it applies."""
    given = [name for name in ("latency", "window", "on_violation", "lighter") if name in args.given]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{option} belongs to a sequence; name its operators, as in {_EXAMPLE}")
