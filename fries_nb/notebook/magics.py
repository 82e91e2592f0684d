"""The magics with effects. Each returns as soon as the run has been told what to do; its result is what the cell shows.

Misuse raises ``UsageError``, shown as one line; other errors of the user raise a ``FriesError``, which IPython shows
without a stack. Errors are always raised, never printed, so that "Run All" stops at them.

``%fries_dashboard``: shows the live view of a run in the cell that is being executed.

``%fries_rescale``: changes the number of hosts of a run while it runs, and shows its hosts.

``%fries_diff`` and ``%fries_apply``: what tells a dataflow that was declared again from its run, and making it so.

The cell is the truth: a ``%%fries_dataflow`` cell that is edited and run again declares the dataflow anew, shows how it
differs from the run, and leaves the run as it is until the difference is applied.
"""

from __future__ import annotations

import functools
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Enum, Float, HasTraits, Int, TraitError, Unicode, validate

from fries_nb.changes.change import Change
from fries_nb.dataflow.graph import check_runnable
from fries_nb.errors import ReconfigurationError, RunError, unknown
from fries_nb.notebook import summaries
from fries_nb.notebook.cells import (
    DEFAULT_S,
    CellEcho,
    DeclaringCell,
    GuardNotice,
    assigned,
    declare,
    told_when_interrupted,
    undone_on_error,
)
from fries_nb.notebook.difference_panel import DifferencePanel, show_with_button
from fries_nb.notebook.function_text import remember
from fries_nb.notebook.known import OVER, Registry, RunMagics, Start
from fries_nb.notebook.options import (
    NO_PRUNING,
    OF,
    SCHEDULER,
    arguments,
    evaluate,
    options,
    refuse_rest,
    shortened,
    split_line,
    unquoted,
)
from fries_nb.notebook.remedy_panels import RescaleView, outcome_line, progress_line
from fries_nb.notebook.statuses import of_hosts, why_failed
from fries_nb.notebook.summaries import Summary, changeable, quoted
from fries_nb.notebook.waits import GLANCE_S, Ending, Notes, ProgressOutput, change_summary, has_user, wait_for_start
from fries_nb.planning.schedulers import CHOICES
from fries_nb.planning.shape import PlannedDifference
from fries_nb.report.markup import part
from fries_nb.report.plan_section import difference_parts, difference_svg
from fries_nb.run import Dataflow, Run
from fries_nb.running.rescales import Rescale
from fries_nb.spark import interrupt

WAIT = argument("--wait", type=float, default=GLANCE_S, metavar="SECONDS", help="for the result (2); 0 never waits")
OUTPUT = argument("-o", "--output", default="change", metavar="VARIABLE", help="that will hold the change (change)")


