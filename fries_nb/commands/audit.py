"""``python -m fries_nb audit TRACE.jsonl [--json]``: whether a trace is serializable, mixed versions, and a cycle."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from fries_nb.audit import Astray, Mixed, Stale, StatedCounts, Verdict, judge, read_trace

SHOWN = 10

FORMAT = """\
One JSON object a line, in schedule order (of each worker: "worker" is 0 unless given):
  {"kind":"data","transaction":"t1","operator":"FM"}
  {"kind":"update","id":"u1","operator":"FM"}
The records of a run (run.records()) also say what ran and how much each worker wrote, so that a trace that misses some
is refused, and a switch without effect or a tuple that was lost or doubled is found.
Exit code 0: serializable; 1: not; 2: not a trace, an empty or an incomplete one."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "audit",
        help="check whether a trace is conflict-serializable",
        description="Check whether a trace is conflict-serializable; if not, list the transactions that mixed "
        "versions, and at which operators.",
        epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", metavar="TRACE.jsonl", help="the trace: one JSON record per line")
    parser.add_argument("--json", action="store_true", help="print the whole verdict as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the verdict; returns exit code 0 if the trace is serializable, 1 if not."""
    verdict = judge(read_trace(args.trace))
    print(json.dumps(_plain(verdict)) if args.json else in_words(verdict))
    return 0 if verdict.serializable else 1


def _plain(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON has it; without rows of sources, which only a run can read again."""
    return {name: value for name, value in dataclasses.asdict(verdict).items() if name != "rows"}


def in_words(verdict: Verdict) -> str:
    """The verdict as text; at most ten of the transactions that mixed versions are listed.

    >>> print(in_words(Verdict(False, (Mixed("t", "u", ("FM",), ("MC",)),), ("t", "u"), ("FM", "MC"), 1, 1)))
    not serializable (1 transaction, 1 update)
    t mixed update u: old at FM, new at MC
    cycle: t -[FM]-> u -[MC]-> t
    completeness is not claimed: the trace does not say how many records there were
    """
    counts = f"({_counted(verdict.transactions, 'transaction')}, {_counted(verdict.updates, 'update')})"
    lines = [f"{'' if verdict.serializable else 'not '}serializable {counts}"]
    lines += _shown([_mixed_in_words(mixed) for mixed in verdict.mixed])
    lines += _shown([stale_in_words(stale) for stale in verdict.stale])
    lines += _shown([astray_in_words(astray) for astray in (*verdict.lost, *verdict.doubled)])
    if verdict.cycle:
        steps = zip(verdict.cycle, verdict.cycle_at, strict=True)
        lines.append("cycle: " + "".join(f"{name} -[{at}]-> " for name, at in steps) + verdict.cycle[0])
    if verdict.claim is StatedCounts.NONE:
        lines.append("completeness is not claimed: the trace does not say how many records there were")
    return "\n".join(lines)


def stale_in_words(stale: Stale) -> str:
    """A switch without effect, as text.

    >>> stale_in_words(Stale("FM", 0, "u1", "", 12))
    'FM[0] recorded the switch to u1 and ran 12 tuples with its first function'
    """
    recorded = f"the switch to {stale.update}" if stale.update else "no switch"
    by = f"the function of {stale.ran}" if stale.ran else "its first function"
    return f"{stale.operator}[{stale.worker}] recorded {recorded} and ran {_counted(stale.tuples, 'tuple')} with {by}"


def astray_in_words(astray: Astray) -> str:
    """A transaction of which tuples were lost or duplicated, as text.

    >>> astray_in_words(Astray("t7", "FM", "MC", 1, 0))
    't7 lost a tuple: FM emitted 1 for MC, which took 0'
    """
    if not (astray.sender or astray.loop or astray.key):
        return f"{astray.transaction} doubled: source {astray.receiver} took it {astray.received} times"
    happened = "lost" if astray.received < astray.sent else "doubled"
    return f"{astray.transaction} {happened} a tuple: {astray.account}"


def _shown(lines: list[str]) -> list[str]:
    more = [f"... and {len(lines) - SHOWN:,} more (all of them: --json)"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]


def _mixed_in_words(mixed: Mixed) -> str:
    old, new = ", ".join(mixed.old), ", ".join(mixed.new)
    return f"{mixed.transaction} mixed update {mixed.update}: old at {old}, new at {new}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
