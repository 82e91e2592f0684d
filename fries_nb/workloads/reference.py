"""The running example in plain Python, without the runtime: the expected output of a run that was changed.

The output of a run shows for each tuple whether the new configuration processed it (by the column ``p_m10``). The
reference takes that as given, and computes every value that the row must then have.

>>> rows = [{"CUSTOMER_ID": 1, "TERMINAL_ID": 2, "TX_AMOUNT": 10.0, "n": n} for n in range(3)]
>>> [[name for name in row if name.startswith("p")] for row in replay_fraud(rows, lambda row: row["n"] > 1)]
[['p_c', 'p_m5', 'p'], ['p_c', 'p_m5', 'p'], ['p_c', 'p_m10', 'p_m5', 'p']]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fries_nb.workloads.fraud import (
    LONG,
    NEW_WEIGHTS,
    OLD_WEIGHTS,
    Amounts,
    Combine,
    CustomerModel,
    MerchantModel,
    Row,
    pad_to_ten,
)
from fries_nb.workloads.models import CUSTOMER, TERMINAL


def replay_fraud(rows: Iterable[Row], switched: Callable[[Row], bool]) -> Iterator[Row]:
    """Process payments by FC, FM and MC one by one, with FM and MC changed as ``switched`` says.

    Args:
        rows: payments; those of one customer, and those of one terminal, in the order in which they were processed.
            They are not modified.
        switched: whether the new FM and MC process this payment. A terminal's state is transformed when the first such
            payment touches it; a terminal first seen after the change starts in the new configuration.

    Yields:
        Each payment with ``p_c``, ``p_m5`` or ``p_m10`` and ``p_m5``, and ``p``.

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
