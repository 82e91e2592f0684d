"""Conversion of graphs to JSON and back: types and edges, without functions.

All keys except names have defaults: ``one_to_one``, ``false``, ``false``, ``false``, 1 worker; ``forward``.
``on_error`` (``fail``, ``pause`` or ``dead_letters``) is included unless it is ``fail``; the sink of dead letters is
not included. ``chain`` is included if it is ``false``, ``begins_transactions`` if it is ``true``. Of kinds only the
heads of loops are included, as ``loop``; an operator in loops has their names in ``within``, outermost first, the head
itself as well; an edge that closes a loop has ``feedback``.

>>> graph = graph_from_json('''{"name": "w1", "operators": [{"name": "Src"}, {"name": "FD", "workers": 40}],
...                             "edges": [{"from": "Src", "to": "FD", "partitioning": "hash"}]}''')
>>> graph.operator("FD").workers, str(graph.edges[0].partitioning)
(40, 'hash')
>>> graph_from_json(graph_to_json(graph)) == graph
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from fries_nb.dataflow.endpoints import Memory
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning, StreamScope
from fries_nb.errors import DataflowError, close_match

_Word = TypeVar("_Word", bound=StrEnum)
_OPERATOR_KEYS = (
    "name", "emits", "edgewise_one_to_one", "unique_per_transaction", "blocking", "workers", "on_error", "chain",
    "kind", "within", "begins_transactions",
)  # fmt: skip
_EDGE_KEYS = ("from", "to", "partitioning", "feedback")


class _Kind(StrEnum):
    LOOP = Kind.LOOP.value


class _Policy(StrEnum):
    FAIL = "fail"
    PAUSE = "pause"
    DEAD_LETTERS = "dead_letters"


def graph_from_json(given: str | bytes | Mapping[str, Any]) -> Graph:
    """Parse a graph."""
    top = _object(_decoded(given) if isinstance(given, (str, bytes)) else given, "a dataflow")
    _refuse_unknown_keys(top, ("name", "operators", "edges"), "the dataflow")
    name = _name(top, "name", "the dataflow")
    operators = tuple(_operator(each, number) for number, each in enumerate(_list(top, "operators", name)))
    if not operators:
        raise DataflowError(f"dataflow {name!r} has no operators; expected at least one")
    edges = tuple(_edge(each, number) for number, each in enumerate(_list(top, "edges", name)))
    return Graph(name, operators, edges)


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """The graph as a dict for ``json.dumps``; functions, kinds other than loops, and key columns are omitted."""
    return {
        "name": graph.name,
        "operators": [
            {
                "name": operator.name,
                "emits": operator.emits.value,
                "edgewise_one_to_one": operator.edgewise_one_to_one,
                "unique_per_transaction": operator.unique_per_transaction,
                "blocking": operator.blocking,
                "workers": operator.workers,
                **_policy_to_json(operator),
                **({} if operator.chain else {"chain": False}),
                **({"kind": operator.kind.value} if operator.traits.heads_loop else {}),
                **({"within": list(operator.within.loops)} if operator.within.level else {}),
                **({"begins_transactions": True} if operator.begins_transactions else {}),
            }
            for operator in graph.operators
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.to,
                "partitioning": edge.partitioning.value,
                **({"feedback": True} if edge.feedback else {}),
            }
            for edge in graph.edges
        ],
    }


def _policy_to_json(operator: Operator) -> dict[str, str]:
    policy = operator.on_error if isinstance(operator.on_error, str) else _Policy.DEAD_LETTERS.value
    return {} if policy == _Policy.FAIL.value else {"on_error": policy}


def _decoded(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataflowError(f"not JSON: {error}") from None
    except RecursionError:
        raise DataflowError("not a dataflow: the JSON is nested too deeply") from None


def _operator(given: object, number: int) -> Operator:
    where = f"operator number {number + 1}"
    item = _object(given, where)
    name = _name(item, "name", where)
    where = f"operator {name!r}"
    _refuse_unknown_keys(item, _OPERATOR_KEYS, where)
    policy = _word(_Policy, item, "on_error", _Policy.FAIL, where)
    return Operator(
        name,
        emits=_word(Emits, item, "emits", Emits.ONE_TO_ONE, where),
        edgewise_one_to_one=_flag(item, "edgewise_one_to_one", where),
        unique_per_transaction=_flag(item, "unique_per_transaction", where),
        blocking=_flag(item, "blocking", where),
        workers=item.get("workers", 1),
        on_error=Memory() if policy is _Policy.DEAD_LETTERS else policy.value,
        chain=_flag(item, "chain", where, default=True),
        kind=Kind(_word(_Kind, item, "kind", _Kind.LOOP, where)) if "kind" in item else Kind.MAP,
        within=_scope(item, where),
        begins_transactions=_flag(item, "begins_transactions", where),
    )


def _edge(given: object, number: int) -> Edge:
    where = f"edge number {number + 1}"
    item = _object(given, where)
    _refuse_unknown_keys(item, _EDGE_KEYS, where)
    ends = _name(item, "from", where), _name(item, "to", where)
    where = f"edge {ends[0]} -> {ends[1]}"
    partitioning = _word(Partitioning, item, "partitioning", Partitioning.FORWARD, where)
    return Edge(*ends, partitioning, feedback=_flag(item, "feedback", where))


def _scope(item: Mapping[str, Any], where: str) -> StreamScope:
    found = item.get("within", [])
    if not isinstance(found, list) or not all(isinstance(loop, str) and loop for loop in found):
        raise DataflowError(f"{where}: 'within' is a list of names of loops; got {_shown(found)}")
    return StreamScope(tuple(found))


def _object(given: object, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise DataflowError(f"{what} is a JSON object; got {_shown(given)}")
    return given


def _list(item: Mapping[str, Any], key: str, name: str) -> list[object]:
    if not isinstance(found := item.get(key), list):
        raise DataflowError(f"dataflow {name!r}: {key!r} is a list of objects; got {_shown(found)}")
    return found


def _name(item: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(found := item.get(key), str) or not found:
        got = _shown(found) if key in item else "none"
        raise DataflowError(f"{where}: {key!r} is a name, a non-empty string; got {got}")
    return found


def _flag(item: Mapping[str, Any], key: str, where: str, default: bool = False) -> bool:
    if not isinstance(found := item.get(key, default), bool):
        raise DataflowError(f"{where}: {key!r} is true or false; got {_shown(found)}")
    return found


def _word(words: type[_Word], item: Mapping[str, Any], key: str, default: _Word, where: str) -> _Word:
    if key not in item:
        return default
    found = item[key]
    try:
        return words(found)
    except ValueError:
        options = [word.value for word in words]
        likely = close_match(found, options) if isinstance(found, str) else ""
        raise DataflowError(
            f"{where}: {key!r} is one of {', '.join(options)}; got {_shown(found)}{likely}"
        ) from None


def _refuse_unknown_keys(item: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in item:
        if key not in known:
            raise DataflowError(
                f"{where} has a key {key!r}; expected one of {', '.join(known)}{close_match(str(key), known)}"
            )


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
