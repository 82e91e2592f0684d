"""``python -m fries_nb audit TRACE.jsonl [--json]``: serializable or not, who mixed versions, and a cycle."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from fries_nb.audit import Mixed, Verdict, judge, read_trace

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SHOWN = 10

FORMAT = """\
One JSON object a line, in schedule order (of each worker: "worker" is 0 unless given):
  {"kind":"data","transaction":"t1","operator":"FM"}
  {"kind":"update","id":"u1","operator":"FM"}
Exit code 0: serializable; 1: not; 2: not a trace."""


def add_parser(subparsers: Subparsers) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "audit",
        help="say whether a trace is conflict-serializable, and who mixed versions",
        description="Say whether a trace is conflict-serializable; if not, who mixed versions at which operators.",
        epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", metavar="TRACE.jsonl", help="what happened, one record a line")
    parser.add_argument("--json", action="store_true", help="print the whole verdict as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the verdict; 0 serializable, 1 not.

    Raises:
        TraceError: the file cannot be read, or is no trace.
    """
    verdict = judge(read_trace(args.trace))
    print(json.dumps(dataclasses.asdict(verdict)) if args.json else in_words(verdict))
    return 0 if verdict.serializable else 1


def in_words(verdict: Verdict) -> str:
    """The verdict for a reader; at most ten of the transactions that mixed are shown.

    >>> print(in_words(Verdict(False, (Mixed("t", "u", ("FM",), ("MC",)),), ("t", "u"), ("FM", "MC"), 1, 1)))
    not serializable (1 transaction, 1 update)
    t mixed update u: old at FM, new at MC
    cycle: t -[FM]-> u -[MC]-> t
    """
    counts = f"({_counted(verdict.transactions, 'transaction')}, {_counted(verdict.updates, 'update')})"
    if verdict.serializable:
        return f"serializable {counts}"
    lines = [f"not serializable {counts}", *map(_mixed_in_words, verdict.mixed[:SHOWN])]
    if len(verdict.mixed) > SHOWN:
        lines.append(f"... and {len(verdict.mixed) - SHOWN:,} more (all of them: --json)")
    steps = zip(verdict.cycle, verdict.cycle_at, strict=True)
    return "\n".join([*lines, "cycle: " + "".join(f"{name} -[{at}]-> " for name, at in steps) + verdict.cycle[0]])


def _mixed_in_words(mixed: Mixed) -> str:
    old, new = ", ".join(mixed.old), ", ".join(mixed.new)
    return f"{mixed.transaction} mixed update {mixed.update}: old at {old}, new at {new}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
