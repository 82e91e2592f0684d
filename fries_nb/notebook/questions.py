"""The magics that only query: the plan of a change, the status of runs, the audit, the report. They have no effects."""

from __future__ import annotations

from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import HasTraits

from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.notebook import statuses, summaries
from fries_nb.notebook.assignments import evaluate, split_line
from fries_nb.notebook.known import Registry
from fries_nb.notebook.leftovers import Notes
from fries_nb.notebook.options import NO_PRUNING, RUN, SCHEDULER, arguments, options, shortened, unquoted
from fries_nb.notebook.summaries import Summary
from fries_nb.scheduling import schedule


@magics_class
class FriesQuestions(Magics):
    """``%fries_plan``, ``%fries_status``, ``%fries_audit``, ``%fries_report``."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry, notes: Notes, configured: HasTraits) -> None:
        super().__init__(shell)
        self._known = known
        self._notes = notes
        self._configured = configured

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operators", nargs="*", metavar="OPERATOR", help="to change, by name or as OPERATOR=expression")
    @SCHEDULER
    @NO_PRUNING
    @argument("--of", metavar="NAME", help="of the dataflow or run; what runs, or else was declared last, if left out")
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
    @RUN
    def fries_audit(self, line: str) -> Summary:
        """Show whether the run so far is conflict-serializable; if not, the transactions that mixed versions.

        The run must have been started with ``--audit``. Examples::

            %fries_audit
            %fries_audit fraud
        """
        args = arguments(self.fries_audit, line)
        run = self._known.run(args.run)
        return statuses.of_verdict(run.graph.name, run.audit())

    @line_magic
    @magic_arguments()
    @argument("path", help="of the HTML file, which is written anew")
    @argument("--of", metavar="NAME", help="of the dataflow or variable of the run; the one that runs if left out")
    def fries_report(self, line: str) -> Summary:
        """Write a report of the run so far as one HTML page that needs no network.

        Examples::

            %fries_report fraud.html
            %fries_report "my reports/fraud.html" --of fraud
        """
        args = arguments(self.fries_report, line)
        run = self._known.run(args.of)
        return statuses.of_report(run.graph.name, str(run.report(args.path)))
