"""Gates of canaries: what is valid, what is done when, and the comparison that they are given."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fries_nb.changes.arm_comparison import ArmCounts, compared_arms, counts_of, sampled_rows
from fries_nb.changes.canary_gates import MOST_LOOKS, ArmsLook, CanaryStatus, GateDecision, GateProgress, checked_gates
from fries_nb.dataflow.arguments import Tuples
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.errors import PlanError
from fries_nb.operators.arms import SAMPLED_BYTES, Sample
from fries_nb.protocol.messages import ArmSeen, ArmsSeen, WorkerId
from fries_nb.running.canaries import _Following

SHARES = [0.05, 0.25, 1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"canary": None, "steps": SHARES}, "steps= is of a canary"),
        ({"canary": None, "tolerate": 1}, "tolerate= is of a canary"),
        ({"tolerate": -1}, "tolerate=-1"),
        ({"tolerate": True}, "tolerate=True"),
        ({"tolerate": 0.5}, "tolerate=0.5"),
        ({"steps": SHARES}, "expected every=fn.tuples"),
        ({"every": 5.0}, r"expected steps=\[0.05, 0.25, 1\]"),
        ({"promote_when": bool}, "got promote_when= of a canary"),
        ({"steps": SHARES, "every": 0}, "every=0"),
        ({"steps": SHARES, "every": 5, "promote_when": True}, "promote_when=True"),
        ({"steps": [], "every": 5}, "expected shares that rise"),
        ({"steps": "0.5", "every": 5}, "expected shares that rise"),
        ({"steps": [0.05, 0.05], "every": 5}, "expected shares that rise"),
        ({"steps": [0.05, 1.5], "every": 5}, "expected shares that rise"),
        ({"steps": [0.05, float("nan")], "every": 5}, "expected shares that rise"),
        ({"steps": [0.01, 1], "every": 5}, "begin with 0.05"),
    ],
)
def test_gates_that_make_no_sense_are_refused(given: dict[str, Any], words: str) -> None:
    """In one sentence that names what was given."""
    arguments = {"canary": 0.05, "steps": None, "every": None, "promote_when": None, "tolerate": 0} | given
    with pytest.raises(PlanError, match=words):
        checked_gates(**arguments)


def test_a_canary_without_gates_stays_where_it_is_unless_rows_fail() -> None:
    """It waits for the user, and once it is rolled back for nothing."""
    assert checked_gates(None, None, None, None, 0) is None
    gates = checked_gates(0.05, None, None, None, 1)
    assert gates is not None
    progress = GateProgress(gates, 0.05, 0)
    assert progress.judge(ArmCounts(10**6, 1), 10**6, dict) is None
    assert progress.words == ""
    assert progress.judge(ArmCounts(10**6, 2), 10**6, dict) == GateDecision(
        0.0, "2 rows have failed in the new version, and tolerate=1"
    )
    assert GateProgress(gates, 0.0, 0).words == ""


@pytest.mark.parametrize("steps", [None, SHARES])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_canary_that_is_over_waits_for_nothing(steps: list[float] | None, share: float) -> None:
    """Whatever steps it had."""
    gates = checked_gates(0.05, steps, None if steps is None else 5, None, 0)
    assert gates is not None
    progress = GateProgress(gates, share, 0)
    assert progress.judge(ArmCounts(10**6), 10**6, dict) is None
    assert progress.words == ""


def raising(_: Any) -> bool:
    """A gate whose labels are late."""
    raise ValueError("no labels yet")


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (None, GateDecision(0.25, "it has had 100 rows of the new version at 5%")),
        (lambda arms: arms["fine"], GateDecision(0.25, "promote_when has accepted")),
        (lambda arms: not arms["fine"], None),
        (lambda _: 1, GateDecision(0.0, "promote_when returned 1; expected True or False")),
        (lambda _: None, GateDecision(0.0, "promote_when returned None; expected True or False")),
        (raising, GateDecision(0.0, "promote_when raised ValueError: no labels yet")),
    ],
)
def test_a_gate_is_asked_after_so_many_rows(answer: Any, decision: GateDecision | None) -> None:
    """Whatever it answers or raises has a meaning."""
    gates = checked_gates(0.05, SHARES, Tuples(100), answer, 0)
    assert gates is not None
    progress = GateProgress(gates, 0.05, 0, taken=50)
    assert progress.judge(ArmCounts(149), 1, lambda: {"fine": True}) is None
    assert progress.judge(ArmCounts(150), 1, lambda: {"fine": True}) == decision


def test_a_gate_that_waits_for_seconds_or_for_rows_that_are_counted_anew() -> None:
    """Workers that were restored count from 0."""
    by_time = checked_gates(0.05, [1], 30, None, 0)
    by_rows = checked_gates(0.05, SHARES, Tuples(100), lambda _: False, 0)
    assert by_time is not None
    assert by_rows is not None
    assert by_time.shares == (0.05, 1.0)
    progress = GateProgress(by_time, 0.05, now_s=10)
    assert progress.judge(ArmCounts(), 39.9, dict) is None
    assert progress.words == "goes on to 100% after 30 s at 5%, 30 s so far"
    assert progress.judge(ArmCounts(), 40, dict) == GateDecision(1.0, "it has had 30 s at 5%")
    progress = GateProgress(by_rows, 0.25, 0, taken=1_000)
    progress.judge(ArmCounts(20), 0, dict)  # the hosts were restored
    assert progress.words.endswith("0 so far")
    progress.judge(ArmCounts(119), 0, dict)
    assert progress.words.endswith("99 so far")
    progress.judge(ArmCounts(120), 0, dict)
    assert progress.words.startswith("promote_when has not accepted; goes on to 100% after 100 further rows")


def arm(identities: range, failed: int = 0, most: int = 1_000, **columns: list[Any]) -> ArmSeen:
    """What a worker tells of an arm that has made rows with these identities."""
    sample = Sample(most)
    rows = {"n": list(identities)} | columns
    hidden = {TRANSACTION: list(identities), DUE: [0] * len(identities)}
    sample.add(pa.RecordBatch.from_pydict(rows | hidden), np.ones(len(identities)))
    return ArmSeen(len(identities), failed, (1_000,), pickle.dumps(sample.take()))


def test_counts_of_targets_are_of_rows_that_pass_all_of_them() -> None:
    """Failures add up, rows do not: the same rows come to each target; nor do times within one chain."""
    parts = [
        ArmsSeen(1, WorkerId("A", 0), "u", ArmSeen(9, 1, (4_000_000, 3_000_000)), ArmSeen(), "B"),
        ArmsSeen(1, WorkerId("A", 1), "u", ArmSeen(7, 0, (2_000_000,)), ArmSeen(), "B"),
        ArmsSeen(1, WorkerId("B", 0), "u", ArmSeen(15, 2, (1_000_000,)), ArmSeen(), "B"),
        ArmsSeen(1, WorkerId("C", 0), "u", ArmSeen(15, 0, (500_000,)), ArmSeen(), "C"),
    ]
    assert counts_of(parts, "old") == ArmCounts(16, 3, 3.5)
    assert counts_of(parts, "new") == ArmCounts(0, 0, None)


def test_samples_of_several_workers_are_one_sample() -> None:
    """A worker with few rows must not have more of its rows in the sample than one with many."""
    few, many = arm(range(500), most=1_000), arm(range(500, 20_500), most=1_000)
    parts = [ArmsSeen(1, WorkerId("A", n), "u", side, ArmSeen(), "A") for n, side in enumerate((few, many))]
    rows = sampled_rows(parts, ["A"])
    assert 950 <= (rows.n >= 500).sum() <= 1_000
    assert (rows.n < 500).sum() < 60  # 25 of 500 are expected, since 1,000 of 20,000 are kept of the other worker
    assert set(rows._arm) == {"old"}
    assert set(rows._latency_ms) == {1.0}


def test_a_sample_of_large_rows_is_small() -> None:
    """It has fewer rows instead."""
    sample = Sample()
    for start in range(0, 400, 10):
        large = pa.array(["x" * 100_000] * 10)
        places = pa.array(range(start, start + 10))
        sample.add(pa.RecordBatch.from_arrays([large, places, places], ["x", TRANSACTION, DUE]), np.zeros(10))
    taken = sample.take()
    assert 1 <= len(taken.hashes) < 40
    assert sum(batch.nbytes for batch in taken.rows) <= 2 * SAMPLED_BYTES


def test_a_comparison_by_a_column_that_some_rows_lack() -> None:
    """They are a group of their own."""
    parts = [ArmsSeen(1, WorkerId("A", 0), "u", arm(range(4), p=[1, 1, 2, None]), arm(range(2), p=[1, 2]), "A")]
    by = compared_arms(parts, ["A"], by="p")
    assert by["rows"].tolist() == [1, 0, 2, 1, 1, 1]
    assert [str(value) for value, _ in by.index] == ["nan", "nan", "1.0", "1.0", "2.0", "2.0"]
    with pytest.raises(PlanError, match="by='q': no sampled row has that column; they have n, p"):
        compared_arms(parts, ["A"], by="q")
    with pytest.raises(PlanError, match="has lists or structs"):
        compared_arms([ArmsSeen(1, WorkerId("A", 0), "u", arm(range(1), p=[[1]]), ArmSeen(), "A")], ["A"], by="p")
    with pytest.raises(PlanError, match="they have none"):
        compared_arms([], ["A"], by="q")


def test_hidden_columns_are_masked_where_a_comparison_is_shown() -> None:
    """Their figures, their values as groups, and the sampled rows; numbers of nulls are not."""
    parts = [ArmsSeen(1, WorkerId("A", 0), "u", arm(range(2), card=["4711", None]), arm(range(1), card=["4712"]), "A")]
    whole, by = (compared_arms(parts, ["A"], by, hide=["card"]) for by in (None, "card"))
    rows = sampled_rows(parts, ["A"], hide=["card"])
    for table in (whole, by, rows):
        assert not any(number in text for number in ("4711", "4712") for text in (repr(table), table._repr_html_()))
    assert whole["card top values"].new == "4712 100 %"
    assert set(rows.card.dropna()) == {"4711", "4712"}
    assert "0.5" in repr(whole["card nulls"])


def test_a_status_says_share_rows_and_what_it_waits_for() -> None:
    """In one line."""
    words = str(CanaryStatus(0.05, 0.0, ArmCounts(1_900), ArmCounts(100, 1), "goes on to 25% after 30 s at 5%"))
    assert "5% of the cohorts since" in words
    arms = "100 rows by the new version, 1 failed; 1,900 rows by the old version, 0 failed"
    assert words.endswith(f"{arms}; goes on to 25% after 30 s at 5%")
    assert "rolled back since" in str(CanaryStatus(0.0, 0.0, reason="1 row has failed"))


def test_of_a_long_canary_looks_are_kept_evenly() -> None:
    """From the first one on, and the last one in any case; never more than so many."""
    following, count = _Following(None, None, None, {}), 5 * MOST_LOOKS + 3  # type: ignore[arg-type]
    for at_s in range(count):
        following._keep(ArmsLook(at_s, ArmCounts(at_s), ArmCounts()), is_last=at_s == count - 1)
        assert len(following._looks) <= MOST_LOOKS
    kept = [look.at_s for look in following._looks]
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert {later - earlier for earlier, later in pairwise(kept[:-1])} == {following._step}
