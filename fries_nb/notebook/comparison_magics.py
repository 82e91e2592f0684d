"""``%%fries_compare``: the same load and change under several schedulers, in one figure and one table."""

from __future__ import annotations

import re

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from fries_nb.compared_runs import compare
from fries_nb.notebook.cells import assigned, told_when_interrupted
from fries_nb.notebook.known import Registry
from fries_nb.notebook.options import arguments, shortened, unquoted
from fries_nb.notebook.summaries import changeable, quoted
from fries_nb.report import Comparison

_RATE = "SOURCE=RATE"


@magics_class
class FriesComparing(Magics):
    """``%%fries_compare``.

    Args:
        shell: the shell.
        known: the notebook's flows and runs.
    """

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry) -> None:
        super().__init__(shell)
        self._known = known

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
            raise UsageError(f"{flow.name!r} is {live[0].state}; %fries_stop {quoted(flow.name)} ends it first")
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
