"""``python -m fries_nb experiment NAME [PART] [--scale S] [--json] [--output PATH]``: a figure or table of a paper."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fries_nb.errors import FriesError
from fries_nb.experiments import EXPERIMENTS, experiment
from fries_nb.experiments.measuring import NAMES

LIST = "list"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "experiment",
        help="reproduce a figure or table of the Fries paper, or of the Nephele paper",
        description="Reproduce a figure or table of the Fries paper (VLDB 2022), or a figure of the Nephele paper "
        "(Lohrmann et al., stream processing under QoS constraints), the paper's numbers beside ours; or measure the "
        "latency while a host joins and state moves to it (rescaling), or Nexmark's queries, their results checked.",
    )
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}; or {LIST}")
    parser.add_argument("part", metavar="PART", nargs="?", help="a part of it: of nexmark a query, such as q5")
    parser.add_argument(
        "--scale", default="minute", help=f"{', '.join(NAMES)}, or a part of the paper's size: 1.0 (default minute)"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    parser.add_argument("--output", metavar="PATH", help="write the JSON object to a file as well")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the experiment and print its result."""
    if args.name == LIST:
        titles = {name: shown.title for name, shown in EXPERIMENTS.items()}
        print(json.dumps(titles) if args.json else "\n".join(f"{name:<9} {title}" for name, title in titles.items()))
        return 0
    path = _writable(args.output) if args.output else None
    result = experiment(args.name, args.scale, args.part)
    text = json.dumps(result.as_json())
    if path is not None:
        path.write_text(text + "\n")
    print(text if args.json else result)
    return 0


def _writable(output: str) -> Path:
    path = Path(output)
    try:
        path.touch()
    except OSError as error:
        raise FriesError(
            f"cannot write {output!r}: {error.strerror}; expected a file in an existing directory"
        ) from None
    return path
