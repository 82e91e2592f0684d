"""The menu of the canvas: a branch behind an operator, as a line of code in the cell that declares the dataflow.

The cell stays the truth. The page writes the line behind what the cell had when it was run last; the user edits it and
runs the cell, which shows what differs (``difference_panel``). Where no cell in the page has this text, the whole cell
with the line comes as a new one.

A branch has a sink of its own, since rows that nothing consumes would be lost, which is refused.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import traitlets
from IPython.core.error import UsageError

from fries_nb.dataflow.builder import is_copy
from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.notebook.cells import DeclaringCell
from fries_nb.notebook.editor import CellWriter
from fries_nb.notebook.panels import RunMoment
from fries_nb.notebook.summaries import quoted
from fries_nb.run import Run

_HERE = Path(__file__).parent
BRANCHES = {
    "Filter": (".filter({0}, lambda row: True).sink({1}, fn.memory())", "filter", "filtered"),
    "Map": (".map({0}, lambda row: row).sink({1}, fn.memory())", "map", "mapped"),
    "Sink": (".sink({0}, fn.memory())", "rows"),
}
"""What the menu adds: the code behind a stream, and the ends of the names in it."""
_PUT = "The line is in the cell: edit it, and run the cell."
_NEXT = (
    "No cell in sight has the text of the dataflow. It comes with the line in a new cell, below the cell that you run "
    "next."
)


class CanvasMenu(CellWriter):
    """The button Add and its menu, of the operator that was selected last or clicked with the right button.

    It is not seen before ``write_into``.

    Args:
        run: the run.
    """

    _esm = CellWriter.shared + (_HERE / "canvas_menu.js").read_text("utf8")
    _css = (_HERE / "canvas_menu.css").read_text("utf8")
    shown = traitlets.Bool(default_value=False).tag(sync=True)
    operator = traitlets.Unicode().tag(sync=True)
    lines: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)  # what can be added to the line for it
    cell = traitlets.Unicode().tag(sync=True)  # the text behind which the line is written
    note = traitlets.Unicode().tag(sync=True)

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen: tuple[Graph, DeclaringCell | None] = (run.graph, None)
        self._written: set[str] = set()  # names in lines that may not have been run yet
        self._cell_of: Callable[[str], DeclaringCell | None] = lambda name: None
        self._put_next: Callable[[str], object] = lambda text: None
        super().__init__()
        self.on_msg(self._receive)

    def write_into(
        self, cell_of: Callable[[str], DeclaringCell | None], put_next: Callable[[str], object]
    ) -> None:
        """Show the menu: it writes into the cell of the dataflow of a name, or puts a text into a new cell."""
        self._cell_of, self._put_next, self.shown = cell_of, put_next, True

    def choose(self, operators: Sequence[str]) -> None:
        """Follow the selection in the picture."""
        self._offer(operators[-1] if operators else "")

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run: its cell may have been run again, and operators may have come and gone."""
        seen = moment.run.graph, self._cell_of(moment.run.graph.name)
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._seen = seen
            self._offer(self.operator if self.operator in seen[0] else "")

    def _offer(self, operator: str, note: str = "") -> None:
        """Have the lines for an operator, or say why there are none."""
        cell, lines = self._cell_of(self._run.graph.name), {}
        if operator:
            try:
                lines = branches(self._run.graph, cell, operator, self._written)
            except UsageError as error:
                note = note or str(error)
        with self.hold_sync():
            self.operator, self.lines, self.note = operator, lines, note
            self.cell = "" if cell is None else cell.text

    def _receive(self, _: object, content: Any, __: object) -> None:
        match content:
            case {"event": "about", "operator": str(operator)} if self.shown and operator in self._run.graph:
                self._offer(operator)
            case {"event": "add", "line": str(line), "put": bool(is_put)} if line in self.lines.values():
                if not is_put:
                    self._put_next(f"%%fries_dataflow {quoted(self._run.graph.name)}\n{self.cell}\n{line}")
                self._written.update(_names_in(line))
                self._offer(self.operator, _PUT if is_put else _NEXT)


def branches(graph: Graph, cell: DeclaringCell | None, operator: str, taken: Collection[str] = ()) -> dict[str, str]:
    """The lines that add a branch behind an operator to the end of a cell, by what they add.

    Args:
        graph: what runs.
        cell: the cell.
        operator: the operator.
        taken: names that no new operator may have, besides those of both dataflows.

    Raises:
        UsageError: there are none; says why.
    """
    while is_copy(graph.operator(operator)):
        operator = graph.in_edges(operator)[0].source
    if graph.operator(operator).traits.is_sink:
        raise UsageError(f"{operator} is a sink: nothing follows it")
    if cell is None:
        raise UsageError(f"no %%fries_dataflow cell has declared {graph.name!r}, so a line has no place")
    declared = cell.flow.graph()
    if operator not in declared:
        raise UsageError(f"{operator} is not in the cell of {graph.name!r} as it was run last")
    name = _stream_name(declared.operator(operator))
    stream = cell.flow.stream(name)
    if stream.within.level:
        raise UsageError(f"{operator} is inside of a loop, where no operators are added while a dataflow runs")
    begin = cell.variables.get(stream) or f"{cell.flow_name}.stream({_literal(name)})"
    known = {*graph, *declared, *taken}
    return {
        words: begin + code.format(*(_literal(_free(f"{operator}_{end}", known)) for end in ends))
        for words, (code, *ends) in BRANCHES.items()
    }


def _stream_name(operator: Operator) -> str:
    """The stream behind an operator: of a split the first branch."""
    traits = operator.traits
    is_numbered = operator.branches > 1 and not (traits.timed or traits.heads_loop)
    return f"{operator.name}[0]" if is_numbered else operator.name


def _names_in(line: str) -> set[str]:
    """The names in a line that was written."""
    return {str(one.value) for one in ast.walk(ast.parse(line)) if isinstance(one, ast.Constant)}


def _free(name: str, known: Collection[str]) -> str:
    """A name that is not known, which may end in a number.

    >>> _free("FM_rows", ()), _free("FM_rows", {"FM_rows", "FM_rows_2"})
    ('FM_rows', 'FM_rows_3')
    """
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in known:
        number += 1
    return found


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
