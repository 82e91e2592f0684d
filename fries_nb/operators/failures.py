"""A user's function has failed on a tuple: how that is told, as an error or as a dead letter.

An error carries the user's own traceback, without the frames of this package. A row is shown as JSON, in the message of
a worker that is paused and in a dead letter.

>>> import datetime
>>> row_as_json({"day": datetime.date(2026, 2, 1), "amounts": [1, float("nan")], "shop": "Zürich"})
'{"day": "2026-02-01", "amounts": [1, "nan"], "shop": "Zürich"}'
"""

from __future__ import annotations

import json
import math
import os
import traceback
from typing import Any

import pyarrow as pa

from fries_nb.errors import OperatorError
from fries_nb.operators.instance import Instance

FAILURES = (Exception, SystemExit)
"""What a user's function may end with; it has failed on its tuple then, and no more than that."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(os.path.join(_PACKAGE, room) + os.sep for room in ("worker", "operators", "dataflow"))
LETTER = pa.schema(
    {
        "operator": pa.string(), "worker": pa.int64(), "error": pa.string(), "traceback": pa.string(),
        "tuple": pa.string(),
    }
)  # fmt: skip
"""The columns of a dead letter; ``tuple`` is JSON."""


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's frame on, as text; frames of this package are left out."""
    if isinstance(error, OperatorError) and error.details:
        return error.details
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    lines = ["Traceback (from your code):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*lines, *traceback.format_exception_only(error)])


def failure(instance: Instance, error: BaseException) -> OperatorError:
    """The user's error as ours, with the traceback from the user's frame on."""
    name = instance.worker.operator
    reason = str(error) if isinstance(error, OperatorError) else f"{type(error).__name__}: {error}"
    return OperatorError(f"{name} failed on a tuple: {reason}", name, user_traceback(error))


def row_as_json(values: dict[str, Any]) -> str:
    """A row's values as one JSON object; what JSON cannot say is put as text."""
    return json.dumps(_sayable(values), ensure_ascii=False)


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _sayable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def set_aside(instance: Instance, row: dict[str, Any], error: OperatorError, number: int) -> None:
    """Write a dead letter for a row, which has this number in the batch in hand.

    Raises:
        OperatorError: this very error, if there is no place for dead letters, a rollback is to be tried first, or it
            is another's: rows of many become columns before the function has returned.
    """
    others = error.operator not in ("", instance.operator.name)
    if not instance.has_dead_letters or instance.guarded or others:
        raise error
    instance.refused.add(number)
    letter = {
        "operator": [instance.worker.operator],
        "worker": [instance.worker.index],
        "error": [str(error)],
        "traceback": [error.details],
        "tuple": [row_as_json(row)],
    }
    instance.write_letter(pa.RecordBatch.from_pydict(letter, schema=LETTER))
