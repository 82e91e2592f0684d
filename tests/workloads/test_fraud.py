"""The running example: its models, its state transformation, the combiner's alarm, and the plain reference."""

from __future__ import annotations

import math
import threading
import time

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.workloads.fraud import Combine, CustomerModel, MerchantModel, keep_five, pad_to_ten, replay_fraud
from fries_nb.workloads.scorer import deviation_score
from fries_nb.workloads.workflows import FraudDetector

AMOUNTS = st.lists(st.floats(0, 10_000), min_size=1, max_size=30)


def score_of_last(amounts: list[float], window: int) -> float:
    """The score by its definition: the logistic function of (newest - mean) / (mean + 1) over the last ``window``."""
    recent = amounts[-window:]
    mean = math.fsum(recent) / len(recent)
    return 1 / (1 + math.exp(-(amounts[-1] - mean) / (mean + 1)))


@pytest.mark.parametrize(
    ("model", "column", "window"),
    [
        (CustomerModel(), "p_c", 5),
        (MerchantModel(), "p_m5", 5),
        (MerchantModel(window=10), "p_m10", 10),
        (MerchantModel(window=10), "p_m5", 5),
        (FraudDetector(), "p", 10),
    ],
)
@given(amounts=AMOUNTS)
def test_a_model_scores_the_last_payments(model, column, window, amounts):
    """Each column is the score of the newest payment in its own window, whatever else the model keeps."""
    state = model.initial_state()
    for count, amount in enumerate(amounts, start=1):
        row = model.process({"TX_AMOUNT": amount}, state)
        assert row[column] == pytest.approx(score_of_last(amounts[:count], window), rel=1e-9, abs=1e-12)
    assert state == amounts[::-1][: model.window]


def test_columns_come_in_the_order_of_the_weights():
    """p_c, then p_m10, then p_m5 (ACCEPTANCE, "Running example"); untouched columns stay."""
    row = CustomerModel().process({"TX_AMOUNT": 1.0, "x": "y"}, [])
    assert list(row) == ["TX_AMOUNT", "x", "p_c"]
    assert list(MerchantModel().process(dict(row), [])) == ["TX_AMOUNT", "x", "p_c", "p_m5"]
    assert list(MerchantModel(window=10).process(dict(row), [])) == ["TX_AMOUNT", "x", "p_c", "p_m10", "p_m5"]


def test_pad_to_ten_keeps_five_and_adds_five_nulls():
    """The literal list of the acceptance page; fewer kept payments are padded to ten as well; no input is changed."""
    state = [5.0, 4.0, 3.0, 2.0, 1.0]
    assert pad_to_ten(state) == [5.0, 4.0, 3.0, 2.0, 1.0, None, None, None, None, None]
    assert state == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert pad_to_ten([1.0]) == [1.0] + [None] * 9
    assert pad_to_ten([]) == [None] * 10


@given(before=AMOUNTS, after=AMOUNTS)
def test_nulls_stand_for_older_payments(before, after):
    """On padded state the new model scores as if it had seen the five kept and all that came after, and no more."""
    old, new = MerchantModel(), MerchantModel(window=10)
    state = old.initial_state()
    for amount in before:
        old.process({"TX_AMOUNT": amount}, state)
    state = pad_to_ten(state)
    for count, amount in enumerate(after, start=1):
        row = new.process({"TX_AMOUNT": amount}, state)
        known = before[-5:] + after[:count]
        assert row["p_m10"] == pytest.approx(score_of_last(known, 10), rel=1e-9, abs=1e-12)
        assert row["p_m5"] == pytest.approx(score_of_last(known, 5), rel=1e-9, abs=1e-12)
        assert len(state) == 10
    assert keep_five(state) == (before[-5:] + after)[::-1][:5]


def test_combine_weighs_the_probabilities():
    """Old and new configuration, each on its own rows."""
    assert Combine([0.4, 0.6])({"p_c": 0.5, "p_m5": 1.0})["p"] == pytest.approx(0.8)
    row = {"p_c": 0.5, "p_m10": 0.25, "p_m5": 1.0}
    assert Combine([0.4, 0.4, 0.2])(row)["p"] == pytest.approx(0.5)
    assert list(row) == ["p_c", "p_m10", "p_m5", "p"]


@pytest.mark.parametrize(
    ("weights", "row", "said"),
    [
        ([0.4, 0.4, 0.2], {"p_c": 0.5, "p_m5": 0.5}, "got 2 probabilities (p_c, p_m5), expected 3"),
        ([0.4, 0.6], {"p_c": 0.5, "p_m10": 0.5, "p_m5": 0.5}, "got 3 probabilities (p_c, p_m10, p_m5), expected 2"),
        ([0.4, 0.4, 0.2], {"p_c": 0.5, "p_m10": None, "p_m5": 0.5}, "got 2 probabilities (p_c, p_m5), expected 3"),
    ],
)
def test_mixed_configurations_are_seen(weights, row, said):
    """The wrong number of probabilities raises; without ``strict`` the row goes on, and says so."""
    with pytest.raises(ValueError) as raised:
        Combine(weights)(dict(row))
    assert said in str(raised.value)
    assert Combine(weights, strict=False)(dict(row))["mismatch"] is True


