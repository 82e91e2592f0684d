"""``%fries_frontier`` and ``%fries_loops``: what can still arrive at operators, and how loops go round.

Both show a run at one moment, as the hosts last reported it; the live view shows the same while it changes.
"""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import RUN, arguments, shortened, unquoted
from fries_nb.notebook.statuses import of_frontiers, of_holders, of_loops
from fries_nb.notebook.summaries import Summary


@magics_class
class FriesProgress(Magics):
    """``%fries_frontier`` and ``%fries_loops``."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry) -> None:
        super().__init__(shell)
        self._known = known

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operator", nargs="?", metavar="OPERATOR", help="of which to show all that holds it back")
    @argument("--of", metavar="NAME", help="of the dataflow or variable of the run; the one that runs if left out")
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

    @line_magic
    @magic_arguments()
    @RUN
    def fries_loops(self, line: str) -> Summary:
        """Show the loops of a run: rounds, rows that wait at their heads, bytes on disk, attempts to end them.

        Examples::

            %fries_loops
            %fries_loops fraud
        """
        args = arguments(self.fries_loops, line)
        run = self._known.run(args.run)
        return of_loops(run.graph.name, run.loops(), f"{self._known.variable(run)}.loops()")