@magics_class
class FriesMagics(RunMagics):
    """``%%fries_dataflow``, ``%fries_run``, ``%fries_reconfigure``, ``%fries_rollback``, ``%fries_stop``.

    Defaults of their options are set with ``%config``, as in ``%config FriesMagics.hosts = 4``.
    """

    hosts = Int(2, help="Spark tasks that share the workers: --hosts of %fries_run.").tag(config=True)
    workers = Int(2, help="Workers of an operator declared without a number: --workers.").tag(config=True)
    scheduler = Unicode("fries", help=f"{', '.join(CHOICES)}: --scheduler of changes, plans.").tag(config=True)
    lines = Int(20, help="Lines of what operators print, shown below %fries_run; 0 for none.").tag(config=True)
    refresh = Float(0.2, help="Seconds between two updates of a live view, and of these lines.").tag(config=True)

    beside = Bool(default_value=True, help="Show live views beside the notebook, where the page has room.").tag(
        config=True
    )

    on_error = Enum(
        ("pause", "fail"), "pause", help="What operators declared without on_error= do: --on-error of %fries_run."
    ).tag(config=True)

    guard = Float(DEFAULT_S, help="Seconds in which a failing change is rolled back, 0 for never: --guard.").tag(
        config=True
    )

    def __init__(
        self, shell: InteractiveShell, known: Registry, notes: Notes, show: Callable[[Run], None],
        offer: Callable[[DifferencePanel], None],
    ) -> None:  # fmt: skip
        super().__init__(shell, known)
        self._notes, self._show, self._offer = notes, show, offer

    @validate("hosts", "workers", "lines", "refresh", "guard")
    def _valid_number(self, proposal: Any) -> Any:
        least = {"lines": 0, "refresh": 0.1, "guard": 0}.get(proposal["trait"].name, 1)
        if least <= proposal["value"] < float("inf"):
            return proposal["value"]
        raise TraitError(f"FriesMagics.{proposal['trait'].name} = {proposal['value']}; expected {least} or more")

    @validate("scheduler")
    def _valid_scheduler(self, proposal: Any) -> Any:
        if proposal["value"] in CHOICES:
            return proposal["value"]
        raise TraitError(unknown("scheduler", proposal["value"], CHOICES))

    @cell_magic
    @magic_arguments()
    @argument("name", nargs="?", help="of the dataflow; may be left out if the cell names it")
    @argument("--replace", action="store_true", help="if the dataflow runs: stop that run first")
    @argument("--apply", action="store_true", help="if the dataflow runs: make the run what the cell declares, at once")
    @argument("--drop", metavar="OPERATOR", action="append", help="with --apply: lose the state of a removed operator")
    def fries_dataflow(self, line: str, cell: str) -> Summary | None:
        """Declare a dataflow in the body of a cell. Nothing runs yet.

        In the body, ``fn`` is fries_nb and ``flow`` an empty dataflow of that name; all your names are available::

            %%fries_dataflow fraud
            payments = flow.source("payments", fn.replay("payments.parquet", rate=1_000))
            scored = payments.map("FM", MerchantModel(window=5), key="TERMINAL_ID")
            scored.sink("scored", fn.memory())

        The body may also construct the dataflow itself: ``flow = fn.Dataflow("fraud")``. Afterwards ``flow`` holds the
        dataflow, and ``%fries_run fraud`` finds it by its name.

        A cell that is run again while the dataflow runs shows how it differs from the run, which goes on as it is: the
        button ``Apply``, there or in the live view, or ``%fries_apply``, makes it what the cell says. With ``--apply``
        it becomes that at once. A cell that raises an error changes nothing.
        """
        args = arguments(self.fries_dataflow, line)
        if args.drop and not args.apply:
            raise UsageError("--drop names what is lost by --apply; expected --apply beside it")
        if args.apply and args.replace:
            raise UsageError("--apply changes the run, --replace ends it; expected one of them")
        names = self.shell.user_ns
        with undone_on_error(names, "flow"):
            flow = declare(self.shell, cell, args.name)
            declaring = DeclaringCell.of(flow, cell.rstrip(), names)
            live = [] if args.replace else self._known.live(flow.name)
            found = live[-1].diff(flow) if live else None
            applied = self._apply(live[-1], flow, found, args.drop or ()) if args.apply and found else None
        instead = f"%%fries_dataflow {quoted(flow.name)} --replace"
        replaced = self._make_way(flow.name, args.replace, instead) if found is None else ""
        names["flow"] = flow
        self._known.keep_flow(declaring)
        if found is None or applied is not None:
            return applied or summaries.of_definition(flow.graph(), replaced)
        return self._shown(live[-1], flow, found)

    def _apply(self, run: Run, flow: Dataflow, found: PlannedDifference, drop: Sequence[str]) -> Summary:
        """Make a run what was declared, and tell what differed and how it went."""
        scheduler = "fries" if found.has_new_shape else self.scheduler
        applied = run.apply(flow, scheduler, guard=self.guard or None, drop=drop)
        summary = applied_summary(self.shell, run, applied, GLANCE_S, "change")
        return replace(summary, text=f"{found.summary}\n{summary.text}")

    def _shown(self, run: Run, flow: Dataflow, found: PlannedDifference) -> Summary | None:
        """A difference; for a user at a kernel with the button that applies it, in the live view as well."""
        summary = of_difference(found)
        if not found or found.refused or not has_user(self.shell):
            return summary
        panel = DifferencePanel(self.shell, run, flow, found, self._is_current, lambda: self.guard)
        show_with_button(self.shell, summary, panel)
        self._offer(panel)
        return None

    def _is_current(self, flow: Dataflow) -> bool:
        """Whether a dataflow is the one declared last under its name."""
        return self._known.flows().get(flow.name) is flow

    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="of the dataflow; the one declared last if left out")
    @argument("--hosts", type=int, help="Spark tasks that share the workers (2)")
    @argument("--workers", type=int, help="of each operator without a number (2; with --resume as before)")
    @argument("--audit", action="store_true", help="record every operation, for run.audit()")
    @argument("--identities", action="store_true", help="let rows carry the identity of their source row")
    @argument("--no-chaining", action="store_true", help="give each operator a thread of its own")
    @argument("--commit-interval", type=float, default=5.0, metavar="SECONDS", help="between commits of the sinks (5)")
    @argument("--checkpoint", metavar="PATH", help="directory or URI: lost hosts are recovered from there")
    @argument("--no-checkpoint", action="store_true", help="keep none; by default in a directory deleted with the run")
    @argument("--on-error", choices=("pause", "fail"), help="of operators declared without on_error= (pause)")
    @argument("--hide", metavar="COLUMN", action="append", help="mask its values in all that is shown; repeatable")
    @argument("--resume", action="store_true", help="go on from what an earlier run has left at --checkpoint")
    @argument("--drop", metavar="OPERATOR", action="append", help="with --resume: lose the state of a removed operator")
    @argument("--signing-key", metavar="VARIABLE", help="that holds the text or bytes that sign the checkpoint")
    @argument("--replace", action="store_true", help="if the dataflow runs already: stop that run first")
    @argument("--inline", action="store_true", help="do not open its dashboard; the run as a cell's last line shows it")
    @argument("--noblock", action="store_true", help="do not wait for Spark; %%fries_status says how it went")
    @argument("-o", "--output", default="run", metavar="VARIABLE", help="that will hold the run (run)")
    def fries_run(self, line: str) -> Summary:
        """Start a dataflow on Spark; it runs in the background.

        Examples::

            %fries_run
            %fries_run fraud --hosts 2 --workers 4 --audit
            %fries_run fraud --replace -o second
            %fries_run fraud --hide CARD_NO --hide PIN
            %fries_run fraud --checkpoint fraud-checkpoint
            %fries_run fraud --checkpoint fraud-checkpoint --resume
            %fries_run fraud --checkpoint fraud-checkpoint --resume --drop Old

        Uses the active SparkSession or starts one, which takes some seconds the first time; an interrupt cancels the
        start. The dashboard opens in a panel beside the notebook, which stays while other cells run, if the page is
        JupyterLab's and wide enough, and otherwise in the cell; ``%config FriesMagics.beside = False`` shows all
        dashboards in cells. The cell shows what operators print. ``%config FriesMagics`` lists the defaults.

        Without ``--checkpoint`` every commit is a checkpoint in a directory that is deleted with the run, so that the
        guard of a change also covers the operators below it; ``--no-checkpoint`` keeps none. Operators declared
        without ``on_error=`` pause on a tuple on which they fail, until they are fixed; with ``--on-error fail`` the
        run fails.
        """
        args = arguments(self.fries_run, line, self)
        flow = self._known.flow(args.name)
        graph = flow.graph(args.workers)
        check_runnable(graph)  # before an earlier run is stopped
        begin = _beginning(flow, args, self.shell.user_ns)
        replaced = self._make_way(flow.name, args.replace, f"%fries_run {quoted(flow.name)} --replace")
        launch = functools.partial(
            begin,
            hosts=args.hosts,
            audit=args.audit,
            identities=args.identities,
            chaining=not args.no_chaining,
            commit_interval_s=args.commit_interval,
            hide=args.hide or (),
        )
        if args.noblock:
            self.shell.user_ns.pop(args.output, None)  # so that it is not mistaken for the new run
        echo = CellEcho(self.shell, self.lines, lambda: self.refresh)
        interrupt.take_over_active()  # the run starts in another thread, where no handler can be set
        start = Start(flow.name, launch, functools.partial(self._started, args.output, echo))
        self._known.keep_start(start)
        if not args.noblock:
            run = wait_for_start(self.shell, start, args.hosts)
            _refuse_failed(run, args.output)
            if not args.inline:
                self._show(run)
        workers = None if args.resume and "workers" not in args.given else args.workers
        defaults = summaries.of_defaults(not (args.checkpoint or args.no_checkpoint), args.on_error)
        return summaries.of_start(graph, args.hosts, workers, args.audit, args.output, replaced, defaults)

    @no_var_expand
    @line_cell_magic
    @magic_arguments()
    @argument("rest", nargs="*", metavar="OPERATOR=expression", help="of each operator to change")
    @OF
    @SCHEDULER
    @NO_PRUNING
    @argument("--guard", type=float, metavar="SECONDS", help="in which a failing change is rolled back (5); 0: never")
    @argument("--force", action="store_true", help="even if it drops every recent tuple, or is 100 times slower")
    @argument("--merge", action="store_true", help="make it one change with those that wait for their turn")
    @WAIT
    @OUTPUT
    def fries_reconfigure(self, line: str, cell: str | None = None) -> Summary:
        """Change operators while the dataflow runs, all of them in one transaction.

        Each assignment is OPERATOR=expression. The expression is Python over your names, spaces and quotes included;
        its value is the new function, or an ``fn.Update`` that also transforms the state. Examples::

            %fries_reconfigure FM=MerchantModel(window=10) MC=Combine([0.4, 0.4, 0.2])
            %fries_reconfigure FM=fn.Update(MerchantModel(window=10), state=pad_to_ten) --scheduler epoch --wait 60
            %fries_reconfigure --of fraud MC=lambda row: row | {"p": 0.5}
            %fries_reconfigure "my operator"=better

        As a cell magic, names of operators that the body assigns or defines are changed; other names stay variables::

            %%fries_reconfigure --of fraud --scheduler fries
            weights = [0.4, 0.4, 0.2]
            FM = MerchantModel(window=10)
            def MC(row):
                return row | {"p": sum(w * row[f"p{i}"] for i, w in enumerate(weights))}

        A change is under guard: if a new function fails within 5 seconds, the change is rolled back automatically,
        where that is possible, and the old function processes the tuple. With ``--guard 0`` the operators' ``on_error``
        applies.

        A change that drops every recent tuple, or whose function takes 100 times as long, is not made unless
        ``--force`` says that this is meant.

        Put parentheses around an expression that looks like an option, as in FM=(a --b).
        """
        split = split_line(line, options(self.fries_reconfigure))
        args = arguments(self.fries_reconfigure, split.options, self)
        names, run = self.shell.user_ns, self._known.run(args.of)
        refuse_rest(args.rest, run.graph.by_name)
        updates = {} if cell is None else assigned(self.shell, cell, changeable(run.graph))
        if split.expressions or cell is None:
            updates |= evaluate(split.expressions, names)
            for name, text in split.expressions.items():
                remember(updates[name], text, is_call=True)
        change = run.reconfigure(
            updates, args.scheduler, not args.no_pruning, merge=args.merge, guard=args.guard or None, force=args.force
        )
        names[args.output] = change
        GuardNotice(self.shell, change)
        return change_summary(self.shell, run, change, args.wait, args.output)

    @line_magic
    @magic_arguments()
    @OF
    @SCHEDULER
    @WAIT
    @OUTPUT
    def fries_rollback(self, line: str) -> Summary:
        """Undo the last change that is in effect, by a change back while the dataflow runs.

        Examples::

            %fries_rollback
            %fries_rollback --of fraud --scheduler epoch --wait 60

        A change that transformed state can be undone if it declared the inverse: ``fn.Update(..., state=...,
        back=...)``.
        """
        args = arguments(self.fries_rollback, line, self)
        run = self._known.run(args.of)
        change = run.rollback(scheduler=args.scheduler)
        self.shell.user_ns[args.output] = change
        return change_summary(self.shell, run, change, args.wait, args.output)

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("operator", metavar="OPERATOR", help="on whose dead letters it is to try again")
    @argument("--where", metavar="CONDITION", help="only rows that satisfy it, an expression of row, a dict")
    @argument("--limit", type=int, metavar="NUMBER", help="of rows at most")
    @argument("--per-second", type=float, metavar="ROWS", help="at most")
    @OF
    @WAIT
    def fries_requeue(self, line: str) -> Summary:
        """Give the rows of an operator's open dead letters back to it, each exactly once; after a fix, say.

        What fails again is a dead letter again. Examples::

            %fries_requeue FM
            %fries_requeue FM --where "'no score' in row['_error']" --per-second 100 --wait 60
            %fries_requeue "my model" --limit 10 --of fraud
        """
        args = arguments(self.fries_requeue, line)
        run = self._known.run(args.of)
        where = None if args.where is None else self.shell.ev(f"lambda row: ({unquoted(args.where)})")
        operator = shortened(unquoted(args.operator))
        requeue = run.requeue(operator, where, args.limit, args.per_second)
        with suppress(TimeoutError):
            requeue.result(args.wait)
        return summaries.of_requeue(requeue, f"{self._known.variable(run)}.dead_letters({operator!r}).show()")

    @line_magic
    @magic_arguments()
    @OF
    @argument("--now", action="store_true", help="at once: what was read and is not committed is not in the output")
    @argument("--drain", action="store_true", help="for good, also where it keeps checkpoints to resume from")
    @argument("--wait", type=float, default=60.0, metavar="SECONDS", help="for the end (60)")
    def fries_stop(self, line: str) -> Summary:
        """End a run, and wait until no host, thread or socket of it is left. Spark keeps running.

        By default the run is drained: its sources, endless ones too, stop reading, and what they have read is processed
        and committed first, which takes as long as the queues are. A run that keeps checkpoints takes a last one
        instead, so that ``--resume`` continues from there. Examples::

            %fries_stop
            %fries_stop --of fraud --now
        """
        args = arguments(self.fries_stop, line)
        run = self._known.run(args.of)
        name = run.graph.name
        if run.state in OVER:
            run.wait(args.wait)
            why = f": {why_failed(run, self._known.variable(run))}" if run.error else ""
            return Summary(f"{name!r} has {run.state} before{why}")
        if args.now and args.drain:
            raise UsageError("--now leaves what was read, --drain processes it; expected one of them")
        ending = Ending(run, now=args.now, drain=args.drain)
        with ProgressOutput(self.shell, lambda: ending.progress, button="Stop waiting"):
            ending.wait(args.wait)
        _refuse_failed(run, self._known.variable(run))
        return summaries.of_end(name, run.state, run.uncommitted, run.resumable and not args.drain)

    def _make_way(self, flow: str, replace: bool, instead: str) -> str:
        """Stop the runs of a dataflow if ``replace`` is set; returns what to tell the user, or an empty string."""
        live = self._known.live(flow)
        if any(start.under_way and start.flow == flow for start in self._known.starts()):
            raise UsageError(f"{flow!r} is starting; it will be there in a few seconds")
        if live and not replace:
            raise UsageError(f"{flow!r} is running; %fries_stop --of {quoted(flow)} ends it, {instead} takes its place")
        for run in live:
            run.request_stop(drain=False)
            with ProgressOutput(self.shell, lambda: f"stopping the run of {flow!r} that is replaced"):
                run.wait()
        missing = [run.uncommitted.facts for run in live if run.uncommitted is not None]
        return ": ".join(["its old run was stopped", *missing]) if live else ""

    def _started(self, variable: str, echo: CellEcho, run: Run) -> None:
        self.shell.user_ns[variable] = run
        echo.follow(run, variable)
        self._known.keep_run(run)
        threading.Thread(target=self._notes.keep, args=[run], name="fries-note", daemon=True).start()


