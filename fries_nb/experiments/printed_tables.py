"""Results of experiments, as data.

>>> result = Result("table7", "Channels", 1.0, {"flow": "W2"}, ({"workers": 4, "all": 68, "paper all": 68},))
>>> print(result)
table7: Channels (scale 1; flow: W2)
workers  all  paper all
      4   68         68
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """The result of one experiment.

    Attributes:
        name: name of the experiment; ``title`` is that of the paper.
        scale: the size relative to the paper's.
        parameters: workers, rates, durations, budget and other parameters.
        rows: rows of the table, or one row for each curve of the figure, with the paper's values beside ours.
        curves: the points of a figure over time, if it is one.
        marks: requests and ends of changes, for a figure over time.
    """

    name: str
    title: str
    scale: float
    parameters: Row
    rows: tuple[Row, ...]
    curves: tuple[Row, ...] = ()
    marks: tuple[Row, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        parameters = "".join(f"; {name}: {_shown(value)}" for name, value in self.parameters.items())
        return f"{self.name}: {self.title} (scale {self.scale:g}{parameters})\n{_table(self.rows)}"


def _table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_shown(row.get(name)) for name in names] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(names, *cells, strict=True)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in [names, *cells]]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
