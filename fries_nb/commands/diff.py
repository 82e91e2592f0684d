"""``python -m fries_nb diff OLD.json NEW.json``: what tells two dataflows apart."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fries_nb.commands.plan import read_flow
from fries_nb.planning.difference import Difference


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "diff",
        help="show what tells two dataflows apart",
        description="Show which operators and edges were added, removed or changed; operators are matched by name.",
        epilog="The files are those of `plan`, so functions are not compared. Exit code 0: no difference; 1: there are "
        "some; 2: a file cannot be read.",
    )
    parser.add_argument("old", metavar="OLD.json", help="the earlier dataflow")
    parser.add_argument("new", metavar="NEW.json", help="the later one")
    parser.add_argument("--json", action="store_true", help="print the difference as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the difference; returns exit code 0 if there is none, and else 1."""
    difference = Difference.of(read_flow(args.old), read_flow(args.new))
    print(json.dumps(as_dict(difference)) if args.json else repr(difference))
    return int(bool(difference))


def as_dict(difference: Difference) -> dict[str, Any]:
    """The difference as JSON values."""
    return {
        "dataflow": difference.after.name,
        "added": list(difference.added),
        "removed": list(difference.removed),
        "changed": {operator.name: dict(operator.aspects) for operator in difference.changed},
        "edges": {
            "added": [list(ends) for ends in difference.edges_added],
            "removed": [list(ends) for ends in difference.edges_removed],
            "changed": [{"edge": list(ends), "how": how} for ends, how in difference.edges_changed.items()],
        },
        "states": dict(difference.states),
    }
