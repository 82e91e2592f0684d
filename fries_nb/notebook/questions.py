"""The magics that only query: the plan of a change, the status of runs, the audit, the report. They have no effects.

``%fries_frontier`` and ``%fries_loops``: what can still arrive at operators, and how loops go round.
``%fries_state`` and ``%fries_rows``: what operators keep of each key, and which rows pass them.

Both show a run at one moment, as the hosts last reported it; the live view shows the same while it changes.

``%fries_constrain``: declares latency constraints on dataflows and runs, and shows whether they are met.

>>> elements_of(["FC", ARROW, "FM", "FM", "MC"])
[EdgeElement(source='FC', to='FM'), 'FM', 'MC']
>>> spaced('FC->FM "a -> b" -> MC')
'FC → FM "a -> b" → MC'

``%%fries_compare``: the same load and change under several schedulers, in one figure and one table.
"""

from __future__ import annotations

import ast
import re
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import HasTraits

from fries_nb.changes.change_examples import Examples
from fries_nb.compared_runs import compare
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.dataflow.constraints import WINDOW_S, EdgeElement, Element, OnViolation
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.notebook import statuses, summaries
from fries_nb.notebook.cells import assigned, told_when_interrupted
from fries_nb.notebook.known import Registry, RunMagics
from fries_nb.notebook.options import (
    NO_PRUNING,
    OF,
    OF_EITHER,
    SCHEDULER,
    arguments,
    evaluate,
    options,
    refuse_rest,
    shortened,
    split_line,
    unquoted,
)
from fries_nb.notebook.statuses import of_constraint, of_constraints, of_frontiers, of_holders, of_loops
from fries_nb.notebook.summaries import Summary, changeable, quoted
from fries_nb.notebook.waits import Notes
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import EXAMPLES
from fries_nb.report import Comparison
from fries_nb.run import Dataflow, Run


@magics_class
class FriesQuestions(RunMagics):
    """``%fries_plan``, ``%fries_examples``, ``%fries_status``, ``%fries_audit``, ``%fries_report``."""

    def __init__(self, shell: InteractiveShell, known: Registry, notes: Notes, configured: HasTraits) -> None:
        super().__init__(shell, known)
        self._notes = notes
        self._configured = configured

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operators", nargs="*", metavar="OPERATOR", help="to change, by name or as OPERATOR=expression")
    @SCHEDULER
    @NO_PRUNING
    @OF_EITHER
    def fries_plan(self, line: str) -> Summary:
        """Show what a change would synchronise, and why, without making it; the dataflow need not run.

        For a run it also predicts the delay from the measured queues, and that of the epoch-based scheduler. With an
        expression it also checks that the operator can run the function. Examples::

            %fries_plan FM MC
            %fries_plan MC FM=MerchantModel(window=10) --scheduler epoch
            %fries_plan "my operator" --no-pruning --of fraud
        """
        split = split_line(line, options(self.fries_plan))
        args = arguments(self.fries_plan, split.options, self._configured)
        run = self._known.run_before_flow(args.of)
        graph = self._known.flow(args.of).graph() if run is None else run.graph
        named = [shortened(unquoted(name)) for name in args.operators]
        updates: dict[str, Any] = evaluate(split.expressions, self.shell.user_ns) if split.expressions else {}
        check_updates(graph, as_updates(updates) if updates else {})
        targets, pruning = [*named, *updates], not args.no_pruning
        if run is None:
            return summaries.of_plan(graph, schedule(args.scheduler, graph, targets, pruning))
        return summaries.of_plan(graph, run.plan(targets, args.scheduler, pruning))

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("rest", nargs="*", metavar="OPERATOR=expression", help="of each operator to change")
    @argument("-n", type=int, default=EXAMPLES, metavar="NUMBER", help="of rows at most that come in (%(default)s)")
    @OF
    def fries_examples(self, line: str) -> Examples:
        """Show what a change would make of recent rows, beside what is made of them now, without making it.

        Assignments are those of ``%fries_reconfigure``. What differs is marked. Examples::

            %fries_examples FM=MerchantModel(window=10)
            %fries_examples FM=lambda row: row | {"p": 0.5} -n 20 --of fraud
        """
        split = split_line(line, options(self.fries_examples))
        args = arguments(self.fries_examples, split.options)
        run = self._known.run(args.of)
        refuse_rest(args.rest, run.graph.by_name)
        return run.examples(evaluate(split.expressions, self.shell.user_ns), args.n)

    @line_magic
    @magic_arguments()
    def fries_status(self, line: str) -> Summary:
        """Show all dataflows and their runs in one table: state, rate, latency, changes.

        Also cleans up after the runs of killed kernels, and reports that. Example::

            %fries_status
        """
        arguments(self.fries_status, line)
        return statuses.of_all(self._known, self._notes.clear())

    @line_magic
    @magic_arguments()
    @OF
    def fries_audit(self, line: str) -> Summary:
        """Show whether the run so far is conflict-serializable; if not, the transactions that mixed versions.

        The run must have been started with ``--audit``. Examples::

            %fries_audit
            %fries_audit --of fraud
        """
        args = arguments(self.fries_audit, line)
        run = self._known.run(args.of)
        return statuses.of_verdict(run.graph.name, run.audit())

    @line_magic
    @magic_arguments()
    @argument("path", help="of the HTML file, which is written anew")
    @OF
    def fries_report(self, line: str) -> Summary:
        """Write a report of the run so far as one HTML page that needs no network.

        Examples::

            %fries_report fraud.html
            %fries_report "my reports/fraud.html" --of fraud
        """
        args = arguments(self.fries_report, line)
        run = self._known.run(args.of)
        return statuses.of_report(run.graph.name, str(run.report(args.path)))


