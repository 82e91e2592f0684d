"""The output of ``%fries_constrain``: one constraint, or the table of all with their states, drawn as well.

>>> from fries_nb.constraints.reactions import ConstraintStatus
>>> constraint = LatencyConstraint(("FC", "FM"), latency_ms=300)
>>> state = ConstraintState(constraint, ConstraintStatus.VIOLATED, "FC[0] -> FM[1] takes 402.5 ms", 212.0, 402.5)
>>> print(of_constraints("fraud", [state], "").text)
sequence  status     mean    worst  limit   window  on violation
FC -> FM  violated   212 ms  402 ms  300 ms  15 s    tell
FC -> FM: FC[0] -> FM[1] takes 402.5 ms
"""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.constraints.merged_verdicts import ConstraintState
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.notebook.statuses import aligned, as_html
from fries_nb.notebook.summaries import Summary
from fries_nb.report.constraint_bars import constraint_svg, latency_text

_COLUMNS = ("sequence", "status", "mean", "worst", "limit", "window", "on violation")
_NUMBERS = range(2, 6)


def of_constraint(constraint: LatencyConstraint, flow: str, then: str) -> Summary:
    """The summary of a constraint that was declared.

    Args:
        constraint: the constraint.
        flow: name of the dataflow on which it was declared; empty for a run.
        then: the next step.
    """
    since = f"in each run of {flow!r} from now on" if flow else "in this run"
    return Summary(f"{constraint}, {since}; if it cannot be kept: {constraint.on_violation}", then)


def of_constraints(flow: str, states: Sequence[ConstraintState], then: str) -> Summary:
    """The table of all constraints of a dataflow.

    Args:
        flow: name of the dataflow.
        states: the states of its constraints.
        then: the next step.
    """
    if not states:
        return Summary(f"{flow!r} has no latency constraints", "%fries_constrain OPERATOR OPERATOR --latency MS")
    rows = [_row(state) for state in states]
    reasons = [f"{state.constraint.sequence}: {state.reason}" for state in states]
    drawings = "".join(constraint_svg(state) for state in states if state.elements)
    rich = {"text/html": as_html(_COLUMNS, rows, reasons) + drawings}
    return Summary("\n".join([*aligned([_COLUMNS, *rows], _NUMBERS), *reasons]), then, rich)


def _row(state: ConstraintState) -> tuple[str, ...]:
    constraint = state.constraint
    times = map(latency_text, (state.mean_ms, state.worst_ms, constraint.latency_ms))
    return (constraint.sequence, str(state.status), *times, f"{constraint.window_s:g} s", str(constraint.on_violation))
