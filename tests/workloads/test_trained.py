"""The learned models: what they look at, how good they are, and that they stand in for the models of the example."""

from __future__ import annotations

import builtins

import cloudpickle
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.errors import FriesError
from fries_nb.workloads import trained
from fries_nb.workloads.fraud import Combine, pad_to_ten
from fries_nb.workloads.payments import payments, payments_path
from fries_nb.workloads.trained import (
    FEATURES,
    ForestMerchant,
    Learner,
    LogisticCustomer,
    LogisticMerchant,
    features,
    lighter_change,
    remember_payment,
    train,
)

DAY = 86_400
PAYMENT = st.tuples(st.floats(0, 5_000), st.integers(0, 30 * DAY), st.integers(0, 1))


def row(amount: float = 10.0, day: float = 0, fraud: int = 0) -> dict[str, float]:
    """A payment as it arrives."""
    return {"TX_AMOUNT": amount, "TX_TIME_SECONDS": int(day * DAY), "TX_FRAUD": fraud}


@pytest.fixture(scope="module")
def models():
    """Each kind of model, opened."""
    made = [ForestMerchant(), LogisticMerchant(), LogisticMerchant(window=10), LogisticCustomer()]
    for model in made:
        model.open()
    return made


@given(state=st.lists(st.none() | PAYMENT, max_size=12), newest=PAYMENT)
def test_features_know_nothing_of_what_is_not_known_yet(state, newest):
    """Neither the label of the payment itself nor those of the last day count; unknown payments are as none at all."""
    found = features([newest, *state])
    assert len(found) == len(FEATURES)
    assert np.isfinite(found).all()
    amount, now, fraud = newest
    assert features([(amount, now, 1 - fraud), *state]) == found
    hidden = [kept and (*kept[:2], 1 - kept[2] if now - kept[1] < DAY else kept[2]) for kept in state]
    assert features([newest, *hidden]) == found
    assert features([newest, *filter(None, state)]) == found


def test_a_fraud_of_yesterday_counts():
    """What is a day old has been noticed."""
    state = []
    for day, fraud in ((0, 1), (0.5, 0), (1, 0)):
        remember_payment(state, row(day=day, fraud=fraud), window=5)
    assert dict(zip(FEATURES, features(state), strict=True))["frauds"] == 1


@pytest.mark.parametrize("learner", Learner)
@pytest.mark.parametrize(("key", "window"), [("TERMINAL_ID", 5), ("TERMINAL_ID", 10)])
def test_the_models_find_frauds(learner, key, window):
    """On payments of terminals never seen in training, far better than chance."""
    assert trained.learned(learner, key, window).auc > 0.7


@pytest.mark.parametrize("learner", Learner)
def test_training_is_determined_by_the_payments(learner, tmp_path):
    """The same file gives the same model, and the quick way to its score the score of scikit-learn."""
    path = str(tmp_path / "payments.parquet")
    pq.write_table(payments(30_000, seed=1), path)
    one, other = (train(learner, "TERMINAL_ID", 5, path) for _ in range(2))
    sample = np.random.default_rng(0).uniform(0, 50, (20, len(FEATURES)))
    assert one.auc == other.auc
    assert (one.estimator.predict_proba(sample) == other.estimator.predict_proba(sample)).all()
    quick = [one.score()(line) for line in sample.tolist()]
    assert quick == pytest.approx(one.estimator.predict_proba(sample)[:, 1], rel=1e-6, abs=1e-12)


def test_what_was_trained_is_kept(monkeypatch, tmp_path):
    """A second process unpickles; other payments are another model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    pq.write_table(payments(20_000, seed=1), first)
    pq.write_table(payments(20_000, seed=2), second)
    calls = []
    monkeypatch.setattr(trained, "train", lambda *args: calls.append(args) or train(*args))
    for path in (first, first, second):
        trained._learned.cache_clear()
        trained._learned(Learner.LOGISTIC, "TERMINAL_ID", 5, str(path))
    trained._learned.cache_clear()
    assert [args[3] for args in calls] == [str(first), str(second)]


def test_each_adds_its_columns_and_remembers(models):
    """The columns of the running example, scores in 0..1, and the state newest first."""
    added = [["p_m5"], ["p_m5"], ["p_m10", "p_m5"], ["p_c"]]
    for model, names in zip(models, added, strict=True):
        state = model.initial_state()
        for day in range(12):
            out = model.process(row(amount=day, day=day), state)
        assert [name for name in out if name.startswith("p")] == names
        assert all(0 <= out[name] <= 1 for name in names)
        assert [payment[0] for payment in state] == [11.0 - n for n in range(model.window)]


def test_the_light_model_takes_over_the_state_of_the_expensive_one(models):
    """After the transformation it scores the payments that both have seen, and MC finds its three probabilities."""
    forest, _, light, customer = models
    state, scored = forest.initial_state(), row(day=9)
    for day in range(8):
        forest.process(row(amount=10 + day, day=day), state)
    state = pad_to_ten(state)
    customer.process(scored, customer.initial_state())
    light.process(scored, state)
    assert state == [(10.0, 9 * DAY, 0), *((10.0 + day, day * DAY, 0) for day in (7, 6, 5, 4, 3)), *[None] * 4]
    assert 0 <= Combine([0.4, 0.4, 0.2])(scored)["p"] <= 1


def test_they_travel_without_their_models():
    """A change carries a few hundred bytes; hosts load the model themselves."""
    for model in (ForestMerchant(), LogisticMerchant(window=10), LogisticCustomer()):
        assert cloudpickle.loads(cloudpickle.dumps(model)) == model
    assert ForestMerchant() != LogisticMerchant()
    assert set(lighter_change()) == {"FM", "MC"}
    with pytest.raises(ValueError, match="1 or more"):
        ForestMerchant(window=0)


def test_without_scikit_learn_it_is_said_what_to_install(monkeypatch):
    """In one sentence, where the model is opened."""
    there = builtins.__import__

    def missing(name, *args, **named):
        if name.startswith("sklearn"):
            raise ModuleNotFoundError(name)
        return there(name, *args, **named)

    trained._learned.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(FriesError, match=r"need scikit-learn: pip install 'fries_nb\[models\]'"):
        trained._learned(Learner.LOGISTIC, "TERMINAL_ID", 5, payments_path())
