"""The running example with trained models: a random forest, and the logistic regression that replaces it.

``ForestMerchant`` evaluates a hundred trees for every payment, ``LogisticMerchant`` sums eight products; both are about
as good (``training.learned(...).auc``: 0.91 and 0.92 on the public payments). With its state, a payment costs the
forest some 1,200 times what it costs the regression: 5.9 ms against 5 microseconds on one core of a small machine. They
keep the same state and add the same column, so either can replace the other while the dataflow runs; with ``window=10``
the cheap one provides the running example's three probabilities (``lighter_change``).

Models are trained, or unpickled if they were trained before, by ``open()``, off the data path; ``process`` only scores.
There is no vectorised variant, since a payment is compared with the state of its own key, one payment at a time.

The features of the learned models: eight numbers about the recent payments of a customer or a terminal.

The state of a key is a list of payments, **newest first** as everywhere in the running example; ``None`` is an unknown
payment. So ``pad_to_ten`` and ``keep_five`` transform it like the plain list of amounts. Training replays past payments
through the same functions, so models see the same features in a running dataflow as in training.

The label of a payment is only used once it is a day old, the time that card holders need to notice a fraud. (The Fraud
Detection Handbook, chapter 3, waits for a week, which requires a longer memory than ten payments.)

>>> state = []
>>> for amount, day, fraud in ((10.0, 0, 0), (200.0, 1, 1), (30.0, 3, 0)):
...     row = {"TX_AMOUNT": amount, "TX_TIME_SECONDS": day * 86_400, "TX_FRAUD": fraud}
...     remember_payment(state, row, window=5)
>>> dict(zip(FEATURES, features(state), strict=True))
{'amount': 30.0, 'of the mean': 0.292..., 'above the mean': -75.0, 'of the highest': 0.154..., 'earlier': 2.0,
 'hours since': 48.0, 'frauds': 1.0, 'share of frauds': 0.5}

Training of the learned models: in seconds, once a machine, and reproducibly from the same payments.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.workloads.fraud import LONG, NEW_WEIGHTS, SHORT, Combine, keep_five, pad_to_ten
from fries_nb.workloads.payments import DAY_S, OTHERWISE, cache_directory, payments_path, unwritable
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER, TERMINAL, refuse_bad

SECONDS = "TX_TIME_SECONDS"
FRAUD = "TX_FRAUD"
FEATURES = (
    "amount", "of the mean", "above the mean", "of the highest", "earlier", "hours since", "frauds", "share of frauds",
)  # fmt: skip
LONG_AGO_H = 48.0
NOTICED_S = DAY_S

Payment = tuple[float, int, int]
"""TX_AMOUNT, TX_TIME_SECONDS, TX_FRAUD."""
Payments = list[Payment | None]


def remember_payment(state: Payments, row: Mapping[str, Any], window: int) -> None:
    """Insert the row's payment in front, and drop payments beyond the window."""
    state.insert(0, (row[AMOUNT], row[SECONDS], row[FRAUD]))
    del state[window:]


def features(state: Sequence[Payment | None]) -> list[float]:
    """The values of ``FEATURES`` for the first payment, given those behind it; its own TX_FRAUD is not used."""
    newest, *older = (payment for payment in state if payment is not None)
    amount, now, _ = newest
    if not older:
        return [amount, 1.0, 0.0, 1.0, 0.0, LONG_AGO_H, 0.0, 0.0]
    spent = [payment[0] for payment in older]
    mean = sum(spent) / len(spent)
    known = [payment[2] for payment in older if now - payment[1] >= NOTICED_S]
    frauds = float(sum(known))
    return [
        amount,
        (amount + 1) / (mean + 1),
        amount - mean,
        (amount + 1) / (max(spent) + 1),
        float(len(older)),
        min(LONG_AGO_H, max(0, now - older[0][1]) / 3600),
        frauds,
        frauds / len(known) if known else 0.0,
    ]


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
        estimator: the scikit-learn estimator; its probabilities are those of the resampled payments, hence scores
            only.
    """

    learner: Learner  # the learning method
    estimator: Any
    auc: float  # area under the ROC curve, on payments of customers (or terminals) that were not used for training

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
    made_of = (path, status.st_size, status.st_mtime_ns, sklearn.__version__, HONEST, TREES, SEED, SHARE, _source())
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


def _source() -> bytes:
    """The source code that determines training; a kept model is only used if it is unchanged."""
    return Path(__file__).read_bytes()


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


Row = dict[str, Any]


@dataclass
class _Scoring:
    """Keeps the last ``window`` payments of a key, newest first, and scores the newest in each of its windows."""

    learner: ClassVar[Learner]
    key: ClassVar[str]
    column: ClassVar[str]

    window: int = SHORT
    _scores: dict[int, Score] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_bad(type(self).__name__, self.window, 0.0)

    def initial_state(self) -> Payments:
        """An empty list."""
        return []

    def open(self) -> None:
        """Load a model for each window, or train it: some three seconds for a forest, one for a regression."""
        self._scores = {window: learned(self.learner, self.key, window).score() for window in self.windows()}

    def windows(self) -> tuple[int, ...]:
        """The lengths of the scored windows, longest first."""
        return (self.window,)

    def process(self, row: Row, state: Payments) -> Row:
        """Add the payment to the state, and add the score of each window to the row."""
        remember_payment(state, row, self.window)
        for window, score in self._scores.items():
            row[self.column.format(window)] = score(features(state[:window]))
        return row


@dataclass
class _Merchant(_Scoring):
    """Scores a terminal's payments in its own window and, if that is longer, in the newest five as well."""

    key: ClassVar[str] = TERMINAL
    column: ClassVar[str] = "p_m{}"

    def windows(self) -> tuple[int, ...]:
        """The lengths of the scored windows, longest first."""
        return (self.window, SHORT) if self.window > SHORT else (self.window,)


class ForestMerchant(_Merchant):
    """Adds ``p_m<window>``, and ``p_m5`` with a window above 5, by random forests (expensive); keyed by TERMINAL_ID.

    Raises ValueError for an invalid window; ``open`` raises what ``training.learned`` raises.
    """

    learner = Learner.FOREST


class LogisticMerchant(_Merchant):
    """Adds ``p_m<window>``, and ``p_m5`` with a window above 5, by logistic regression (cheap); keyed by TERMINAL_ID.

    Raises ValueError for an invalid window; ``open`` raises what ``training.learned`` raises.
    """

    learner = Learner.LOGISTIC


class LogisticCustomer(_Scoring):
    """Adds ``p_c``, a customer's score, by logistic regression (cheap); keyed by CUSTOMER_ID.

    Raises ValueError for an invalid window; ``open`` raises what ``training.learned`` raises.
    """

    learner = Learner.LOGISTIC
    key = CUSTOMER
    column = "p_c"


def lighter_change(strict: bool = True) -> dict[str, Any]:
    """The change from the expensive FM to the cheap one over ten payments, with an MC of three weights."""
    return {
        "FM": fn.Update(LogisticMerchant(window=LONG), state=pad_to_ten, back=keep_five),
        "MC": Combine(NEW_WEIGHTS, strict=strict),
    }
