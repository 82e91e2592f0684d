"""A DataFrame that says more than its values where it is shown, and less.

It is a pandas DataFrame with all values, and so are the tables that are made of it. Shown, by ``print`` or a notebook,
it has a line below the table for what a tap has seen. It is imported only where a table is made, since pandas takes
longer to import than all of fries_nb's own modules.

>>> table = ShownTable({"amount": [7]})
>>> table.attrs |= {"rows_seen": 1200, "rows_dropped": 1100}
>>> print(table)
   amount
0       7
1,200 rows have passed, of which 1,100 were not tried: the time of taps is limited, and chains keep few rows
>>> "1,200 rows have passed" in table._repr_html_(), type(table[["amount"]]).__name__
(True, 'ShownTable')
"""

from __future__ import annotations

from html import escape
from typing import Any

from pandas import DataFrame

SEEN, DROPPED = "rows_seen", "rows_dropped"
"""What ``attrs`` has of a tap: the number of rows that have passed, and of those that were not tried."""


class ShownTable(DataFrame):  # type: ignore[misc]  # pandas has no types
    """A DataFrame that says what its ``attrs`` know; see the module."""

    @property
    def _constructor(self) -> Any:
        return ShownTable

    def __repr__(self) -> str:
        return "\n".join([repr(self._plain()), *self._notes()])

    def _repr_html_(self) -> str | None:
        shown = self._plain()._repr_html_()
        return None if shown is None else shown + "".join(f"<p>{escape(note)}</p>" for note in self._notes())

    def _repr_data_resource_(self) -> None:
        """Nothing: notebooks show what the other two have."""

    def _plain(self) -> DataFrame:
        return DataFrame(self)

    def _notes(self) -> list[str]:
        seen, dropped = self.attrs.get(SEEN), self.attrs.get(DROPPED, 0)
        if seen is None:
            return []
        if not dropped:
            return [f"{seen:,} rows have passed"]
        why = "the time of taps is limited, and chains keep few rows"
        return [f"{seen:,} rows have passed, of which {dropped:,} were not tried: {why}"]
