"""Planning: the operators that a change synchronises, and its predicted delay. Pure functions over graphs."""

from __future__ import annotations

from fries_nb.planning.covering import Component, Covering, PruningDecision, Rule, cover, minimal_covering_subdag
from fries_nb.planning.prediction import CriticalPath, Prediction, Queue
from fries_nb.protocol.topology import chains, channel_count, channels_of, workers_of

__all__ = [
    "Component", "Covering", "CriticalPath", "Prediction", "PruningDecision", "Queue", "Rule", "chains",
    "channel_count",
    "channels_of", "cover", "minimal_covering_subdag", "workers_of",
]
