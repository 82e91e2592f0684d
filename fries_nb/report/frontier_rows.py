"""Frontiers and loops in rows: for the live view, the report and the cells of magics.

>>> from fries_nb.controller.frontiers import TimeHolder
>>> frontier_row(OperatorFrontier("W", 30, (TimeHolder("Src", 30, 2, "W"), TimeHolder("Src", 40, 1))))
('W', 'from 30 on', 'Src → W: 2 frames; and 1 more')
>>> frontier_row(OperatorFrontier("out", None))
('out', 'nothing', '')
>>> loop_row(LoopState("L", "asking", attempts=2, round=7, frames=4, rows=1_200, waiting=5, spilled=3 << 20))
('L', 'asking', '7', '1,200', '4', '5', '3.0 MiB', '2')
"""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.controller.frontiers import OperatorFrontier, time_text
from fries_nb.controller.loop_states import LoopState
from fries_nb.report.row_picture import TextColumn, rows_svg

FRONTIER_TITLE = "Times"
FRONTIER_COLUMNS = (TextColumn("operator"), TextColumn("can still arrive"), TextColumn("held back by"))
LOOP_TITLE = "Loops"
LOOP_COLUMNS = (
    TextColumn("loop"),
    TextColumn("phase"),
    *(
        TextColumn(name, number=True)
        for name in ("rounds", "rows back", "frames back", "waiting", "spilled", "attempts")
    ),
)
_MOST = 24
"""Number of operators that a drawing shows; those of more are in the table of ``%fries_frontier``."""


def frontier_row(frontier: OperatorFrontier) -> tuple[str, str, str]:
    """An operator, what can still arrive, and what holds it back, with its time if that is another one."""
    arrives = "nothing" if frontier.time is None else f"from {time_text(frontier.time)} on"
    if not frontier.holders:
        return frontier.operator, arrives, ""
    first, more = frontier.holders[0], len(frontier.holders) - 1
    what = first.what if first.time == frontier.time else str(first)
    return frontier.operator, arrives, what + (f"; and {more:,} more" if more else "")


def loop_row(loop: LoopState) -> tuple[str, ...]:
    """A loop in texts, as in ``LOOP_COLUMNS``."""
    counts = (f"{number:,}" for number in (loop.round, loop.rows, loop.frames, loop.waiting))
    phase = f"{loop.phase} for {loop.change}" if loop.change else loop.phase
    return loop.name, phase, *counts, _size(loop.spilled), f"{loop.attempts:,}"


def frontiers_svg(frontiers: Sequence[OperatorFrontier], width: float = 760.0) -> str:
    """Draw the frontiers of operators.

    Args:
        frontiers: the frontiers.
        width: width in pixels.

    Returns:
        An ``<svg>`` element.
    """
    rows = [frontier_row(one) for one in frontiers[:_MOST]]
    rest = [(f"{len(frontiers) - _MOST:,} more", "", "%fries_frontier shows all")] if len(frontiers) > _MOST else []
    return rows_svg(FRONTIER_TITLE, FRONTIER_COLUMNS, rows + rest, width)


def loops_svg(loops: Sequence[LoopState], width: float = 760.0) -> str:
    """Draw the states of loops.

    Args:
        loops: the loops.
        width: width in pixels.

    Returns:
        An ``<svg>`` element.
    """
    return rows_svg(LOOP_TITLE, LOOP_COLUMNS, [loop_row(one) for one in loops], width)


def progress_svgs(
    frontiers: Sequence[OperatorFrontier], loops: Sequence[LoopState], width: float = 760.0
) -> list[str]:
    """The drawings of frontiers and loops; none of what there is not.

    Args:
        frontiers: the frontiers.
        loops: the loops.
        width: width in pixels.
    """
    drawn = [frontiers_svg(frontiers, width)] if frontiers else []
    return drawn + ([loops_svg(loops, width)] if loops else [])


def _size(spilled: int) -> str:
    return f"{spilled / (1 << 20):,.1f} MiB" if spilled >= 1 << 20 else f"{spilled / 1024:,.0f} KiB" if spilled else "0"
