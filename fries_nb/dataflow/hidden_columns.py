"""The hidden columns of every batch, beside the user's.

>>> HIDDEN
('_fries_due', '_fries_transaction')
"""
from __future__ import annotations

DUE = "_fries_due"
"""Hidden int64 column: the time at which the source tuple was due, in nanoseconds since the Unix epoch."""
TRANSACTION = "_fries_transaction"
"""Hidden int64 column, present under audit: the identity of the source tuple."""
HIDDEN = (DUE, TRANSACTION)
"""All hidden columns."""
