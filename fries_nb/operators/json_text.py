"""A row as text that a person reads: in the message of a worker that stands, in a dead letter.

>>> import datetime
>>> row_as_json({"day": datetime.date(2026, 2, 1), "amounts": [1, float("nan")], "shop": "Zürich"})
'{"day": "2026-02-01", "amounts": [1, "nan"], "shop": "Zürich"}'
"""

from __future__ import annotations

import json
import math
from typing import Any


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
