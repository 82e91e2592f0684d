"""Compatibility of schemas: whether rows of one schema can follow rows of another one.

>>> import pyarrow as pa
>>> taken, new = pa.schema({"a": pa.int64(), "b": pa.null()}), pa.schema({"a": pa.float64(), "b": pa.string()})
>>> clash(taken, new) is None, str(clash(taken, new, fixed=True))
(True, "('a', DataType(int64), DataType(double))")
>>> str(clash(taken, pa.schema({"a": pa.string()})))
"('a', DataType(int64), DataType(string))"
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

MOST_DIGITS = 38
"""Maximum precision of Spark's decimals."""


def united(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The narrowest schema that holds rows of both: the columns of the first in their order, then the others.

    Numbers widen, integers to floats too, and a column of nulls takes any type. Text does not become bytes, nor
    decimals floats, since values that were written already would be read differently.

    Raises:
        pyarrow.ArrowTypeError: a column has two types that no one type holds.
        pyarrow.ArrowInvalid: as ArrowTypeError.
    """
    whole = pa.unify_schemas([one, other], promote_options="permissive")
    known = set(one.names)
    for name, after in ((field.name, field.type) for field in other if field.name in known):
        before = one.field(name).type
        if are_apart(before, after):
            raise pa.ArrowTypeError(f"column {name!r} is {before} and {after}")
        if _digits(whole.field(name).type) > MOST_DIGITS >= max(_digits(before), _digits(after)):
            raise pa.ArrowTypeError(f"column {name!r} is {before} and {after}, which together have too many digits")
    return whole


def are_apart(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether no column type holds the values of both unchanged, although Arrow would unite them."""
    return {_family(one), _family(other)} in _APART


def _family(kind: pa.DataType) -> str:
    for name, holds in _FAMILIES.items():
        if any(hold(kind) for hold in holds):
            return name
    return ""


_FAMILIES = {
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    "floats": (pa.types.is_floating,),
    "decimals": (pa.types.is_decimal,),
}
_APART = ({"text", "bytes"}, {"floats", "decimals"})


def _digits(kind: pa.DataType) -> int:
    return kind.precision if pa.types.is_decimal(kind) else 0


def alike(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that differ only in case, if there are two.

    >>> alike(["A", "b", "a"])
    ('A', 'a')
    """
    seen: dict[str, str] = {}
    for name in names:
        if (low := name.lower()) in seen:
            return seen[low], name
        seen[low] = name
    return None


def clash(taken: pa.Schema, new: pa.Schema, fixed: bool = False) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first incompatible column: its name, its type so far, and the new one; ``None`` if all are compatible.

    Columns may be added and removed and, unless ``fixed``, widen (integers to floats); one of only nulls takes any
    type.

    Args:
        taken: the columns so far.
        new: the columns of the next rows.
        fixed: whether a column that has a type keeps it and takes narrower values only, as in a Delta table.
    """
    for field in new:
        if field.name not in taken.names:
            continue
        before = taken.field(field.name).type
        try:
            whole = _both(before, field.type)
        except pa.ArrowException:
            return field.name, before, field.type
        if fixed and not pa.types.is_null(before) and whole != before and str(whole) != str(before):
            return field.name, before, field.type
    return None


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    return united(pa.schema([("x", one)]), pa.schema([("x", other)])).field("x").type
