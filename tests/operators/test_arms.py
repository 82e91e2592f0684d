"""Both arms of a canary are counted where rows are processed: row by row, in batches, and where they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from operator_setting import batch, execution, guarded, instance, letters, outcome

from fries_nb.dataflow import Kind, batched
from fries_nb.operators.instance import Instance, Ready
from fries_nb.protocol.rollout import RolloutStep, are_new


def old(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on one row."""
    if row["n"] == 3:
        raise ValueError("the old version fails")
    return row | {"by": "old"}


def new(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on the last two rows."""
    if row["n"] >= 98:
        raise ValueError("the new version fails")
    return row | {"by": "new"}


def in_batches(function: Any) -> Any:
    """The same as a batched function."""
    def of_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([function(row) for row in rows.to_pylist()])

    return batched(of_batch)


def begun(operator: Instance, function: Any, share: float = 0.25) -> tuple[RolloutStep, ...]:
    """Begin a canary."""
    steps = (RolloutStep({0: 9}, share),)
    operator.prepared["u1"] = Ready(function, None)
    operator.decide_rows("u1", steps)
    return steps


@pytest.mark.parametrize("wrap", [lambda function: function, in_batches])
def test_rows_and_failures_are_counted_by_the_version_that_has_processed_them(wrap: Any) -> None:
    """Dead letters name their version as well."""
    operator, port = guarded(Kind.MAP, wrap(old))
    steps = begun(operator, wrap(new), share=0.5)
    rows = batch(n=list(range(100)))
    is_new = are_new(steps, rows)
    assert is_new[98:].any(), "some row fails in the new version"
    out = outcome(execution(operator), rows)
    assert operator.arms is not None
    assert operator.arms.new.failed == is_new[98:].sum()
    assert operator.arms.old.failed == 1
    # A batch on which a function fails is tried again row by row, by its version.
    assert operator.arms.new.taken == is_new.sum()
    assert operator.arms.old.taken == (~is_new).sum()
    assert {row["n"]: row["by"] for row in out} == {
        n: "new" if is_new[n] else "old" for n in range(100) if n != 3 and not (n >= 98 and is_new[n])
    }
    versions = {letter["tuple"].split(",")[0]: letter["version"] for letter in letters(port)}
    assert versions == {'{"n": 3}': ""} | {f'{{"n": {n}}}': "u1" for n in (98, 99) if is_new[n]}


def test_one_of_sixteen_rows_is_timed() -> None:
    """By the clock of the worker."""
    now = iter(range(0, 10**9, 1_000))
    operator = instance("A", Kind.MAP, lambda row: row)
    operator.clock = now.__next__
    begun(operator, lambda row: row, share=0.5)
    outcome(execution(operator), batch(n=list(range(2_000))), quota=20)  # the inner loop times none
    assert operator.arms is not None
    for arm in (operator.arms.old, operator.arms.new):
        assert list(arm.timed_ns) == [1_000] * (arm.taken // 16)


def test_arms_begin_with_a_canary_and_stay_until_the_next_change() -> None:
    """What both have done can be compared after its end."""
    operator = instance("A", Kind.MAP, old)
    begun(operator, new, share=1.0)
    assert operator.arms is None, "all rows are of one version"
    operator.settle("u1")
    begun(operator, new)
    arms = operator.arms
    assert arms is not None
    operator.decide_rows("u1", (RolloutStep({0: 9}, 0.25), RolloutStep({0: 99}, 1.0)))
    operator.settle("u1")
    assert operator.arms is arms
    assert execution(operator).remaining == 0


def test_many_small_batches_cost_no_more_than_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are considered together, and as many parts are kept as were considered at a time."""
    operator = instance("A", Kind.MAP, lambda row: row)
    steps = begun(operator, lambda row: row)
    arms = operator.arms
    assert arms is not None
    considered = list[int]()
    consider = arms.consider
    monkeypatch.setattr(arms, "consider", lambda: (considered.append(len(arms._made)), consider()))
    rows = batch(n=list(range(3_000)))
    for start in range(3_000):
        arms.made(rows.slice(start, 1), steps, now_ns=0)
    assert considered == [0, *[64] * (3_000 // 64)]
    arms.made(rows.slice(0, 1), (*steps, RolloutStep({0: 9}, 0.5)), now_ns=0)
    assert considered[-1] == 3_000 % 64  # by the steps of their time
    assert len(arms.old.made._parts) + len(arms.new.made._parts) <= 2 * (3_000 // 64 + 1)


def test_the_sample_of_an_arm_has_rows_of_all_times() -> None:
    """As many of the version that processes few rows."""
    operator = instance("A", Kind.MAP, lambda row: row)
    steps = begun(operator, lambda row: row)
    assert operator.arms is not None
    rows = batch(n=list(range(50_000)))
    for start in range(0, 50_000, 500):
        part = rows.slice(start, 500)
        operator.arms.made(part, steps, now_ns=0)
    operator.arms.consider()
    is_new = are_new(steps, rows)
    for arm, mine in ((operator.arms.old, ~is_new), (operator.arms.new, is_new)):
        taken = np.array([n for one in arm.made.take().rows for n in one.column("n").to_pylist()])
        assert len(taken) == 1_000
        assert mine[taken].all()
        tenths = np.bincount(taken // 5_000, minlength=10)
        assert tenths.min() > 60, tenths  # of 100; five deviations are 47
