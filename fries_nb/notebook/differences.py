"""``%fries_diff`` and ``%fries_apply``: what tells a dataflow that was declared again from its run, and making it so.

The cell is the truth: a ``%%fries_dataflow`` cell that is edited and run again declares the dataflow anew, shows how it
differs from the run, and leaves the run as it is until the difference is applied.
"""

from __future__ import annotations

from html import escape

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import HasTraits

from fries_nb.errors import PlanError
from fries_nb.notebook.cell_outputs import GuardNotice
from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import SCHEDULER, arguments
from fries_nb.notebook.summaries import Summary, quoted
from fries_nb.notebook.waits import GLANCE_S, change_summary
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import refuse_unsupported
from fries_nb.report.difference_section import difference_parts, difference_svg
from fries_nb.report.page import part
from fries_nb.run import Run

FLOW = argument("--of", metavar="NAME", help="of the dataflow that runs and was declared again; the last one")


def of_difference(difference: Difference) -> Summary:
    """The summary of a difference, with the magic that applies it, if it can be applied."""
    flow = difference.after.name
    if not difference:
        return Summary(f"{flow!r} runs as it is declared", "%fries_status")
    words, lost = repr(difference), [name for name in difference.removed if name in difference.states]
    then = " ".join([f"%fries_apply --of {quoted(flow)}", *(f"--drop {quoted(name)}" for name in lost)])
    html = difference_parts(difference)
    try:
        refuse_unsupported(difference, lost)
    except PlanError as refused:
        if difference.has_new_shape:
            then, words = f"%fries_run {quoted(flow)} --replace", f"{words}\n{refused}"
            html += f"<p>{escape(str(refused))}</p>"
    html += part("next_step", then)
    return Summary(words, then, {"text/html": html, "image/svg+xml": difference_svg(difference)})


def declared_again(run: Run, flow: object) -> Summary:
    """What a cell shows that has declared a dataflow again while it runs."""
    return of_difference(run.diff(flow))  # type: ignore[arg-type]  # refused there, in words


@magics_class
class FriesDifferences(Magics):
    """``%fries_diff``, ``%fries_apply``."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry, configured: HasTraits) -> None:
        super().__init__(shell)
        self._known = known
        self._configured = configured

    @line_magic
    @magic_arguments()
    @FLOW
    def fries_diff(self, line: str) -> Summary:
        """Show how a dataflow, as it was declared last, differs from its run; changes nothing.

        Operators are matched by name, and functions are compared by what they do. Examples::

            %fries_diff
            %fries_diff --of fraud
        """
        args = arguments(self.fries_diff, line)
        run = self._run(args.of)
        return of_difference(run.diff(self._known.flow(args.of or run.graph.name)))

    @line_magic
    @magic_arguments()
    @FLOW
    @SCHEDULER
    @argument("--guard", type=float, metavar="SECONDS", help="in which a failing change is rolled back (5); 0: never")
    @argument("--force", action="store_true", help="even if it drops every recent tuple, or is 100 times slower")
    @argument("--drop", metavar="OPERATOR", action="append", help="that was removed, and whose state may be lost")
    @argument("--no-order", action="store_true", help="rows of a key may change places where old and new ways meet")
    @argument("--wait", type=float, default=GLANCE_S, metavar="SECONDS", help="for the result (2); 0 never waits")
    @argument("-o", "--output", default="change", metavar="VARIABLE", help="that will hold the change (change)")
    def fries_apply(self, line: str) -> Summary:
        """Make the run what the dataflow declares, in one transaction: functions, operators, edges, sources and sinks.

        A change of the shape is under no guard in this version. What cannot be applied is refused in a sentence, and
        nothing is changed. Examples::

            %fries_apply
            %fries_apply --of fraud --drop Old
            %fries_apply --of fraud --scheduler epoch --wait 60
        """
        args = arguments(self.fries_apply, line, self._configured)
        run = self._run(args.of)
        flow = self._known.flow(args.of or run.graph.name)
        guard = None if run.diff(flow).has_new_shape and "guard" not in args.given else args.guard or None
        drop, order = args.drop or (), not args.no_order
        change = run.apply(flow, args.scheduler, guard=guard, force=args.force, drop=drop, order=order)
        self.shell.user_ns[args.output] = change
        GuardNotice(self.shell, change)
        return change_summary(self.shell, run, change, args.wait, args.output)

    def _run(self, name: str | None) -> Run:
        """The run of the dataflow that was declared again.

        Raises:
            UsageError: it does not run.
        """
        run = self._known.run(name)
        if run not in self._known.live():
            raise UsageError(f"{run.graph.name!r} has {run.state}; a difference is that to a dataflow that runs")
        return run
