"""``python -m fries_nb bench NAME [--json] [--scale S] [--runs N]``: runs benchmarks, prints and stores the results."""

from __future__ import annotations

import argparse
import json
import math

from fries_nb.experiments.bench import BENCHMARKS, keep


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "bench",
        help="compare fries_nb with other systems in paired runs",
        description="Compare fries_nb with other systems in paired runs; the results are kept in bench-results/.",
    )
    parser.add_argument("name", choices=[*BENCHMARKS, "all"], help="which benchmark")
    parser.add_argument("--scale", type=_positive, default=1.0, help="size of the input, as a multiple (default 1)")
    parser.add_argument("--runs", type=_at_least_one, default=5, help="number of pairs (default 5)")
    parser.add_argument("--json", action="store_true", help="print each report as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the benchmarks one after the other; returns exit code 0 if every target was met, 1 if not."""
    kept = True
    for name in BENCHMARKS if args.name == "all" else [args.name]:
        report = BENCHMARKS[name](args.scale, args.runs)
        path = keep(report)
        print(json.dumps(report.as_json()) if args.json else f"{report}\n  kept in {path}", flush=True)
        kept = kept and all(target.met for target in report.targets)
    return 0 if kept else 1


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text}, expected a number above 0")
    return number


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected a whole number from 1 on")
    return number
