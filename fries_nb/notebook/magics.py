"""The magics. Each returns as soon as it has told the run what to do; what it shows is its result.

Misuse raises ``UsageError``, one line; all else that a user can do wrong raises a ``FriesError``, which IPython shows
without a stack. Nothing is printed in place of an error, so that "Run All" stops there.
"""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from fries_nb.changes import Change
from fries_nb.errors import ReconfigurationError, RunError, close_match
from fries_nb.notebook import summaries
from fries_nb.notebook.assignments import evaluate, split_line
from fries_nb.notebook.cells import declare, undone_on_error
from fries_nb.notebook.known import OVER, Known
from fries_nb.notebook.summaries import Summary, quoted

GLANCE_S = 2.0
"""A change that ends so soon is shown with its result; a longer one goes on behind the cell."""


@magics_class
class FriesMagics(Magics):
    """``%%fries_dataflow``, ``%fries_run``, ``%fries_reconfigure``, ``%fries_stop``."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.known = Known(shell.user_ns)

    @cell_magic
    @magic_arguments()
    @argument("name", nargs="?", help="of the dataflow; may be left out if the cell names it")
    @argument("--replace", action="store_true", help="if the dataflow runs: stop that run first")
    def fries_dataflow(self, line: str, cell: str) -> Summary:
        """Declare a dataflow in the body of a cell. Nothing runs yet.

        The body finds ``fn`` (fries_nb) and an empty dataflow ``flow`` of that name, and may use all your names::

            %%fries_dataflow fraud
            payments = flow.source("payments", fn.replay("payments.parquet", rate=1_000))
            scored = payments.map("FM", MerchantModel(window=5), key="TERMINAL_ID")
            scored.sink("scored", fn.memory())

        It may make its own as well: ``flow = fn.Dataflow("fraud")``. Afterwards ``flow`` holds the dataflow, and
        ``%fries_run fraud`` finds it by its name.
        """
        args = _arguments(self.fries_dataflow, line)
        names = self.shell.user_ns
        with undone_on_error(names, "flow"):
            flow = declare(self.shell, cell, _unquoted(args.name))
            replaced = self._make_way(flow.name, args.replace, f"%%fries_dataflow {quoted(flow.name)} --replace")
        names["flow"] = flow
        self.known.keep_flow(flow)
        return summaries.of_definition(flow.graph(), replaced)

    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="of the dataflow; the one declared last if left out")
    @argument("--hosts", type=int, default=2, help="Spark tasks that share the workers (2)")
    @argument("--workers", type=int, default=2, help="of each operator declared without a number (2)")
    @argument("--audit", action="store_true", help="record every operation, for run.audit()")
    @argument("--no-chaining", action="store_true", help="give each operator a thread of its own")
    @argument("--commit-interval", type=float, default=5.0, metavar="SECONDS", help="between commits of the sinks (5)")
    @argument("--replace", action="store_true", help="if the dataflow runs already: stop that run first")
    @argument("-o", "--output", default="run", metavar="VARIABLE", help="that will hold the run (run)")
    def fries_run(self, line: str) -> Summary:
        """Start a dataflow on Spark; it goes on in the background.

        Examples::

            %fries_run
            %fries_run fraud --hosts 2 --workers 4 --audit
            %fries_run fraud --replace -o second

        Uses the active SparkSession, or starts one, which takes some seconds the first time.
        """
        args = _arguments(self.fries_run, line)
        if not args.output.isidentifier():
            raise UsageError(f"-o {args.output} is not the name of a variable")
        flow = self.known.flow(_unquoted(args.name))
        self._make_way(flow.name, args.replace, f"%fries_run {quoted(flow.name)} --replace")
        run = flow.run(
            hosts=args.hosts,
            workers=args.workers,
            audit=args.audit,
            chaining=not args.no_chaining,
            commit_interval_s=args.commit_interval,
        )
        self.shell.user_ns[args.output] = run
        self.known.keep_run(run)
        return summaries.of_start(run.graph, args.hosts, args.workers, args.audit, args.output)

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("run", nargs="?", help="name of the dataflow or variable of the run; the one that runs if left out")
    @argument("--scheduler", default="fries", help="fries, epoch or naive (fries)")
    @argument("--no-pruning", action="store_true", help="synchronise one-to-many operators that need not be as well")
    @argument("--wait", type=float, default=GLANCE_S, metavar="SECONDS", help="for the result (2); 0 never waits")
    @argument("-o", "--output", default="change", metavar="VARIABLE", help="that will hold the change (change)")
    def fries_reconfigure(self, line: str) -> Summary:
        """Change operators while the dataflow runs: OPERATOR=expression, as often as needed, all at once or not at all.

        An expression is Python over your names, spaces and quotes included; it gives the new function, or an
        ``fn.Update`` that also transforms the state. Examples::

            %fries_reconfigure FM=MerchantModel(window=10) MC=Combine([0.4, 0.4, 0.2])
            %fries_reconfigure FM=fn.Update(MerchantModel(window=10), state=pad_to_ten) --scheduler epoch --wait 60
            %fries_reconfigure fraud MC=lambda row: row | {"p": 0.5}
            %fries_reconfigure "my operator"=better

        Put parentheses around an expression that has an option's look, as in FM=(a --b).
        """
        split = split_line(line, _options(self.fries_reconfigure))
        args = _arguments(self.fries_reconfigure, split.options)
        if not args.output.isidentifier():
            raise UsageError(f"-o {args.output} is not the name of a variable")
        if not 0 <= args.wait < float("inf"):
            raise UsageError(f"--wait {args.wait:g}: expected a number of seconds, 0 or more")
        updates = evaluate(split.expressions, self.shell.user_ns)
        run = self.known.run(_unquoted(args.run))
        change = run.reconfigure(updates, scheduler=args.scheduler, pruning=not args.no_pruning)
        self.shell.user_ns[args.output] = change
        return _seen(change, args.wait, args.output)

    @line_magic
    @magic_arguments()
    @argument("run", nargs="?", help="name of the dataflow or variable of the run; the one that runs if left out")
    @argument("--drain", action="store_true", help="first process what the sources have read, and commit it")
    @argument("--wait", type=float, default=60.0, metavar="SECONDS", help="for the end (60)")
    def fries_stop(self, line: str) -> Summary:
        """End a run, and wait until no host, thread or socket of it is left. Spark stays.

        Examples::

            %fries_stop
            %fries_stop fraud --drain
        """
        args = _arguments(self.fries_stop, line)
        run = self.known.run(_unquoted(args.run))
        name = run.graph.name
        if run.state in OVER:
            run.wait(args.wait)
            return Summary(f"{name!r} has {run.state} before" + (f": {run.error}" if run.error else ""))
        try:
            run.stop(drain=args.drain, timeout=args.wait)
        except TimeoutError as error:
            raise RunError(f"run {name!r} is still {run.state} after {args.wait:g} s and goes on ending") from error
        if run.state == "failed":
            raise RunError(f"run {name!r} has failed: {run.error}")
        return Summary(f"{name!r} has {run.state}", f"run.output(), %fries_run {quoted(name)}")

    def _make_way(self, flow: str, replace: bool, instead: str) -> bool:
        """Stop the runs of a flow if that was asked for; returns whether there was one."""
        live = self.known.live(flow)
        if live and not replace:
            raise UsageError(f"{flow!r} is running; %fries_stop {quoted(flow)} ends it, {instead} takes its place")
        for run in live:
            run.stop()
        return bool(live)


def _seen(change: Change, wait_s: float, variable: str) -> Summary:
    """What a change came to within so many seconds.

    Raises:
        ReconfigurationError: it was aborted, or the run failed meanwhile.
    """
    try:
        result = change.result(timeout=wait_s)
    except TimeoutError:
        return summaries.of_change_under_way(change, wait_s, variable)
    if result.outcome == "done":
        return summaries.of_change(result)
    more = f" (traceback: print({variable}.result().details))" if result.details else ""
    raise ReconfigurationError(f"{', '.join(sorted(change.plan.targets))} {result.outcome}: {result.error}{more}")


def _arguments(magic: Any, line: str) -> Namespace:
    """The arguments of a magic's line.

    Raises:
        UsageError: it does not take them; suggests a close match, and where the help is.
    """
    name = magic.__name__
    try:
        args: Namespace = parse_argstring(magic, line)
    except UsageError as error:
        got = re.match(r"unrecognized arguments: (\S+)", str(error))
        hint = close_match(got[1], _options(magic)) if got else ""
        raise UsageError(f"{name}: {error}{hint}; %{name}? shows its help") from error
    except ValueError as error:
        raise UsageError(f"{name}: {error} in: {line}") from error
    return args


def _options(magic: Any) -> list[str]:
    return [option for action in magic.parser._actions for option in action.option_strings]


def _unquoted(name: str | None) -> str | None:
    """Quotes arrive with an argument; they are not part of the name."""
    return name[1:-1] if name and len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name