def _beginning(flow: Dataflow, args: Namespace, variables: Mapping[str, Any]) -> Callable[..., Run]:
    """The function that starts the run: ``Dataflow.run``, or ``Dataflow.resume`` from a checkpoint.

    Raises:
        UsageError: ``--resume`` without a checkpoint, or ``--signing-key`` with an undefined variable.
    """
    if args.signing_key is not None and args.signing_key not in variables:
        given = f"--signing-key {args.signing_key}"
        raise UsageError(f"{given}: there is no such variable; name one that holds text or bytes")
    if args.no_checkpoint and args.checkpoint:
        raise UsageError("--checkpoint names a place, --no-checkpoint keeps none; expected one of them")
    key = None if args.signing_key is None else variables[args.signing_key]
    if args.drop and not args.resume:
        raise UsageError("--drop names what is lost of a checkpoint; expected --resume beside it")
    if not args.resume:
        recover = not (args.checkpoint or args.no_checkpoint)
        place = args.checkpoint or ""
        return functools.partial(
            flow.run, workers=args.workers, checkpoint=place, signing_key=key, recover=recover, on_error=args.on_error
        )
    if not args.checkpoint:
        raise UsageError("--resume needs a checkpoint; expected its directory, as in --checkpoint PATH")
    workers = args.workers if "workers" in args.given else None
    return functools.partial(
        flow.resume, args.checkpoint, workers=workers, signing_key=key, on_error=args.on_error, drop=args.drop or ()
    )


