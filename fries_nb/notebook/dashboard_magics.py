"""``%fries_dashboard``: shows the live view of a run in the cell that is being executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import RUN, arguments
from fries_nb.run import Run


@magics_class
class FriesDashboard(Magics):
    """``%fries_dashboard``.

    Args:
        shell: the shell.
        known: the notebook's flows and runs.
        show: shows a run, with the functions that are offered for its operators or ``None`` for any.
    """

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry, show: Callable[[Run, Any], None]) -> None:
        super().__init__(shell)
        self._known = known
        self._show = show

    @no_var_expand
    @line_magic
    @magic_arguments()
    @RUN
    @argument("--offer", metavar="VARIABLE", help="a dict of the only functions that the form offers; {} for none")
    def fries_dashboard(self, line: str) -> None:
        """Show the dashboard of a run: dataflow, latency, a form for changes, and tabs for all else.

        The tabs are: the operators and what they run now, the changes with their parts, differences, replay and revert,
        hosts, times and loops, constraints, and buttons that save data and pictures. ``run`` as the last line of a cell
        shows the same. Examples::

            %fries_dashboard
            %fries_dashboard fraud
            %fries_dashboard fraud --offer better_models
        """
        args = arguments(self.fries_dashboard, line)
        run = self._known.run(args.run)
        if args.offer is not None and args.offer not in self.shell.user_ns:
            raise UsageError(f"--offer {args.offer}: there is no such variable; expected a dict, as of fn.show")
        self._show(run, None if args.offer is None else self.shell.user_ns[args.offer])
