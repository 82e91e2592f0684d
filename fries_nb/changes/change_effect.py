"""What a change has altered: rates, failures and selectivity of operators, and their columns, before and after.

Counts are of two windows of the same length, columns of the newest rows: those that the operators had given when the
change was begun, and those that they have given when this is asked.

>>> before = Seen({"FM": (100, 0, 100)}, 10.0, {"FM": [{"p": 0.25}, {"p": 0.75}, {"p": None}, {"p": 1.0}]})
>>> after = Seen({"FM": (200, 4, 50)}, 10.0, {"FM": [{"p": 0.5}, {"p": 0.5}]})
>>> found = ChangeEffect("u1", tuple(measures_of(["FM"], before, after)))
>>> print(found.table.to_string(index=False))
operator column     measure  before after
      FM             rows/s    10.0  20.0
      FM           failures       0     4
      FM        selectivity     1.0  0.25
      FM      p       nulls    0.25   0.0
      FM      p        mean 0.66667   0.5
      FM      p         p10    0.35   0.5
      FM      p         p50    0.75   0.5
      FM      p         p90    0.95   0.5
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fries_nb.dataflow.masking import MASK
from fries_nb.displays import Displayed
from fries_nb.telemetry.history import CountSample

QUANTILES: Mapping[str, float] = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
"""The quantiles of numbers that are told, by name."""
MOST_VALUES = 3
"""Number of values of a column that are told, the most frequent ones."""
LEAST_S = 2.0
"""Shortest window in seconds of which rates are told."""
_DIGITS = 5
_LETTERS = 40


@dataclass(frozen=True)
class Seen:
    """What was seen of some operators on one side of a change.

    Attributes:
        counts: operator to the numbers of tuples that it took in the window, that became dead letters, and of rows that
            it gave.
        seconds: length of the window; 0 if there is none.
        rows: operator to the newest rows that it gave, or a sink took.
    """

    counts: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    seconds: float = 0.0
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class EffectFigure:
    """A figure before and after a change.

    Attributes:
        operator: the operator.
        column: the column of which it is; empty if it is of the operator.
        name: ``rows/s``, ``failures``, ``selectivity`` (rows given for each that is taken), ``nulls`` (the share of
            rows), ``mean``, ``p10``, ``p50``, ``p90`` or ``top values``.
        before: the figure before; ``None`` if it is not known, or there is none.
        after: the figure after.
    """

    operator: str
    column: str
    name: str
    before: Any
    after: Any

    @property
    def differs(self) -> bool:
        """Whether it is not the same before and after."""
        return bool(self.before != self.after)


@dataclass(frozen=True)
class ChangeEffect(Displayed):
    """What a change has altered.

    Attributes:
        change: id of the change.
        measures: the figures before and after, of each changed operator and of the sinks below.
        words: of which windows, and of how many rows, they are.
        hide: the columns whose figures are masked in what is shown; ``measures`` and ``table`` have them.
    """

    change: str
    measures: tuple[EffectFigure, ...]
    words: str = ""
    hide: frozenset[str] = frozenset()

    @property
    def shown(self) -> ChangeEffect:
        """The same as it is shown, with masks in place of what is hidden, except for numbers of nulls."""
        return replace(self, measures=tuple(_masked(one, self.hide) for one in self.measures)) if self.hide else self

    @property
    def table(self) -> Any:
        """A pandas DataFrame: ``operator``, ``column``, ``measure``, ``before`` and ``after``."""
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        rows = [(one.operator, one.column, one.name, one.before, one.after) for one in self.measures]
        return DataFrame(rows, columns=["operator", "column", "measure", "before", "after"], dtype=object)

    def __repr__(self) -> str:
        return f"{self.shown.table.to_string(index=False)}\n\n{self.words}" if self.measures else self.words


def _masked(one: EffectFigure, hide: Collection[str]) -> EffectFigure:
    if one.column not in hide or one.name == "nulls":
        return one
    before, after = (None if side is None else MASK for side in (one.before, one.after))
    return replace(one, before=before, after=after)


def measures_of(operators: Iterable[str], before: Seen, after: Seen) -> Iterator[EffectFigure]:
    """The figures of operators before and after."""
    for name in operators:
        for words, one, other in _of_operator(name, before, after):
            yield EffectFigure(name, "", words, one, other)
        rows = before.rows.get(name, ()), after.rows.get(name, ())
        for column in dict.fromkeys(column for side in rows for row in side for column in row):
            figures = [figures_of_column([row.get(column) for row in side]) for side in rows]
            for words in dict.fromkeys(words for side in figures for words in side):
                yield EffectFigure(name, column, words, *(side.get(words) for side in figures))


def _of_operator(name: str, *sides: Seen) -> Iterator[tuple[str, Any, Any]]:
    """Names of figures of an operator, and what they are on both sides."""
    figures = [_of_counts(side.counts[name], side.seconds) if name in side.counts else {} for side in sides]
    before, after = figures
    yield from ((words, before.get(words), after.get(words)) for words in dict.fromkeys((*before, *after)))


def _of_counts(counts: tuple[int, int, int], seconds: float) -> dict[str, Any]:
    taken, failed, given = counts
    selectivity = {"selectivity": round(given / taken, 3)} if taken else {}
    return {"rows/s": round(taken / seconds, 1), "failures": failed} | selectivity


def figures_of_column(values: Sequence[Any]) -> dict[str, Any]:
    """Figures of a column; none if there are no rows.

    >>> figures_of_column(["a", "b", "a", None])
    {'nulls': 0.25, 'top values': 'a 67 %, b 33 %'}
    >>> figures_of_column([])
    {}
    """
    if not values:
        return {}
    present = [value for value in values if not is_null(value)]
    figures: dict[str, Any] = {"nulls": round(1 - len(present) / len(values), 3)}
    numbers = [float(value) for value in present if is_number(value)]
    if present and len(numbers) == len(present):
        figures["mean"] = _rounded(math.fsum(numbers) / len(numbers))
        figures |= {name: _rounded(float(np.quantile(numbers, share))) for name, share in QUANTILES.items()}
    elif present:
        counted = Counter(map(str, present)).most_common(MOST_VALUES)
        shares = [f"{value[:_LETTERS]} {100 * count / len(present):.0f} %" for value, count in counted]
        figures["top values"] = ", ".join(shares)
    return figures


def is_null(value: Any) -> bool:
    """Whether a value counts as missing: none, or no number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_number(value: Any) -> bool:
    """Whether a value is a number whose mean has a meaning."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _rounded(value: float) -> float:
    """A figure to as many digits as a sample can tell."""
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class CountedSpan:
    """A window of counts.

    Attributes:
        counts: as in ``Seen``; without operators whose workers were restarted in it.
        seconds: its length.
    """

    counts: Mapping[str, tuple[int, int, int]]
    seconds: float


def span_of(samples: Sequence[CountSample], seconds: float) -> CountedSpan:
    """What was counted in the last so many seconds of some samples, or in all of them if they are fewer.

    >>> samples = [CountSample(at_s, {"FM": (100 * at_s, 0, 50 * at_s)}) for at_s in (0, 1, 2, 3)]
    >>> span_of(samples, 2.0), span_of(samples[:1], 2.0)
    (CountedSpan(counts={'FM': (200, 0, 100)}, seconds=2), CountedSpan(counts={}, seconds=0.0))
    """
    if len(samples) < 2:
        return CountedSpan({}, 0.0)
    last = samples[-1]
    first = min(samples[:-1], key=lambda one: abs(last.at_s - one.at_s - seconds))
    counts = {
        name: (now[0] - then[0], now[1] - then[1], now[2] - then[2])
        for name, now in last.of.items()
        if (then := first.of.get(name)) is not None and all(map(int.__ge__, now, then))
    }
    return CountedSpan(counts, last.at_s - first.at_s)