def _refuse_failed(run: Run, variable: str) -> None:
    if run.state == "failed":
        raise RunError(f"{run.graph.name!r} has failed: {why_failed(run, variable)}")


@magics_class
class FriesDashboard(RunMagics):
    """``%fries_dashboard``, which shows a run with the functions that are offered for its operators, or any."""

    def __init__(self, shell: InteractiveShell, known: Registry, show: Callable[[Run, Any], None]) -> None:
        super().__init__(shell, known)
        self._show = show

    @no_var_expand
    @line_magic
    @magic_arguments()
    @OF
    @argument("--offer", metavar="VARIABLE", help="a dict of the only functions that the form offers; {} for none")
    def fries_dashboard(self, line: str) -> None:
        """Show the dashboard of a run: dataflow, latency, a form for changes, and tabs for all else.

        The tabs are: the operators and what they run now, the changes with their parts, differences, replay and revert,
        hosts, times and loops, constraints, and buttons that save data and pictures. ``run`` as the last line of a cell
        shows the same. Examples::

            %fries_dashboard
            %fries_dashboard --of fraud
            %fries_dashboard --of fraud --offer better_models
        """
        args = arguments(self.fries_dashboard, line)
        run = self._known.run(args.of)
        if args.offer is not None and args.offer not in self.shell.user_ns:
            raise UsageError(f"--offer {args.offer}: there is no such variable; expected a dict, as of fn.show")
        self._show(run, None if args.offer is None else self.shell.user_ns[args.offer])


