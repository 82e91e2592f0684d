"""Columns of Spark that Arrow would read from Parquet as something else, such as the bytes of a VARIANT.

Spark writes its own schema, as JSON, into the footers of its files; a DataFrame has it before it is written.

>>> fields = [{"name": "n", "type": "long"}, {"name": "v", "type": {"type": "array", "elementType": "variant"}}]
>>> misread(json.dumps({"type": "struct", "fields": fields}))
"column 'v' is a VARIANT, which a stream cannot hold; convert it with to_json(v)"
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

_FOOTER = b"org.apache.spark.sql.parquet.row.metadata"
_PLAIN = (
    "string", "char(", "varchar(", "binary", "boolean", "byte", "short", "integer", "long", "float", "double",
    "decimal", "date", "timestamp", "timestamp_ntz", "time(",
)  # fmt: skip
"""How the JSON of types that Arrow reads as Spark does begins."""
_OTHERS = (
    ("variant", "a VARIANT", "convert it with to_json({})"),
    ("interval", "an INTERVAL", "convert it to a number, or with CAST({} AS STRING)"),
    ("void", "of type VOID", "give it a type, as CAST({} AS STRING)"),
    ("udt", "of a user-defined type", "select its parts, as vector_to_array({}) of a vector"),
    ("", "of a type of its own", "convert it with CAST({} AS STRING)"),
)


def misread(schema: str) -> str:
    """Why the first column that Arrow would read otherwise is refused, as a sentence; empty if there is none.

    Args:
        schema: the schema of Spark, as JSON.
    """
    for field in json.loads(schema)["fields"]:
        for kind in _leaves(field["type"]):
            if not kind.startswith(_PLAIN):
                what, remedy = next((what, remedy) for name, what, remedy in _OTHERS if kind.startswith(name))
                name = field["name"]
                return f"column {name!r} is {what}, which a stream cannot hold; {remedy.format(name)}"
    return ""


def misread_in(metadata: pq.FileMetaData) -> str:
    """See ``misread``, of a file; empty if Spark has not written it."""
    return misread((metadata.metadata or {}).get(_FOOTER, b'{"fields": []}').decode())


def _leaves(kind: Any) -> Iterator[str]:
    """The types within a type, without the containers."""
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            yield from _leaves(field["type"])
    elif kind["type"] in ("array", "map"):
        for part in ("elementType", "keyType", "valueType"):
            yield from _leaves(kind[part]) if part in kind else ()
    else:
        yield kind["type"]
