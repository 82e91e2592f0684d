"""Whether rows of one schema can go on where rows of another one came before.

>>> import pyarrow as pa
>>> taken, new = pa.schema({"a": pa.int64(), "b": pa.null()}), pa.schema({"a": pa.float64(), "b": pa.string()})
>>> clash(taken, new) is None, str(clash(taken, new, fixed=True))
(True, "('a', DataType(int64), DataType(double))")
>>> str(clash(taken, pa.schema({"a": pa.string()})))
"('a', DataType(int64), DataType(string))"
"""

from __future__ import annotations

import pyarrow as pa


def clash(taken: pa.Schema, new: pa.Schema, fixed: bool = False) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first column that cannot go on: its name, its type so far, and the new one; ``None`` if all can.

    Columns may come, go and, unless ``fixed``, widen (integers among floats); one of nothing but nulls takes any type.

    Args:
        taken: the columns so far.
        new: those of the rows that come now.
        fixed: a column that has a type keeps it, and takes narrower values only, as those of a Delta table do.
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
    schemas = [pa.schema([("x", kind)]) for kind in (one, other)]
    return pa.unify_schemas(schemas, promote_options="permissive").field("x").type
