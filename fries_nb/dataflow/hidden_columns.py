"""The hidden columns of every batch, beside the user's.

>>> HIDDEN
('_fries_due', '_fries_transaction', '_fries_time')
"""

from __future__ import annotations

DUE = "_fries_due"
"""Hidden int64 column: the time at which the source tuple was due, in nanoseconds since the Unix epoch."""
TRANSACTION = "_fries_transaction"
"""Hidden int64 column, present under audit: the identity of the source tuple."""
TIME = "_fries_time"
"""Hidden column, present below a source with ``time=``: the row's own time. int64 for a column of integers; for one of
timestamps ``timestamp[ns]``, in the time zone of the column."""
HIDDEN = (DUE, TRANSACTION, TIME)
"""All hidden columns."""
