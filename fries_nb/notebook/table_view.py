"""A table whose cells change in place: nothing flickers, and a selected row stays selected."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

_HERE = Path(__file__).parent


class TableView(anywidget.AnyWidget):
    """A table.

    ``selected`` is the key of the selected row, empty without one. Rows can be selected by click, Enter or the space
    bar if ``selectable``. All methods may be called from any thread.

    Args:
        caption: what the table holds, for screen readers.
        columns: the headings; one that begins with ``#`` is of numbers, which are aligned to the right.
        selectable: whether a row can be selected.
        empty: text in place of a table without rows.
    """

    _esm = (_HERE / "table.js").read_text("utf8")
    _css = (_HERE / "table.css").read_text("utf8")
    caption = traitlets.Unicode().tag(sync=True)
    columns: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    # As JSON: ipywidgets searches lists and dicts for buffers, which takes longer than all else for 200 rows.
    rows = traitlets.Unicode("[]").tag(sync=True)
    selectable = traitlets.Bool(default_value=False).tag(sync=True)
    selected = traitlets.Unicode().tag(sync=True)
    empty = traitlets.Unicode().tag(sync=True)

    def __init__(self, caption: str, columns: Sequence[str], selectable: bool = False, empty: str = "") -> None:
        super().__init__(caption=caption, columns=list(columns), selectable=selectable, empty=empty)
        self.layout.width = "100%"
        self.on_msg(self._receive)

    def _receive(self, _: object, content: Any, __: object) -> None:
        """Select a row, or none; as a message, since the state of a widget may be overtaken by a click on a button."""
        match content:
            case {"event": "select", "key": str(key)} if self.selectable:
                self.selected = key

    def fill(self, rows: Mapping[str, Sequence[str]]) -> None:
        """Show rows.

        Args:
            rows: key to the texts of the cells, in order.
        """
        self.rows = json.dumps([[key, *cells] for key, cells in rows.items()], ensure_ascii=False)

    def __repr__(self) -> str:
        return f"TableView({self.caption!r}, {len(json.loads(self.rows))} rows)"
