"""A DataFrame that says more than its values where it is shown, and less.

It is a pandas DataFrame with all values, and so are the tables and columns that are made of it. Shown, by ``print`` or
in a notebook, it has a line below the table for what a tap has seen, and masks in place of values that are not to be
shown: ``to_csv`` and all else that writes it has them. Its own columns keep what they are to hide, by their ``attrs``.

It is imported only where a table is made, since pandas takes longer to import than all of fries_nb's own modules.

>>> from pandas import Index
>>> table = shown_table({"CARD_NO": [4000, 4001], "amount": [7, 9]}, hide={"CARD_NO"})
>>> table.attrs |= {"rows_seen": 1200, "rows_dropped": 1100}
>>> print(table)
  CARD_NO  amount
0     •••       7
1     •••       9
1,200 rows have passed, of which 1,100 were not tried: the time of taps is limited, and chains keep few rows
>>> table["CARD_NO"].tolist(), "4000" in table[table["amount"] < 8]._repr_html_()
([4000, 4001], False)
>>> print(table["CARD_NO"].head(1))
0    •••
Name: CARD_NO, dtype: object
>>> print(table.iloc[1])
CARD_NO    •••
amount       9
Name: 1, dtype: object
>>> list(as_shown(shown_table({"amount": [7]}, hide={"CARD_NO"}).set_index(Index([4000], name="CARD_NO"))).index)
['•••']
"""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from typing import Any

from pandas import DataFrame, Series

from fries_nb.dataflow.masking import MASK, masked

SEEN, DROPPED = "rows_seen", "rows_dropped"
"""What ``attrs`` has of a tap: the number of rows that have passed, and of those that were not tried."""
HIDDEN_COLUMNS = "hidden_columns"
"""What ``attrs`` has of the columns whose values are not to be shown."""


class ShownTable(DataFrame):  # type: ignore[misc]  # pandas has no types
    """A DataFrame that shows what its ``attrs`` know, and masks what they name; see the module."""

    @property
    def _constructor(self) -> Any:
        return ShownTable

    @property
    def _constructor_sliced(self) -> Any:
        return ShownColumn

    def __repr__(self) -> str:
        return "\n".join([repr(as_shown(self)), *self._notes()])

    def _repr_html_(self) -> str | None:
        shown = as_shown(self)._repr_html_()
        return None if shown is None else shown + "".join(f"<p>{escape(note)}</p>" for note in self._notes())

    def _repr_data_resource_(self) -> None:
        """Nothing: notebooks show what the other two have."""

    def _notes(self) -> list[str]:
        seen, dropped = self.attrs.get(SEEN), self.attrs.get(DROPPED, 0)
        if seen is None:
            return []
        if not dropped:
            return [f"{seen:,} rows have passed"]
        why = "the time of taps is limited, and chains keep few rows"
        return [f"{seen:,} rows have passed, of which {dropped:,} were not tried: {why}"]


class ShownColumn(Series):  # type: ignore[misc]  # pandas has no types
    """A column or a row of a ``ShownTable``, which masks what that does."""

    @property
    def _constructor(self) -> Any:
        return ShownColumn

    @property
    def _constructor_expanddim(self) -> Any:
        return ShownTable

    def __repr__(self) -> str:
        hide, plain = self.attrs.get(HIDDEN_COLUMNS, ()), Series(self)
        if not hide:
            return repr(plain)
        values = [
            MASK if label in hide and value is not None else masked(value, hide) for label, value in plain.items()
        ]
        return repr(_masked_values(self.name, Series(values, index=plain.index, name=self.name), hide))


def shown_table(columns: Any, hide: Collection[str] = ()) -> ShownTable:
    """A table of these columns, or of another table, that masks some of them where it is shown."""
    table = ShownTable(columns)
    if hide:
        table.attrs[HIDDEN_COLUMNS] = sorted(hide)
    return table


def as_shown(table: DataFrame) -> DataFrame:
    """A plain table with masks in place of what a table of ours is not to show."""
    hide, shown = table.attrs.get(HIDDEN_COLUMNS, ()), DataFrame(table)
    if hide:
        shown = DataFrame({name: _masked_values(name, shown[name], hide) for name in shown}, index=shown.index)
        for level in [level for level in shown.index.names if level in hide]:
            masks = dict.fromkeys(shown.index.unique(level), MASK)
            shown = shown.rename(masks, level=level if shown.index.nlevels > 1 else None)
    return shown


def _masked_values(name: Any, values: Series, hide: Collection[str]) -> Series:
    if name in hide:
        return values.astype(object).where(values.isna(), MASK)
    return values.map(lambda value: masked(value, hide)) if values.dtype == object else values