def test_rows_that_fit_are_not_marked_as_mismatched():
    """Without ``strict`` every row has the column, so the schema does not depend on what went wrong."""
    assert Combine([0.4, 0.6], strict=False)({"p_c": 0.5, "p_m5": 0.5})["mismatch"] is False


def test_probabilities_are_weighed_in_their_own_order():
    """Not in that of the row's columns, which may change on the way; other columns are no probabilities."""
    row = {"p": 9.0, "p_m5": 1.0, "p_max": 9.0, "p_m10": 0.25, "p_m": 9.0, "p_c": 0.5}
    assert Combine([0.4, 0.4, 0.2])(row)["p"] == pytest.approx(0.5)
    named = Combine([0.4, 0.6], columns=["p_c", "p_m20"])
    assert named({"p_c": 0.5, "p_m20": 1.0, "p_m5": 0.0})["p"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CustomerModel(window=0), "1 or more"),
        (lambda: MerchantModel(window=2.5), "1 or more"),
        (lambda: FraudDetector(cost_ms=-1), "0 or more"),
        (lambda: Combine([]), "one weight"),
    ],
)
def test_a_bad_model_is_refused_when_made(make, said):
    """Before it runs anywhere."""
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    "model", [CustomerModel(cost_ms=1.0), MerchantModel(window=10), Combine([0.4, 0.6]), FraudDetector(), pad_to_ten]
)
def test_models_travel(model):
    """They go to hosts by pickle and arrive equal."""
    assert cloudpickle.loads(cloudpickle.dumps(model)) == model


@pytest.mark.parametrize(
    ("model", "call"),
    [
        (CustomerModel, lambda model: model.process({"TX_AMOUNT": 1.0}, [])),
        (MerchantModel, lambda model: model.process({"TX_AMOUNT": 1.0}, [])),
        (FraudDetector, lambda model: model.process({"TX_AMOUNT": 1.0}, [])),
        (lambda cost_ms: Combine([1.0], cost_ms=cost_ms), lambda model: model({"p_c": 1.0})),
    ],
)
def test_a_costly_model_waits(model, call, monkeypatch):
    """``cost_ms`` is waited for once a tuple, and nothing is waited for without it."""
    waited, here, sleep = [], threading.current_thread(), time.sleep

    def noted(seconds):  # threads that earlier tests have left may sleep, too
        waited.append(seconds) if threading.current_thread() is here else sleep(seconds)

    monkeypatch.setattr("time.sleep", noted)
    call(model(cost_ms=25))
    call(model(cost_ms=0))
    assert waited == [0.025]


def test_scores_are_probabilities_whatever_the_amounts():
    """Extreme, negative and repeated amounts do not overflow."""
    for amounts in ([1e308, -1e308], [-1e308, 1e300], [0.0], [-5.0, 5.0], [1e-300, None]):
        assert 0 <= deviation_score(amounts) <= 1


PAYMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0, 500)), max_size=40)


def rows_of(payments):
    """Rows of the reference, numbered in source order."""
    names = ("CUSTOMER_ID", "TERMINAL_ID", "TX_AMOUNT", "n")
    return [dict(zip(names, (*payment, number), strict=True)) for number, payment in enumerate(payments)]


@given(payments=PAYMENTS, switch=st.integers(0, 40))
def test_the_reference_by_its_definition(payments, switch):
    """Every value from the list of payments before it: what the old FM kept is at most five of a terminal."""
    rows = rows_of(payments)
    out = list(replay_fraud(iter(rows), lambda row: row["n"] >= switch))
    assert [{name: row[name] for name in rows[0]} for row in out] == rows if rows else out == []
    for row in out:
        earlier = rows[: row["n"] + 1]
        spent = [r["TX_AMOUNT"] for r in earlier if r["CUSTOMER_ID"] == row["CUSTOMER_ID"]]
        taken = [r for r in earlier if r["TERMINAL_ID"] == row["TERMINAL_ID"]]
        kept = [r["TX_AMOUNT"] for r in taken if r["n"] < switch][-5:] + [
            r["TX_AMOUNT"] for r in taken if r["n"] >= switch
        ]
        parts = [score_of_last(spent, 5), score_of_last([r["TX_AMOUNT"] for r in taken], 5)]
        if row["n"] >= switch:
            parts.insert(1, score_of_last(kept, 10))
        weights = [0.4, 0.4, 0.2] if row["n"] >= switch else [0.4, 0.6]
        assert ("p_m10" in row) == (row["n"] >= switch)
        assert row["p"] == pytest.approx(sum(w * p for w, p in zip(weights, parts, strict=True)), abs=1e-9)


def test_the_reference_switches_each_terminal_on_its_own():
    """Another terminal may still be old; the same one cannot go back."""
    rows = rows_of([(1, 1, 5.0), (1, 2, 5.0), (1, 1, 5.0), (1, 2, 5.0)])
    out = list(replay_fraud(rows, lambda row: row["TERMINAL_ID"] == 1))
    assert ["p_m10" in row for row in out] == [True, False, True, False]
    with pytest.raises(ValueError, match="terminal 1: the old FM cannot process"):
        list(replay_fraud(rows, lambda row: row["n"] < 2))
