"""The comparison of both arms of a canary, of what their workers have counted and sampled (see ``operators.arms``).

>>> import pyarrow as pa
>>> from fries_nb.protocol.messages import ArmSeen, ArmsSeen, WorkerId
>>> def arm(taken, scores):
...     rows = pa.RecordBatch.from_pydict({"score": scores, "card": ["a", "b"] * (len(scores) // 2)})
...     sampled = Sampled((rows,), tuple(range(len(scores))), tuple([5.0] * len(scores)))
...     return ArmSeen(taken, 0, (200_000, 100_000, 9_000_000), pickle.dumps(sampled))
>>> seen = [ArmsSeen(1, WorkerId("FM", 0), "u1", arm(95, [0.5, 0.3]), arm(5, [0.5, 0.9, None, 0.7]), "FM")]
>>> arms = compared_arms(seen, ["FM"])
>>> print(arms[["rows", "failures", "ms", "p50_ms", "score nulls", "score mean", "score p90"]])
     rows  failures   ms  p50_ms  score nulls  score mean  score p90
arm
old    95         0  0.2     5.0         0.00         0.4       0.48
new     5         0  0.2     5.0         0.25         0.7       0.86
>>> arms.failures.new, arms["card top values"].old
(np.int64(0), 'a 50 %, b 50 %')
>>> print(compared_arms(seen, ["FM"], by="card")["score mean"])
card  arm
a     old    0.5
      new    0.5
b     old    0.3
      new    0.8
Name: score mean, dtype: float64
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fries_nb.changes.change_effect import figures_of_column
from fries_nb.dataflow.masking import MASK
from fries_nb.errors import PlanError
from fries_nb.operators.arms import Sampled
from fries_nb.protocol.messages import ArmSeen, ArmsSeen

ARMS = ("old", "new")
ARM, OPERATOR, LATENCY = "_arm", "_operator", "_latency_ms"
"""The columns of a table of sampled rows that say of which arm each is, which operator gave it, and how old it was."""


@dataclass(frozen=True)
class ArmCounts:
    """What one arm has done at all targets.

    Attributes:
        rows: number of rows that came to it, at the target that most came to.
        failures: number of dead letters, at all targets.
        ms: median of milliseconds for a row, in all chains with a target; ``None`` if none was timed.
    """

    rows: int = 0
    failures: int = 0
    ms: float | None = None


NONE_YET = ArmCounts()


def counts_of(parts: Sequence[ArmsSeen], arm: str) -> ArmCounts:
    """What all workers have counted of one arm."""
    taken, chains = dict[str, int](), dict[str, dict[str, list[int]]]()
    failed = 0
    for part in parts:
        seen: ArmSeen = getattr(part, arm)
        name = part.worker.operator
        taken[name] = taken.get(name, 0) + seen.taken
        failed += seen.failed
        chains.setdefault(part.of, {}).setdefault(name, []).extend(seen.timed_ns)
    # A target is timed until rows have left its chain, so of a chain the first target has all of the time.
    known = [max(median(each) for each in timed) for of in chains.values() if (timed := [*filter(None, of.values())])]
    return ArmCounts(max(taken.values(), default=0), failed, round(sum(known) / 1e6, 4) if known else None)


def compared_arms(
    parts: Sequence[ArmsSeen], order: Sequence[str], by: str | None = None, hide: Collection[str] = ()
) -> Any:  # fmt: skip
    """A pandas DataFrame of both arms; see ``Change.compare``.

    Args:
        parts: what the workers of all targets have told.
        order: the operators, in the order of the flow.
        by: a column whose values divide the rows of the samples.
        hide: columns that are masked where it is shown.

    Raises:
        PlanError: no sampled row has the column ``by``, or it has lists or structs.
    """
    from pandas import DataFrame, Index, MultiIndex  # takes longer to import than all of fries_nb's own modules

    samples = {name: {arm: list(_rows(parts, name, arm)) for arm in ARMS} for name in _gave(parts, order)}
    if by is None:
        rows = [_figures(parts, samples, arm) for arm in ARMS]
        return _hiding(DataFrame(rows, index=Index(ARMS, name="arm")), hide)
    last = samples[list(samples)[-1]] if samples else {arm: [] for arm in ARMS}
    columns = dict.fromkeys(name for arm in ARMS for row, _ in last[arm] for name in row)
    if by not in columns:
        raise PlanError(f"by={by!r}: no sampled row has that column; they have {', '.join(columns) or 'none'}")
    if any(isinstance(row.get(by), list | dict) for arm in ARMS for row, _ in last[arm]):
        raise PlanError(f"by={by!r} has lists or structs; expected a column of single values")
    groups: dict[Any, dict[str, list[dict[str, Any]]]] = {}
    for arm in ARMS:
        for row, _ in last[arm]:
            rest = {name: value for name, value in row.items() if name != by}
            groups.setdefault(row.get(by), {one: [] for one in ARMS})[arm].append(rest)
    keys = [(group, arm) for group in sorted(groups, key=_sortable) for arm in ARMS]
    found = [{"rows": len(groups[group][arm]), **dict(_of_rows(groups[group][arm]))} for group, arm in keys]
    return _hiding(DataFrame(found, index=MultiIndex.from_tuples(keys, names=[by, "arm"])), hide)


def _hiding(table: Any, hide: Collection[str]) -> Any:
    """The table, with masks for the figures of hidden columns where it is shown; numbers of nulls say no value."""
    from fries_nb.dataflow.shown_table import shown_table  # imports pandas, which takes long

    figures = [name for name in table if not name.endswith(" nulls") and _column_of(name) in hide]
    return shown_table(table, {*hide, *figures})


def _column_of(figure: str) -> str:
    """The column of which a figure is."""
    return figure.rpartition(" ")[0].removesuffix(" top").rpartition(": ")[2]


def sampled_rows(parts: Sequence[ArmsSeen], order: Sequence[str], hide: Collection[str] = ()) -> Any:
    """The sampled rows of both arms as a pandas DataFrame; see ``Change.sample``."""
    from pandas import DataFrame

    rows = [
        row | {ARM: arm, OPERATOR: name, LATENCY: latency_ms}
        for name in _gave(parts, order) for arm in ARMS for row, latency_ms in _rows(parts, name, arm)
    ]  # fmt: skip
    return _hiding(DataFrame(rows), hide)


def shown_arms(table: Any) -> list[tuple[str, str, Any, Any]]:
    """What is shown of a comparison: group, figure, old and new, with masks in place of hidden columns.

    Counts, times, means and most frequent values, and shares of nulls where there are some; quantiles are left out.
    """
    by, hide = table.index.names[0] if table.index.nlevels > 1 else "", table.attrs.get("hidden_columns", ())
    found = list[tuple[str, str, Any, Any]]()
    columns = {figure: list(table[figure]) for figure in table}  # in a row of a DataFrame numbers have one type
    for place in range(0, len(table), len(ARMS)):  # the arms of a group are side by side
        group = table.index[place][0] if by else ""
        for figure, values in columns.items():
            column, measure = _column_of(str(figure)), str(figure).rpartition(" ")[2]
            sides = [_plain(value) for value in values[place : place + len(ARMS)]]
            if measure in ("p10", "p50", "p90") or (measure == "nulls" and not any(sides)) or sides == [None, None]:
                continue
            if column in hide and measure != "nulls":
                sides = [None if side is None else MASK for side in sides]
            found.append((MASK if by in hide else str(group), str(figure), *sides))
    return found


def _plain(value: Any) -> Any:
    """A figure as a value of Python's own; ``None`` for one that there is not."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def _gave(parts: Iterable[ArmsSeen], order: Sequence[str]) -> list[str]:
    """The operators of which rows were sampled: the last ones of the targets' chains, in the order of the flow."""
    gave = {part.of for part in parts if part.of and any(_samples([part], part.of, arm) for arm in ARMS)}
    return [name for name in order if name in gave]