@magics_class
class FriesRescaling(RunMagics):
    """``%fries_rescale``."""

    def __init__(self, shell: InteractiveShell, known: Registry, period_s: Callable[[], float]) -> None:
        super().__init__(shell, known)
        self._period_s = period_s

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument(
        "aim", nargs="*", metavar="HOSTS", help="the number of hosts, or OPERATOR=WORKERS; left out, the present hosts"
    )
    @argument("--at-once", type=int, metavar="BINS", help="that move in one step, of 1,024; adapted if left out")
    @OF
    @argument("--wait", type=float, default=GLANCE_S, metavar="SECONDS", help="for the end (2); 0 never waits")
    @argument("-o", "--output", default="rescale", metavar="VARIABLE", help="that will hold the rescale (rescale)")
    def fries_rescale(self, line: str) -> Summary | None:
        """Change the number of hosts, or of an operator's workers, while it runs; without a number show those of now.

        New hosts bring workers, rows are routed to them, and the state of keyed operators moves to them bin by bin
        while rows flow. The last hosts leave first. ``FM=4`` changes the workers of one operator, and of those on its
        forward edges, on the hosts of now. Examples::

            %fries_rescale 3
            %fries_rescale FM=4
            %fries_rescale 1 --wait 60
            %fries_rescale 4 --at-once 1 --of fraud
            %fries_rescale

        With ``--at-once 1`` each row waits the least, with ``--at-once 1024`` the rescale is shortest. The button
        ``Cancel`` goes back, as long as no row is routed to new workers and no state has moved.
        """
        args = arguments(self.fries_rescale, line)
        run = self._known.run(args.of)
        variable = self._known.variable(run)
        if not args.aim:
            if args.at_once is not None:
                raise UsageError("--at-once belongs to a number of hosts, as in %fries_rescale 3 --at-once 1")
            return of_hosts(run, f"%fries_rescale {len(run.topology().hosts) + 1}, {variable}.workers().to_pandas()")
        if any("=" in each for each in args.aim):
            rescale = run.rescale(at_once=args.at_once, workers=_numbers(args.aim))
        else:
            rescale = run.rescale(_hosts(" ".join(args.aim)), args.at_once)
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