@magics_class
class FriesProgress(RunMagics):
    """``%fries_frontier``, ``%fries_loops``, ``%fries_state`` and ``%fries_rows``."""

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operator", nargs="?", metavar="OPERATOR", help="of which to show all that holds it back")
    @OF
    def fries_frontier(self, line: str) -> Summary:
        """Show the least time that can still arrive at each operator, and what keeps it from advancing.

        A window is closed when no row of it can arrive any more. Examples::

            %fries_frontier
            %fries_frontier W
            %fries_frontier "my window" --of fraud
        """
        args = arguments(self.fries_frontier, line)
        run = self._known.run(args.of)
        if args.operator is None:
            return of_frontiers(run.graph, run.frontiers())
        operator = shortened(unquoted(args.operator))
        return of_holders(operator, run.holding(operator), f"{self._known.variable(run)}.holding({operator!r})")

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operator", nargs="?", metavar="OPERATOR", help="whose states to show; without, how large all are")
    @argument("--keys", nargs="+", metavar="KEY", help="only these keys, as Python writes them; other text is a string")
    @argument("-n", type=int, default=100, metavar="NUMBER", help="of keys at most, the newest ones (%(default)s)")
    @OF
    def fries_state(self, line: str) -> Any:
        """Show the states of an operator's keys as a DataFrame, while rows flow or when the run is over.

        Examples::

            %fries_state
            %fries_state FM
            %fries_state FM --keys 4963 7
            %fries_state "my model" --keys "('a', 7)" --of fraud
        """
        args = arguments(self.fries_state, line)
        run = self._known.run(args.of)
        if args.operator is None:
            if args.keys is not None:
                raise UsageError("--keys: expected an operator before, as in %fries_state FM --keys 7")
            return run.state_sizes()
        keys = None if args.keys is None else [_key(unquoted(key)) for key in args.keys]
        return run.state(shortened(unquoted(args.operator)), keys, args.n)

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operator", nargs="+", metavar="OPERATOR", help="whose rows to show; or an edge, as in FC->FM")
    @argument("--where", metavar="CONDITION", help="the next rows that satisfy it, an expression of row, a dict")
    @argument("-n", type=int, default=20, metavar="NUMBER", help="of rows at most, of each side (%(default)s)")
    @argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="to wait for such rows (%(default)s)")
    @OF
    def fries_rows(self, line: str) -> Any:
        """Show the newest rows that came into an operator and that went out of it, as a DataFrame.

        With a condition the cell waits for rows that satisfy it: those that are kept are tried first, then those that
        pass, and below the table is how many did, and were not tried. Examples::

            %fries_rows FM
            %fries_rows FM -n 5 --where "row['TX_AMOUNT'] > 200" --timeout 10
            %fries_rows FC->FM
            %fries_rows "my model" --of fraud
        """
        args = arguments(self.fries_rows, spaced_edge(line))
        run = self._known.run(args.of)
        where = None if args.where is None else self.shell.ev(f"lambda row: ({unquoted(args.where)})")
        elements = elements_of(args.operator)
        if len(elements) > 1:
            raise UsageError(f"got {', '.join(map(str, elements))}; expected one operator, or one edge, as in FC->FM")
        return run.rows(elements[0], args.n, where=where, timeout=args.timeout)

    @line_magic
    @magic_arguments()
    @OF
    def fries_loops(self, line: str) -> Summary:
        """Show the loops of a run: rounds, rows that wait at their heads, bytes on disk, attempts to end them.

        Examples::

            %fries_loops
            %fries_loops --of fraud
        """
        args = arguments(self.fries_loops, line)
        run = self._known.run(args.of)
        return of_loops(run.graph.name, run.loops(), f"{self._known.variable(run)}.loops()")


ARROW = "→"
"""An arrow of the line as a token of its own; argparse would take ``->`` for an option."""
_ARROW_OR_QUOTED = re.compile(r"""("[^"]*"|'[^']*')|\s*(?:->|→)\s*""")
_UNJUDGED = ConstraintStatus.NOT_YET_JUDGED
_EXAMPLE = "%fries_constrain FC FM --latency 300"


