"""``python -m fries_nb plan FLOW.json --reconfigure FM MC``: the operators that a change synchronises, and why."""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fries_nb.dataflow import Graph, graph_from_json
from fries_nb.errors import DataflowError
from fries_nb.planning import Component, Covering, channel_count, cover

SHOWN = 12
FORMAT = """\
FLOW.json, where all keys but names have the defaults shown:
  {"name": "fraud",
   "operators": [{"name": "FM", "emits": "one_to_one", "edgewise_one_to_one": false,
                  "unique_per_transaction": false, "blocking": false, "workers": 1}, ...],
   "edges": [{"from": "FC", "to": "FM", "partitioning": "forward"}, ...]}
emits is one_to_one or one_to_many; partitioning is forward, hash, rebalance or broadcast.
Operators in a loop L have "within": ["L"], its head L has "kind": "loop" as well, and an edge that comes back to the
head has "feedback": true. A head's emits is that of the whole loop.
Exit code 0: planned; 2: no such plan."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "plan",
        help="show what a change of operators has to synchronise",
        description="Show the components that a change of operators has to synchronise, their heads, and what was "
        "pruned or kept, by which rule.",
        epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", metavar="FLOW.json", help="the dataflow's operators and edges")
    parser.add_argument("--reconfigure", nargs="+", required=True, metavar="OPERATOR", help="the operators to change")
    parser.add_argument("--no-pruning", action="store_true", help="keep every one-to-many operator above a target")
    parser.add_argument("--json", action="store_true", help="print the plan as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    with _collecting_nothing():
        graph = read_flow(args.flow)
        plan = as_dict(graph, cover(graph, args.reconfigure, pruning=not args.no_pruning))
        print(json.dumps(plan) if args.json else in_words(plan))
    return 0


def as_dict(graph: Graph, covering: Covering) -> dict[str, Any]:
    """The plan as JSON values, with names in topological order.

    ``channels`` counts worker-to-worker channels: ``all`` of the dataflow, and those within a ``component``, on which
    markers travel.
    """
    place = {name: number for number, name in enumerate(graph.order)}

    def ordered(names: Iterable[str]) -> list[str]:
        return sorted(names, key=place.__getitem__)

    parts = [
        _part_as_dict(part, ordered(part.operators), _channels_inside(graph, part)) for part in covering.components
    ]
    return {
        "dataflow": graph.name,
        "targets": ordered(covering.targets),
        "components": parts,
        "heads": [head for part in parts for head in part["heads"]],
        "edges": [edge for part in parts for edge in part["edges"]],
        "longest_path": covering.longest_path,
        "pruning": [
            {
                "operator": decision.operator,
                "pruned": decision.pruned,
                "rule": decision.rule.value,
                "witness": list(decision.witness),
                "reason": decision.reason,
            }
            for decision in covering.pruning
        ],
        "naive_safe": covering.naive_safe,
        "channels": {
            "all": channel_count(graph, graph.edges),
            "component": sum(part["channels"] for part in parts),
        },
    }


def in_words(plan: dict[str, Any]) -> str:
    """The plan as text; of long lists the first twelve entries are shown."""
    lines = [f"change of {_some(plan['targets'])} in dataflow {plan['dataflow']!r}"]
    for number, part in enumerate(plan["components"][:SHOWN], start=1):
        lines.append(f"component {number}: {_some(part['operators'])}")
        lines.append(f"  heads: {_some(part['heads'])}; targets: {_some(part['targets'])}")
        if part["loops"]:
            lines.append(f"  loops: {_some(part['loops'])}; they have to be empty when the operators switch")
        edges = [f"{source} -> {to}" for source, to in part["edges"]]
        lines.append(f"  edges: {_some(edges) if edges else 'none'}; longest path: {part['longest_path']}")
    lines += _rest(plan["components"], "component")
    lines += [decision["reason"] for decision in plan["pruning"][:SHOWN]]
    lines += _rest(plan["pruning"], "one-to-many operator")
    channels = plan["channels"]
    lines.append(f"longest path: {plan['longest_path']}")
    lines.append(f"channels: all {channels['all']:,}, component {channels['component']:,}")
    lines.append(f"naive FCM: {'safe' if plan['naive_safe'] else 'not safe, it may mix versions within a transaction'}")
    return "\n".join(lines)


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Disables garbage collection within the block.

    Everything that is read stays in use, and scanning it takes a third of the time of a large plan.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_flow(path: str) -> Graph:
    """A dataflow from a JSON file."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise DataflowError(f"cannot read dataflow {path!r}: {error.strerror}; expected a JSON file") from None
    return graph_from_json(text)


def _part_as_dict(part: Component, ordered: list[str], channels: int) -> dict[str, Any]:
    return {
        "operators": ordered,
        "heads": [name for name in ordered if name in part.heads],
        "targets": [name for name in ordered if name in part.targets],
        "edges": [list(edge) for edge in part.edges],
        "longest_path": part.longest_path,
        "loops": list(part.loops),
        "channels": channels,
    }


def _channels_inside(graph: Graph, part: Component) -> int:
    edges = (edge for name in part.operators for edge in graph.out_edges(name) if edge.to in part.operators)
    return channel_count(graph, edges)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,} in all)" if len(names) > SHOWN else "")


def _rest(items: Collection[Any], noun: str) -> list[str]:
    more = len(items) - SHOWN
    return [f"... and {more:,} more {noun}{'' if more == 1 else 's'} (all of them: --json)"] if more > 0 else []
