"""Training of the learned models: in seconds, once a machine, and reproducibly from the same payments.

Training replays those payments of ``payments_path`` that belong to every fifth customer (or terminal), all of them, so
that histories are complete; the next fifth is kept for evaluation. Frauds are less than one in a hundred: all of them
are used, and a sample of the honest payments.

Trained models are kept beside the payments in the user's cache directory, so a host unpickles them.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.workloads.cache import cache_directory, unwritable
from fries_nb.workloads.features import FRAUD, SECONDS, Payments, features, remember_payment
from fries_nb.workloads.models import AMOUNT
from fries_nb.workloads.payments import OTHERWISE, payments_path

SHARE = 5  # one key in so many is trained on
HONEST = 6_000
TREES = 100
SEED = 7

Floats = npt.NDArray[np.float64]
Score = Callable[[Sequence[float]], float]


class Learner(StrEnum):
    """The learning method: ``FOREST`` is expensive, ``LOGISTIC`` cheap."""

    FOREST = "forest"
    LOGISTIC = "logistic"


@dataclass(frozen=True)
class Learned:
    """A trained model and its quality.

    Attributes:
        learner: the learning method.
        estimator: the scikit-learn estimator; its probabilities are those of the resampled payments, hence scores only.
        auc: area under the ROC curve, on payments of customers (or terminals) that were not used for training.
    """

    learner: Learner
    estimator: Any
    auc: float

    def score(self) -> Score:
        """A function from the values of ``FEATURES`` to a score in 0..1, as fast as the model allows."""
        if self.learner is Learner.FOREST:
            return lambda row: float(self.estimator.predict_proba(np.array([row], dtype=np.float32))[0, 1])
        # One row is too little for numpy: the weights, brought to the scale of the features, are used as they are.
        scaler, regression = self.estimator.named_steps.values()
        weights = (regression.coef_[0] / scaler.scale_).tolist()
        bias = float(regression.intercept_[0] - (regression.coef_[0] * scaler.mean_ / scaler.scale_).sum())
        return lambda row: 0.5 + 0.5 * float(np.tanh((bias + sum(map(float.__mul__, weights, row))) / 2))


@cache
def _lock() -> threading.Lock:
    """Excludes the workers of one host from each other while one of them trains."""
    return threading.Lock()


def learned(learner: Learner, key: str, window: int) -> Learned:
    """The trained model for the newest ``window`` payments of each value of the column ``key``.

    It is unpickled if it was trained before, on this machine and these payments, and otherwise trained in a few
    seconds.

    Raises:
        FriesError: scikit-learn is not installed.
        SourceError: no payments to train on, see ``payments_path``; or the cache directory cannot be written.
    """
    with _lock():
        return _learned(learner, key, window, payments_path())


@cache
def _learned(learner: Learner, key: str, window: int, path: str) -> Learned:
    try:
        import sklearn
    except ModuleNotFoundError as error:
        raise fn.FriesError("the learned models need scikit-learn: pip install 'fries_nb[models]'") from error
    status = Path(path).stat()
    made_of = (path, status.st_size, status.st_mtime_ns, sklearn.__version__, HONEST, TREES, SEED, SHARE, *_sources())
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    place = cache_directory() / f"{learner}-{key}-{window}-{digest}.pickle"
    if place.exists():
        kept: Learned = pickle.loads(place.read_bytes())
        return kept
    model = train(learner, key, window, path)
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(pickle.dumps(model))
        aside.replace(place)
    except OSError as error:
        raise unwritable("models", place.parent, error, OTHERWISE) from None
    return model


def _sources() -> tuple[bytes, ...]:
    """The source code that determines training; a kept model is only used if it is unchanged."""
    return tuple(Path(__file__).with_name(name).read_bytes() for name in ("features.py", "training.py"))


def train(learner: Learner, key: str, window: int, path: str) -> Learned:
    """Train and evaluate a model on a file of payments; equal for equal arguments."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, frauds = _examples(path, key, window, fold=0)
    rng = np.random.default_rng(SEED)
    honest = rng.permutation(np.flatnonzero(frauds == 0))[:HONEST]
    chosen = np.sort(np.concatenate([np.flatnonzero(frauds), honest]))
    estimator = (
        RandomForestClassifier(TREES, min_samples_leaf=30, class_weight="balanced", random_state=SEED)
        if learner is Learner.FOREST
        else make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1_000))
    )
    estimator.fit(rows[chosen], frauds[chosen])
    others, their_frauds = _examples(path, key, window, fold=1)
    return Learned(learner, estimator, float(roc_auc_score(their_frauds, estimator.predict_proba(others)[:, 1])))


def _examples(path: str, key: str, window: int, fold: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Features and labels of the payments whose key has the remainder ``fold``, in order."""
    table = pq.read_table(path, columns=[key, AMOUNT, SECONDS, FRAUD])
    table = table.filter(pc.equal(pc.subtract(table[key], pc.multiply(pc.divide(table[key], SHARE), SHARE)), fold))
    states: dict[int, Payments] = {}
    rows = []
    for row in table.to_pylist():
        state = states.setdefault(row[key], [])
        remember_payment(state, row, window)
        rows.append(features(state))
    return np.array(rows), table[FRAUD].to_numpy().astype(np.int64)