def _key(text: str) -> Any:
    """A key as it was typed: a value in Python's words, or else a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@magics_class
class FriesConstraints(RunMagics):
    """``%fries_constrain``."""

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operators", nargs="*", metavar="OPERATOR", help="adjacent operators, or edges as in FC->FM")
    @argument("--latency", type=float, metavar="MS", help="the limit of the mean latency in milliseconds")
    @argument("--window", type=float, metavar="SECONDS", help=f"over which latencies are averaged ({WINDOW_S:g})")
    @argument("--on-violation", metavar="WHAT", help=f"if it cannot be kept: {', '.join(OnViolation)} (tell)")
    @argument("--lighter", metavar="VARIABLE", help="that holds fn.lighter({...}), for propose and apply")
    @OF_EITHER
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
            limit: ConstraintState(limit, _UNJUDGED, "the dataflow has not run with it") for limit in flow.constraints()
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
        if run is None:
            return "%fries_run"
        return f"%fries_constrain, {self._known.variable(run)}.constraints().to_pandas()"


def spaced(line: str) -> str:
    """The line with each arrow outside of quotes as a token of its own."""
    return _ARROW_OR_QUOTED.sub(lambda found: found[1] or f" {ARROW} ", line)


def spaced_edge(line: str) -> str:
    """The same up to the first option, since a condition may have arrows of its own."""
    place = re.search(r"\s-(?!>)", line)
    end = len(line) if place is None else place.start()
    return spaced(line[:end]) + line[end:]


def elements_of(tokens: Sequence[str]) -> list[Element]:
    """The elements of a sequence: names next to an arrow are ends of an edge, others are operators.

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


_RATE = "SOURCE=RATE"


@magics_class
class FriesComparing(RunMagics):
    """``%%fries_compare``."""

    @cell_magic
    @magic_arguments()
    @argument("name", nargs="?", help="of the dataflow; the one declared last if left out")
    @argument("--schedulers", default="fries,epoch,naive", metavar="NAMES", help="with commas (fries,epoch,naive)")
    @argument("--surge", action="append", default=[], metavar=_RATE, help="rows a second in the surge; repeatable")
    @argument("--after", action="append", default=[], metavar=_RATE, help="rows a second from the change on")
    @argument("--calm", type=float, default=2.0, metavar="SECONDS", help="at the declared rates (2)")
    @argument("--before", type=float, default=3.0, metavar="SECONDS", help="of the surge before the change (3)")
    @argument("--hosts", type=int, default=2, help="Spark tasks that share the workers (2)")
    @argument("--workers", type=int, default=2, help="of each operator without a number (2)")
    @argument("-o", "--output", default="comparison", metavar="VARIABLE", help="that will hold it (comparison)")
    def fries_compare(self, line: str, cell: str) -> Comparison:
        """Make the same change under the same load by several schedulers, and compare them.

        For each scheduler the dataflow runs anew: at its declared rates, then in a surge, in the middle of which the
        operators that the body assigns or defines are changed, as in ``%%fries_reconfigure``. Its sinks must be
        ``fn.memory()``. The cell waits, about ten seconds a scheduler; an interrupt ends it. Example::

            %%fries_compare fraud --surge payments=400 --after payments=100 --schedulers fries,epoch
            FM = MerchantModel(window=5, cost_ms=2)

        ``comparison.to_pandas()`` has the numbers, and ``comparison.report("comparison.html")`` writes a page.
        """
        args = arguments(self.fries_compare, line)
        flow = self._known.flow(args.name)
        if live := self._known.live(flow.name):
            raise UsageError(f"{flow.name!r} is {live[0].state}; %fries_stop --of {quoted(flow.name)} ends it first")
        surge, after = (dict(map(_rate, given)) for given in (args.surge, args.after))
        if not surge:
            raise UsageError(f"without a surge no queue builds up; expected --surge {_RATE}")
        change = assigned(self.shell, cell, changeable(flow.graph(args.workers)))
        with told_when_interrupted("the comparison has ended without a result; its run is stopped"):
            found = compare(
                flow, change, args.schedulers.split(","), surge=surge, after=after, calm_s=args.calm,
                surge_s=args.before, hosts=args.hosts, workers=args.workers,
            )  # fmt: skip
        self.shell.user_ns[args.output] = found
        return found


def _rate(given: str) -> tuple[str, float]:
    """A source and its rate.

    Raises:
        UsageError: it is not a name and a number above 0.
    """
    found = re.fullmatch(r"(.+)=(\d+(?:\.\d*)?|\.\d+)", unquoted(given))
    if found is not None and float(found[2]) > 0:
        return unquoted(found[1]), float(found[2])
    raise UsageError(f"{shortened(given)}: expected {_RATE}, rows a second above 0, as in payments=400")
