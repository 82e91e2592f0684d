"""The models of the workloads: a cheap score over recent amounts, a network, and a wait in place of an expensive one.

The paper's model is an LSTM auto-encoder (Fries, section 8.1): it reconstructs the last payments of a key, and the
reconstruction error shows unusual ones. ``Network`` is a small one in numpy: a recurrent layer reads the amounts one by
one, and a linear layer, fitted to synthetic customers, reconstructs them. Its cost grows with the number of amounts and
with its width. ``Waits`` uses no processor, so that queues of a cluster with 40 cores can be reproduced on two.

>>> network = Network(width=48)
>>> network.open(window=10)
>>> usual, unusual = [50.0, 47, 52, 49, 51, 50, 48, 50, 53, 50], [900.0, 47, 52, 49, 51, 50, 48, 50, 53, 50]
>>> 0 <= network.score(usual) < network.score(unusual) <= 1
True
>>> inference, state = Inference(Waits(0.0), window=3), []
>>> [round(inference.process({"TX_AMOUNT": amount}, state)["p"], 2) for amount in (10.0, 10.0, 100.0, 10.0)], state
([0.5, 0.5, 0.81, 0.32], [10.0, 100.0, 10.0])
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

AMOUNT = "TX_AMOUNT"
CUSTOMER = "CUSTOMER_ID"
TERMINAL = "TERMINAL_ID"


def remember(amounts: list[float | None], newest: float, window: int) -> None:
    """Insert the newest amount in front, and drop amounts beyond the window.

    >>> kept = [30.0, 20.0, 10.0]
    >>> remember(kept, 40.0, window=3)
    >>> kept
    [40.0, 30.0, 20.0]
    """
    amounts.insert(0, newest)
    del amounts[window:]


def deviation_score(amounts: Sequence[float | None]) -> float:
    """How unusual the first of these amounts is: 0.5 if it equals their mean, approaching 1 far above it.

    The logistic function of the deviation, in units of the mean's size plus one; ``None`` is an unknown amount.

    >>> deviation_score([10.0, 10.0, None])
    0.5
    >>> round(deviation_score([100.0, 10.0, 10.0, None, None]), 3)
    0.812
    """
    known = [amount for amount in amounts if amount is not None]
    mean = math.fsum(known) / len(known)
    # The logistic function by way of tanh, which cannot overflow.
    return 0.5 + 0.5 * math.tanh((known[0] - mean) / (abs(mean) + 1) / 2)


def wait(cost_ms: float) -> None:
    """Wait as long as an expensive model would take, without a processor, so that many models can share few cores."""
    if cost_ms:
        time.sleep(cost_ms / 1000)


def refuse_bad(model: str, window: int, cost_ms: float) -> None:
    """Check a window, a whole number of at least 1, and a cost, which must not be negative.

    Raises:
        ValueError: one is invalid.
    """
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ValueError(f"{model}(window={window!r}): expected a whole number of payments, 1 or more")
    if not cost_ms >= 0:
        raise ValueError(f"{model}(cost_ms={cost_ms!r}): expected milliseconds, 0 or more")


Row = dict[str, Any]
Amounts = list[float | None]
Floats = npt.NDArray[np.float64]

SEED = 11
CUSTOMERS = 600
"""Number of synthetic customers to whose payments the network is fitted."""
PENALTY = 1e-2
UNKNOWN = 0.0


class Scorer(Protocol):
    """Scores how unusual the first of some amounts is, from 0 to 1."""

    def open(self, window: int) -> None:
        """Prepare for this number of amounts."""

    def score(self, amounts: Sequence[float | None]) -> float:
        """The score of the first amount, given those behind it; ``None`` is an unknown amount."""


@dataclass(frozen=True)
class Waits:
    """The score of ``deviation_score`` after a wait of ``cost_ms`` milliseconds, which uses no processor.

    Raises:
        ValueError: the cost is negative.
    """

    cost_ms: float

    def __post_init__(self) -> None:
        refuse_bad("Waits", 1, self.cost_ms)

    def open(self, window: int) -> None:
        """Does nothing."""

    def score(self, amounts: Sequence[float | None]) -> float:
        """Wait, then score."""
        wait(self.cost_ms)
        return deviation_score(amounts)


@dataclass(frozen=True)
class _Layers:
    """The layers of a fitted network: for an amount, for the memory, and for the reconstruction."""

    inward: Floats
    around: Floats
    outward: Floats


@cache
def _fitted(width: int, window: int) -> _Layers:
    """The layers of a network: two drawn from a seed, the outward one by ridge regression; computed once a process."""
    rng = np.random.default_rng([SEED, width, window])
    inward = rng.normal(0, 0.5, width)
    # A spectral radius of about 0.9, so that the layer forgets, and remembers for about a window.
    around = rng.normal(0, 0.9 / np.sqrt(width), (width, width))
    mean = rng.uniform(5, 100, (CUSTOMERS, 1))
    amounts = np.abs(rng.normal(mean, mean / 2, (CUSTOMERS, window)))
    scaled = amounts / amounts.mean(axis=1, keepdims=True)
    coded = np.zeros((CUSTOMERS, width))
    for step in range(window - 1, -1, -1):
        coded = np.tanh(np.outer(scaled[:, step], inward) + coded @ around.T)
    gram = coded.T @ coded + PENALTY * np.eye(width)
    return _Layers(inward, around, np.linalg.solve(gram, coded.T @ scaled).T)


@dataclass
class Network:
    """A recurrent auto-encoder; the score is the reconstruction error of the newest amount.

    Networks of equal width and window are equal. Amounts are in units of their mean.

    Raises:
        ValueError: the width is not a whole number of at least 1.
    """

    width: int = 48
    _window: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or isinstance(self.width, bool) or self.width < 1:
            raise ValueError(f"Network(width={self.width!r}): expected a whole number of units, 1 or more")

    def open(self, window: int) -> None:
        """Fit the network, unless this process has done so before."""
        self._window = window
        _fitted(self.width, window)

    def score(self, amounts: Sequence[float | None]) -> float:
        """0 if the newest amount is reconstructed exactly, approaching 1 with the error."""
        layers = _fitted(self.width, self._window)
        known = [UNKNOWN if amount is None else amount for amount in amounts[: self._window]]
        scaled = np.zeros(self._window)
        scaled[: len(known)] = known
        scaled /= sum(known) / len(known) + 1e-9
        coded = np.zeros(self.width)
        for amount in scaled[::-1]:
            coded = np.tanh(amount * layers.inward + layers.around @ coded)
        return float(np.tanh(abs(layers.outward[0] @ coded - scaled[0])))


@dataclass(frozen=True)
class Inference:
    """Keeps the ``window`` most recent amounts of a key, newest first, and adds their score in ``column``.

    Raises ValueError for an invalid window.
    """

    scorer: Scorer
    window: int = 10
    column: str = "p"

    def __post_init__(self) -> None:
        refuse_bad("Inference", self.window, 0.0)

    def open(self) -> None:
        """Prepare the model."""
        self.scorer.open(self.window)

    def initial_state(self) -> Amounts:
        """An empty list."""
        return []

    def process(self, row: Row, state: Amounts) -> Row:
        """Add the payment to the state, and score it."""
        remember(state, row[AMOUNT], self.window)
        row[self.column] = self.scorer.score(state)
        return row
