"""The paper's running example (Fries, sections 2.1 and 2.2): customer model FC, merchant model FM, combiner MC.

FC keeps a customer's last 5 payments and adds ``p_c``; FM a merchant's last 5 and adds ``p_m5``; MC averages the two
with the weights [0.4, 0.6]. The change replaces FM and MC together: the new FM keeps 10 payments and adds ``p_m10`` and
``p_m5``, the new MC weighs three probabilities with [0.4, 0.4, 0.2]. An MC that receives a tuple of the other FM gets
the wrong number of probabilities, which makes an inconsistent schedule visible.

The state of FC and FM is the plain list of recent amounts, **newest first**. Older payments are at the end, and the
nulls that ``pad_to_ten`` appends represent unknown payments older than those kept; they leave the window first.

>>> state = [5.0, 4.0, 3.0, 2.0, 1.0]
>>> padded = pad_to_ten(state)
>>> padded
[5.0, 4.0, 3.0, 2.0, 1.0, None, None, None, None, None]
>>> row = MerchantModel(window=10).process({"TX_AMOUNT": 6.0}, padded)
>>> list(row), padded
(['TX_AMOUNT', 'p_m10', 'p_m5'], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, None, None, None, None])

The running example in plain Python, without the runtime: the expected output of a run that was changed.

The output of a run shows for each tuple whether the new configuration processed it (by the column ``p_m10``). The
reference takes that as given, and computes every value that the row must then have.

>>> rows = [{"CUSTOMER_ID": 1, "TERMINAL_ID": 2, "TX_AMOUNT": 10.0, "n": n} for n in range(3)]
>>> [[name for name in row if name.startswith("p")] for row in replay_fraud(rows, lambda row: row["n"] > 1)]
[['p_c', 'p_m5', 'p'], ['p_c', 'p_m5', 'p'], ['p_c', 'p_m10', 'p_m5', 'p']]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER, TERMINAL, deviation_score, refuse_bad, remember, wait

Row = dict[str, Any]
Amounts = list[float | None]

SHORT = 5  # every merchant model scores the newest five
LONG = 10
OLD_WEIGHTS = (0.4, 0.6)
NEW_WEIGHTS = (0.4, 0.4, 0.2)
PROBABILITIES = ("p_c", f"p_m{LONG}", f"p_m{SHORT}")  # in the order of the weights


@dataclass(frozen=True)
class CustomerModel:
    """Keeps a customer's last ``window`` amounts and adds the column ``p_c``, their score; keyed by CUSTOMER_ID.

    ``cost_ms`` is the time in milliseconds for which it waits on each tuple. Raises ValueError for an invalid window or
    cost.
    """

    window: int = SHORT
    cost_ms: float = 0.0

    def __post_init__(self) -> None:
        refuse_bad("CustomerModel", self.window, self.cost_ms)

    def initial_state(self) -> Amounts:
        """An empty list."""
        return []

    def process(self, row: Row, state: Amounts) -> Row:
        """Add the payment to the state, and score it."""
        wait(self.cost_ms)
        remember(state, row[AMOUNT], self.window)
        row["p_c"] = deviation_score(state)
        return row


@dataclass(frozen=True)
class MerchantModel:
    """Keeps a terminal's last ``window`` amounts and adds ``p_m<window>``, their score; keyed by TERMINAL_ID.

    With a window above 5 it also adds ``p_m5``, the score of the newest five. ``cost_ms`` is the time in milliseconds
    for which it waits on each tuple. Raises ValueError for an invalid window or cost.
    """

    window: int = SHORT
    cost_ms: float = 0.0

    def __post_init__(self) -> None:
        refuse_bad("MerchantModel", self.window, self.cost_ms)

    def initial_state(self) -> Amounts:
        """An empty list."""
        return []

    def process(self, row: Row, state: Amounts) -> Row:
        """Add the payment to the state, and score it in each window, longest first."""
        wait(self.cost_ms)
        remember(state, row[AMOUNT], self.window)
        row[f"p_m{self.window}"] = deviation_score(state)
        if self.window > SHORT:
            row[f"p_m{SHORT}"] = deviation_score(state[:SHORT])
        return row


@dataclass(frozen=True)
class Combine:
    """Adds the column ``p``, the weighted sum of a row's probabilities.

    A row whose number of probabilities differs from that of the weights raises ValueError. With ``strict=False`` it
    passes with an incorrect sum, as in the paper, and the column ``mismatch`` marks such rows. ``cost_ms`` is the time
    in milliseconds for which it waits on each tuple; ``columns`` are the columns that may hold a probability, in the
    order of the weights. They are named explicitly, since iterating over a row's names would convert all of its
    columns.
    """

    weights: Sequence[float]
    cost_ms: float = 0.0
    strict: bool = True
    columns: Sequence[str] = PROBABILITIES

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("Combine(weights=[]): expected one weight for each probability")
        refuse_bad("Combine", 1, self.cost_ms)
        object.__setattr__(self, "weights", tuple(self.weights))

    def __call__(self, row: Row) -> Row:
        """Combine the probabilities of one row."""
        wait(self.cost_ms)
        names = [name for name in self.columns if name in row and row[name] is not None]
        fits = len(names) == len(self.weights)
        if self.strict and not fits:
            raise ValueError(
                f"got {len(names)} probabilities ({', '.join(names)}), expected {len(self.weights)}, one for each of "
                f"the weights {list(self.weights)}; FM processed this row in another configuration"
            )
        row["p"] = sum(weight * row[name] for weight, name in zip(self.weights, names, strict=False))
        if not self.strict:
            row["mismatch"] = not fits
        return row


def pad_to_ten(state: Amounts) -> Amounts:
    """The state transformation of the change: the known payments, padded with nulls to ten."""
    return state + [None] * (LONG - len(state))


def keep_five(state: Amounts) -> Amounts:
    """The inverse transformation: the five newest payments, without unknown ones."""
    return [amount for amount in state[:SHORT] if amount is not None]


def fraud_flow(
    source: Any, sink: Any, workers: int | None = None, cost_ms: float = 0.0, strict: bool = True
) -> fn.Dataflow:
    """The dataflow payments -> FC -> FM -> MC -> scored, in its old configuration.

    Args:
        source: description of the source, such as ``fn.replay(path, rate=1_000)``; its rows have the columns
            CUSTOMER_ID, TERMINAL_ID and TX_AMOUNT.
        sink: description of the sink, such as ``fn.memory()``.
        workers: parallel instances of each of FC, FM and MC; the run's default if None.
        cost_ms: milliseconds for which FC and FM wait on each tuple.
        strict: if true MC raises on a row of mixed configurations, else it adds the column ``mismatch``.
    """
    flow = fn.Dataflow("fraud")
    stream = flow.source("payments", source)
    stream = stream.map("FC", CustomerModel(cost_ms=cost_ms), key=CUSTOMER, workers=workers)
    stream = stream.map("FM", MerchantModel(cost_ms=cost_ms), key=TERMINAL, workers=workers)
    stream = stream.map("MC", Combine(OLD_WEIGHTS, strict=strict), workers=workers)
    stream.sink("scored", sink)
    return flow


def fraud_change(cost_ms: float = 0.0, strict: bool = True) -> dict[str, Any]:
    """The change of the running example for ``run.reconfigure``; it can be rolled back."""
    merchant = MerchantModel(window=LONG, cost_ms=cost_ms)
    return {
        "FM": fn.Update(merchant, state=pad_to_ten, back=keep_five),
        "MC": Combine(NEW_WEIGHTS, strict=strict),
    }


def replay_fraud(rows: Iterable[Row], switched: Callable[[Row], bool]) -> Iterator[Row]:
    """Process payments by FC, FM and MC one by one, with FM and MC changed as ``switched`` says.

    Args:
        rows: payments; those of one customer, and those of one terminal, in the order in which they were processed.
            They are not modified.
        switched: whether the new FM and MC process this payment. A terminal's state is transformed when the first such
            payment touches it; a terminal first seen after the change starts in the new configuration.

    Yields each payment with ``p_c``, ``p_m5`` or ``p_m10`` and ``p_m5``, and ``p``.

    Raises:
        ValueError: the old FM gets a payment after the new one got another of the same terminal.
    """
    customers: dict[Any, Amounts] = {}
    old, new = _Merchants(MerchantModel()), _Merchants(MerchantModel(window=LONG))
    combine = {False: Combine(OLD_WEIGHTS), True: Combine(NEW_WEIGHTS)}
    model = CustomerModel()
    for row in rows:
        is_new, terminal = bool(switched(row)), row[TERMINAL]
        if is_new and terminal in old.states:
            new.states[terminal] = pad_to_ten(old.states.pop(terminal))
        elif not is_new and terminal in new.states:
            raise ValueError(f"terminal {terminal!r}: the old FM cannot process {row!r} after the new FM had its state")
        scored = model.process(dict(row), customers.setdefault(row[CUSTOMER], model.initial_state()))
        yield combine[is_new]((new if is_new else old).process(scored))


class _Merchants:
    """One configuration of FM, with the state of each of its terminals."""

    def __init__(self, model: MerchantModel) -> None:
        self.model = model
        self.states: dict[Any, Amounts] = {}

    def process(self, row: Row) -> Row:
        return self.model.process(row, self.states.setdefault(row[TERMINAL], self.model.initial_state()))