def _samples(parts: Iterable[ArmsSeen], operator: str, arm: str) -> list[Sampled]:
    told = [getattr(part, arm).sampled for part in parts if part.of == operator]
    return [one for one in map(pickle.loads, filter(None, told)) if one.rows]


def _rows(parts: Iterable[ArmsSeen], operator: str, arm: str) -> Iterator[tuple[dict[str, Any], float]]:
    """The sampled rows of an arm with their latencies: up to the least of the bounds, so that all have one chance."""
    samples = _samples(parts, operator, arm)
    below = min((one.below for one in samples), default=0)
    for one in samples:
        rows = [row for batch in one.rows for row in batch.to_pylist()]
        for row, hashed, latency_ms in zip(rows, one.hashes, one.latencies_ms, strict=True):
            if hashed < below:
                yield row, latency_ms


def _figures(
    parts: Sequence[ArmsSeen], samples: Mapping[str, Mapping[str, Sequence[tuple[dict[str, Any], float]]]], arm: str
) -> dict[str, Any]:  # fmt: skip
    """One row of the table."""
    counts = counts_of(parts, arm)
    figures: dict[str, Any] = {"rows": counts.rows, "failures": counts.failures, "ms": counts.ms}
    latencies = [ms for _, ms in samples[list(samples)[-1]][arm]] if samples else []
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        figures[name] = round(float(np.quantile(latencies, share)), 3) if latencies else None
    for operator, of_arms in samples.items():
        prefix = f"{operator}: " if len(samples) > 1 else ""
        figures |= {f"{prefix}{name}": value for name, value in _of_rows([row for row, _ in of_arms[arm]])}
    return figures


def _of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The figures of each column, by column and measure."""
    for column in dict.fromkeys(name for row in rows for name in row):
        for measure, value in figures_of_column([row.get(column) for row in rows]).items():
            yield f"{column} {measure}", value


def _sortable(value: Any) -> tuple[str, Any]:
    """A key by which values of several types, nulls among them, can be sorted."""
    return (type(value).__name__, value) if isinstance(value, int | float | str) else (type(value).__name__, str(value))
