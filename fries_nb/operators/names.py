"""Names that the columns of an operator's output may have.

>>> check_names(("A", "b"), came=())
>>> check_names(("A", "a"), came=())
Traceback (most recent call last):
ValueError: Spark does not tell the columns 'A' and 'a' apart; rename one
"""

from __future__ import annotations

from functools import lru_cache

from fries_nb.dataflow.columns import alike
from fries_nb.messages import HIDDEN


@lru_cache(maxsize=256)
def check_names(names: tuple[str, ...], came: tuple[str, ...]) -> None:
    """See that these columns can be told apart, by a row and by Spark, and none is for the runtime's own use.

    Names that differ in the case of their letters only are let pass if some of those that ``came`` in do, too.

    Raises:
        ValueError: they cannot; names the columns.
    """
    if taken := [name for name in names if name in HIDDEN]:
        raise ValueError(f"the column name {taken[0]!r} is for the runtime's own use")
    first, second = alike(names) or ("", "")
    if first and first == second:
        raise ValueError(f"it has the column {first!r} more than once")
    if first and not alike(came):
        raise ValueError(f"Spark does not tell the columns {first!r} and {second!r} apart; rename one")