def _numbers(given: Sequence[str]) -> dict[str, int]:
    """Operators with their numbers of workers, as in ``FM=4 FD=2``.

    Raises:
        UsageError: one is none, or an operator has two.
    """
    pairs = list(map(_workers, given))
    numbers = dict(pairs)
    if len(numbers) < len(pairs):
        raise UsageError(f"{shortened(' '.join(given))}: expected one number of workers for each operator")
    return numbers


def _workers(given: str) -> tuple[str, int]:
    """An operator and its number of workers, as in ``FM=4``.

    Raises:
        UsageError: it is none.
    """
    operator, _, count = unquoted(given).rpartition("=")
    if not (operator and count.isascii() and count.isdigit() and int(count)):
        raise UsageError(f"{shortened(given)}: expected OPERATOR=WORKERS, as in %fries_rescale FM=4 FD=2")
    return operator, int(count)


def _given(given: Sequence[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Operators with what variables hold, as in ``New=counts``.

    Raises:
        UsageError: one is not of this form, or there is no such variable.
    """
    pairs = [unquoted(one).rpartition("=") for one in given]
    for one, (operator, _, variable) in zip(given, pairs, strict=True):
        if not operator or variable not in variables:
            why = "OPERATOR=VARIABLE" if not operator else f"a variable; there is no {variable!r}"
            raise UsageError(f"--state {shortened(one)}: expected {why}, as in --state New=counts")
    return {operator: variables[variable] for operator, _, variable in pairs}


def _hosts(given: str) -> int:
    """The number of hosts.

    Raises:
        UsageError: it is not a whole number from 1 up.
    """
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise UsageError(f"{shortened(given)}: expected a number of hosts, 1 or more, as in %fries_rescale 3")
    return int(given)


def applied_summary(
    shell: InteractiveShell, run: Run, applied: Change | Rescale, wait_s: float, variable: str
) -> Summary:
    """What became of a dataflow that was applied, after waiting for at most ``wait_s`` seconds; see ``Run.apply``."""
    shell.user_ns[variable] = applied
    if isinstance(applied, Rescale):
        return _seen(run, applied, wait_s, variable)
    GuardNotice(shell, applied)
    return change_summary(shell, run, applied, wait_s, variable)


def _seen(run: Run, rescale: Rescale, wait_s: float, variable: str) -> Summary:
    """The summary of a rescale after waiting for its end for at most ``wait_s`` seconds.

    Raises:
        ReconfigurationError: it was aborted, or the run failed meanwhile.
    """
    what = f"the rescale {rescale.aim}"
    try:
        with told_when_interrupted(f"{what} continues; {variable}.cancel() or {variable}.result(timeout=60)"):
            result = rescale.result(timeout=wait_s)
    except TimeoutError:
        return Summary(progress_line(rescale, run.topology()), f"{variable}.result(timeout=60), {variable}.cancel()")
    if result.outcome != "done":
        raise ReconfigurationError(f"{what} was {result.outcome}: {result.error}")
    return Summary(outcome_line(result, run.topology()), "%fries_rescale")


FLOW = argument("--of", metavar="NAME", help="of the dataflow that runs and was declared again; the last one")


def of_difference(difference: PlannedDifference) -> Summary:
    """The summary of a difference and its plan, with the magic that applies it, if it can be applied."""
    flow = difference.after.name
    if not difference:
        return Summary(f"{flow!r} runs as it is declared", "%fries_status")
    drops = (f"--drop {quoted(name)}" for name in difference.lost)
    then = " ".join([f"%fries_apply --of {quoted(flow)}", *drops])
    if difference.refused:
        then = f"%fries_run {quoted(flow)} --replace"
    html = f"<div>{difference_parts(difference)}{part('next_step', then)}</div>"
    return Summary(repr(difference), then, {"text/html": html, "image/svg+xml": difference_svg(difference)})


@magics_class
class FriesDifferences(RunMagics):
    """``%fries_diff``, ``%fries_apply``."""

    def __init__(self, shell: InteractiveShell, known: Registry, configured: HasTraits) -> None:
        super().__init__(shell, known)
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
    @argument("--state", metavar="OPERATOR=VARIABLE", action="append", help="with which an added operator begins")
    @WAIT
    @OUTPUT
    def fries_apply(self, line: str) -> Summary:
        """Make the run what the dataflow declares, in one transaction: functions, operators, edges, sources and sinks.

        What cannot be applied is refused in a sentence, and nothing is changed. Examples::

            %fries_apply
            %fries_apply --of fraud --drop Old
            %fries_apply --drop Old --state New=counts
            %fries_apply --of fraud --scheduler epoch --wait 60
        """
        args = arguments(self.fries_apply, line, self._configured)
        run = self._run(args.of)
        flow = self._known.flow(args.of or run.graph.name)
        drop, state = args.drop or (), _given(args.state or (), self.shell.user_ns)
        applied = run.apply(
            flow, args.scheduler, guard=args.guard or None, force=args.force, drop=drop, order=not args.no_order,
            state=state,
        )  # fmt: skip
        return applied_summary(self.shell, run, applied, args.wait, args.output)

    def _run(self, name: str | None) -> Run:
        """The run of the dataflow that was declared again.

        Raises:
            UsageError: it does not run.
        """
        run = self._known.run(name)
        if run not in self._known.live():
            raise UsageError(f"{run.graph.name!r} has {run.state}; a difference is that to a dataflow that runs")
        return run
