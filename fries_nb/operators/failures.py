"""Failures of users' functions on a tuple, as errors or as dead letters.

An error contains the user's traceback, without the frames of this package. The tuple is shown as JSON, in the message
of a paused worker and in a dead letter.

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

from fries_nb.errors import OperatorError, exception_text
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import WorkerId

FAILURES = (Exception, SystemExit)
"""Exceptions of a user's function that count as its failure on the tuple."""
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
    """Wrap an exception of a user's function, with the traceback from the user's frame on."""
    name = instance.worker.operator
    reason = str(error) if isinstance(error, OperatorError) else exception_text(error)
    return OperatorError(f"{name} failed on a tuple: {reason}", name, user_traceback(error))


def row_as_json(values: dict[str, Any]) -> str:
    """A row's values as one JSON object; values that JSON cannot represent are converted to text."""
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
    """Write a dead letter for a row."""
    others = error.operator not in ("", instance.operator.name)
    if not instance.has_dead_letters or instance.guarded or others:
        raise error
    instance.refused.add(number)
    instance.write_letter(dead_letter(instance.worker, str(error), error.details, row))


def dead_letter(worker: WorkerId, error: str, details: str, row: dict[str, Any]) -> pa.RecordBatch:
    """A dead letter."""
    letter = {
        "operator": [worker.operator], "worker": [worker.index], "error": [error], "traceback": [details],
        "tuple": [row_as_json(row)],
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(letter, schema=LETTER)
