"""An inference operator whose model is a real network, or a wait in its place.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fries_nb.workloads.models import AMOUNT, deviation_score, refuse_bad, remember, wait

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
