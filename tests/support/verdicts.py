"""Verdicts on constraints, made up."""

from __future__ import annotations

from math import inf

from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.protocol.messages import WorkerId

STALLED = inf


def verdict_on(
    constraint: LatencyConstraint, at_s: float, edge_ms: float = 40.0, task_ms: float = 5.0, host: int = 0,
    buffer_bytes: int = 0,
) -> ConstraintVerdict:  # fmt: skip
    """What a host says if each task takes so long and each edge too, three quarters of it in buffers.

    On the slowest sequence of workers everything takes half as long again.
    """
    edges = {str(edge) for edge in constraint.edges}
    elements = tuple(
        ElementLatency(
            str(one), edge_ms, 1.5 * edge_ms, 30.0 if edge_ms == inf else 0.75 * edge_ms,
            smallest_bytes=buffer_bytes, largest_bytes=2 * buffer_bytes,
        )
        if str(one) in edges
        else ElementLatency(str(one), task_ms, 1.5 * task_ms)
        for one in constraint.elements
    )
    mean_ms = sum(one.mean_ms for one in elements)
    worst_ms, limit_ms = 1.5 * mean_ms, constraint.latency_ms
    status = ConstraintStatus.VIOLATED if worst_ms > limit_ms else ConstraintStatus.MET
    return ConstraintVerdict(
        constraint.sequence, limit_ms, constraint.window_s, host, round(at_s * 1e9), status,
        "rows wait" if worst_ms == inf else f"the worst sequence takes {worst_ms:g} ms", mean_ms, worst_ms,
        tuple(WorkerId(name, 0) for name in constraint.path), elements, rows=100.0,
    )  # fmt: skip
