"""``%fries_rescale``: changes the number of hosts of a run while it runs, and shows its hosts."""

from __future__ import annotations

from collections.abc import Callable

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from fries_nb.errors import ReconfigurationError
from fries_nb.notebook.cells import told_when_interrupted
from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import arguments, shortened
from fries_nb.notebook.rescale_view import RescaleView, outcome_line, progress_line
from fries_nb.notebook.statuses import of_hosts
from fries_nb.notebook.summaries import Summary
from fries_nb.notebook.waits import GLANCE_S
from fries_nb.report.markup import counted
from fries_nb.run import Run
from fries_nb.running.rescales import Rescale


@magics_class
class FriesRescaling(Magics):
    """``%fries_rescale``.

    Args:
        shell: the shell.
        known: the notebook's flows and runs.
        period_s: returns the number of seconds between two updates of what a cell shows.
    """

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry, period_s: Callable[[], float]) -> None:
        super().__init__(shell)
        self._known = known
        self._period_s = period_s

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("number", nargs="?", metavar="HOSTS", help="the number of hosts; the present hosts are shown if left out")
    @argument("--at-once", type=int, metavar="BINS", help="that move in one step, of 1,024; adapted if left out")
    @argument("--of", metavar="NAME", help="of the dataflow or variable of the run; the one that runs if left out")
    @argument("--wait", type=float, default=GLANCE_S, metavar="SECONDS", help="for the end (2); 0 never waits")
    @argument("-o", "--output", default="rescale", metavar="VARIABLE", help="that will hold the rescale (rescale)")
    def fries_rescale(self, line: str) -> Summary | None:
        """Change the number of hosts while the dataflow runs; without a number show the present hosts and workers.

        New hosts bring workers, rows are routed to them, and the state of keyed operators moves to them bin by bin
        while rows flow. The last hosts leave first. Examples::

            %fries_rescale 3
            %fries_rescale 1 --wait 60
            %fries_rescale 4 --at-once 1 --of fraud
            %fries_rescale

        With ``--at-once 1`` each row waits the least, with ``--at-once 1024`` the rescale is shortest. The button
        ``Cancel`` goes back, as long as no row is routed to new hosts and no state has moved.
        """
        args = arguments(self.fries_rescale, line)
        run = self._known.run(args.of)
        variable = self._known.variable(run)
        if args.number is None:
            if args.at_once is not None:
                raise UsageError("--at-once belongs to a number of hosts, as in %fries_rescale 3 --at-once 1")
            return of_hosts(run, f"%fries_rescale {len(run.topology().hosts) + 1}, {variable}.topology_frame()")
        rescale = run.rescale(_hosts(args.number), args.at_once)
        self.shell.user_ns[args.output] = rescale
        if getattr(self.shell, "kernel", None) is None:
            return _seen(run, rescale, args.wait, args.output)
        view = RescaleView(self.shell, run, rescale, self._period_s)
        try:
            _seen(run, rescale, args.wait, args.output)
        finally:
            if rescale.outcome:
                view.wait()
        return None


def _hosts(given: str) -> int:
    """The number of hosts.

    Raises:
        UsageError: it is not a whole number from 1 up.
    """
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise UsageError(f"{shortened(given)}: expected a number of hosts, 1 or more, as in %fries_rescale 3")
    return int(given)


def _seen(run: Run, rescale: Rescale, wait_s: float, variable: str) -> Summary:
    """The summary of a rescale after waiting for its end for at most ``wait_s`` seconds.

    Raises:
        ReconfigurationError: it was aborted, or the run failed meanwhile.
    """
    what = f"the rescale to {counted(rescale.hosts, 'host')}"
    try:
        with told_when_interrupted(f"{what} continues; {variable}.cancel() or {variable}.result(timeout=60)"):
            result = rescale.result(timeout=wait_s)
    except TimeoutError:
        return Summary(progress_line(rescale, run.topology()), f"{variable}.result(timeout=60), {variable}.cancel()")
    if result.outcome != "done":
        raise ReconfigurationError(f"{what} was {result.outcome}: {result.error}")
    return Summary(outcome_line(result, run.topology()), "%fries_rescale")
