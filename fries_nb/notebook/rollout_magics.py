"""The magics that roll a change out: ``%fries_canary`` for a share of the rows, ``%fries_shadow`` beside what runs.

Each has lines of three kinds: with assignments it begins one, with an option of the open one it goes on or back, and
bare it shows how far the last one is. What stands on a line for another kind is refused by name.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from fries_nb.changes.arm_comparison import shown_arms
from fries_nb.changes.change import Change
from fries_nb.notebook.function_text import remember
from fries_nb.notebook.known import RunMagics
from fries_nb.notebook.magics import OUTPUT, WAIT
from fries_nb.notebook.options import (
    OF,
    arguments,
    evaluate,
    limit_of,
    options,
    refuse_rest,
    share_of,
    shortened,
    size_of,
    split_line,
)
from fries_nb.notebook.summaries import Summary
from fries_nb.notebook.waits import change_summary
from fries_nb.report.change_rows import canary_parts, shadow_parts, shown_value
from fries_nb.run import Run
from fries_nb.running.shadows import Shadow

_OPTIONS = {
    "canary": (("ramp", "promote", "rollback", "by"), ("share", "steps", "every", "promote_when", "tolerate")),
    "shadow": (("promote", "drop"), ("share", "bytes")),
}
"""Of each kind the options that go on with the open one, and those that begin one."""


@dataclass(frozen=True)
class _Asked:
    """A line: of a run, by an option of the open one (``step``, empty to show it), or by new functions."""

    run: Run
    args: Namespace
    step: str = ""
    updates: Mapping[str, Any] | None = None


@magics_class
class FriesRollouts(RunMagics):
    """``%fries_canary``, ``%fries_shadow``."""

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("rest", nargs="*", metavar="OPERATOR=expression", help="of each operator to change")
    @argument("--share", metavar="SHARE", help="of the cohorts that the new functions process at first (5%%)")
    @argument("--steps", metavar="SHARES", help="to which it goes on by itself, as in 5%%,25%%,100%%")
    @argument("--every", metavar="LIMIT", help="how long it stays at each: 10000 rows of the new version, or 30s")
    @argument("--promote-when", metavar="NAME", help="of a function of the comparison that says whether it goes on")
    @argument("--tolerate", type=int, default=0, metavar="ROWS", help="on which the new version may fail (0)")
    @argument("--by", metavar="COLUMN", help="whose values divide the comparison of the open canary")
    @argument("--ramp", metavar="SHARE", help="let the open canary process a larger share")
    @argument("--promote", action="store_true", help="let the open canary process all rows")
    @argument("--rollback", action="store_true", help="let the old functions process all rows again")
    @OF
    @WAIT
    @OUTPUT
    def fries_canary(self, line: str) -> Summary:
        """Change operators for a share of the rows, compare both versions, and go on or back.

        Assignments are those of ``%fries_reconfigure``. Without any, the last canary is shown: how far it is, and both
        versions side by side. Rows need identities: ``%fries_run --identities``, or ``--audit``. Examples::

            %fries_canary FM=new_model --share 5%
            %fries_canary
            %fries_canary --by country
            %fries_canary --ramp 25%
            %fries_canary --promote
            %fries_canary --rollback
            %fries_canary FM=new_model --steps 5%,25%,100% --every 10000 --promote-when better --tolerate 3
        """
        asked = self._asked("canary", line)
        run, args, names = asked.run, asked.args, self.shell.user_ns
        if asked.updates is None:
            return self._gone_on(run, self._last(run), args, asked.step)
        shares = [share_of(one, "--steps") for one in args.steps.split(",")] if args.steps else None
        first = share_of(args.share, "--share") if args.share else shares[0] if shares else 0.05
        change = run.reconfigure(
            asked.updates, canary=first, steps=shares, every=limit_of(args.every), tolerate=args.tolerate,
            promote_when=None if args.promote_when is None else _function(args.promote_when, names),
        )  # fmt: skip
        names[args.output] = change
        summary = change_summary(self.shell, run, change, args.wait, args.output)
        then = "%fries_canary, %fries_canary --ramp 25%, %fries_canary --promote, %fries_canary --rollback"
        return replace(summary, then=then) if change.done else summary

    def _last(self, run: Run) -> Change:
        """The last canary of a run.

        Raises:
            UsageError: it has none.
        """
        found = [change for change in run.changes if change.canary is not None]
        if not found:
            raise UsageError(f"{run.graph.name!r} has no canary; %fries_canary FM=new_model --share 5% begins one")
        return found[-1]

    def _gone_on(self, run: Run, change: Change, args: Namespace, asked: str) -> Summary:
        """The summary of a step of a canary, or of both versions."""
        if asked in ("", "by"):
            table = change.compare(args.by) if change.done else None
            words, rows = f"{change.label}: {change.canary}", [] if table is None else shown_arms(table)
            lines = [f"  {f'{group} {figure}'.strip()}: {old}, {new}" for group, figure, old, new in rows]
            text = "\n".join([words, *(["old, new:"] if rows else []), *lines])
            return Summary(text, "", {"text/html": f"<div>{canary_parts(words, table)}</div>"})
        step = {
            "ramp": lambda: change.ramp(share_of(args.ramp, "--ramp")), "promote": change.promote,
            "rollback": change.rollback,
        }[asked]()  # fmt: skip
        self.shell.user_ns[args.output] = step
        return change_summary(self.shell, run, step, args.wait, args.output)

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("rest", nargs="*", metavar="OPERATOR=expression", help="of each operator that gets a shadow")
    @argument("--share", default="100%", metavar="SHARE", help="of the cohorts of which it gets the rows (100%%)")
    @argument("--bytes", default="1MiB", metavar="SIZE", help="of rows that may wait for it on each channel (1MiB)")
    @argument("--promote", action="store_true", help="go on with the functions and states of the open shadow")
    @argument("--drop", action="store_true", help="remove the open shadow")
    @OF
    @WAIT
    @argument("-o", "--output", default="shadow", metavar="VARIABLE", help="that will hold the shadow (shadow)")
    def fries_shadow(self, line: str) -> Summary:
        """Let new functions process the rows beside those that run, for a comparison alone.

        Assignments are those of ``%fries_reconfigure``. Without any, the last shadow is shown: rows that are the same,
        those that differ by column, failures, what was left out, and the first that differ, old beside new. Rows need
        identities: ``%fries_run --identities``, or ``--audit``. Examples::

            %fries_shadow FM=new_model
            %fries_shadow FM=new_model --share 50% --bytes 1MB
            %fries_shadow
            %fries_shadow --promote
            %fries_shadow --drop
        """
        asked = self._asked("shadow", line)
        run, args = asked.run, asked.args
        variable = f"{self._known.variable(run)}.changes[-1]"
        if asked.updates is None:
            if not run.shadows:
                raise UsageError(f"{run.graph.name!r} has no shadow; %fries_shadow FM=new_model begins one")
            shadow = run.shadows[-1]
            if not asked.step:
                return _of_shadow(shadow)
            step = shadow.promote() if args.promote else shadow.drop()
            return change_summary(self.shell, run, step, args.wait, variable)
        share, budget = share_of(args.share, "--share"), size_of(args.bytes, "--bytes")
        shadow = self.shell.user_ns[args.output] = run.shadow(asked.updates, share=share, bytes=budget)
        summary = change_summary(self.shell, run, shadow.change, args.wait, variable)
        then = "%fries_shadow, %fries_shadow --promote, %fries_shadow --drop"
        return replace(summary, then=then) if shadow.change.done else summary

    def _asked(self, kind: str, line: str) -> _Asked:
        """What a line asks for.

        Raises:
            UsageError: what is of the open one does not stand alone, or what begins one has no assignment.
        """
        magic, (of_open, of_new) = getattr(self, f"fries_{kind}"), _OPTIONS[kind]
        split = split_line(line, options(magic))
        args = arguments(magic, split.options)
        run = self._known.run(args.of)
        refuse_rest(args.rest, run.graph.by_name)
        asked = [name for name in of_open if getattr(args, name)]
        if len(asked) > 1 or (split.expressions and asked):
            raise UsageError(f"--{asked[-1]} is of the open {kind}, and stands alone")
        if split.expressions:
            updates = evaluate(split.expressions, self.shell.user_ns)
            for name, text in split.expressions.items():
                remember(updates[name], text, is_call=True)
            return _Asked(run, args, "", updates)
        default = magic.parser.get_default
        if begins := [f"--{name.replace('_', '-')}" for name in of_new if getattr(args, name) != default(name)]:
            raise UsageError(f"{begins[0]} begins a {kind}; expected OPERATOR=expression as well, as in FM=new_model")
        return _Asked(run, args, asked[0] if asked else "")


def _of_shadow(shadow: Shadow) -> Summary:
    """The summary of a shadow: compared now if it is open, or as it was last."""
    found = shadow.compare() if shadow.state == "open" else shadow.compared
    examples = [] if found is None else found.differing
    lines = [f"  {source}, {column}: {shown_value(old)}, {shown_value(new)}" for source, column, old, new in examples]
    text = [str(shadow), *([] if found is None else [repr(found)]), *(["old, new:"] if lines else []), *lines]
    return Summary("\n".join(text), "", {"text/html": f"<div>{shadow_parts(str(shadow), found)}</div>"})


def _function(name: str, variables: Mapping[str, Any]) -> Any:
    """What a variable holds.

    Raises:
        UsageError: there is no such variable.
    """
    if name not in variables:
        raise UsageError(f"--promote-when {shortened(name)}: there is no such variable; expected that of a function")
    return variables[name]
