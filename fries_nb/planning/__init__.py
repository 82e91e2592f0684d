"""Which operators must change together, and what must be synchronised for it. Pure functions over graphs."""

from __future__ import annotations

from fries_nb.planning.components import Component
from fries_nb.planning.covering import Covering, cover
from fries_nb.planning.mcs import minimal_covering_subdag
from fries_nb.planning.prediction import CriticalPath, Prediction, Queue
from fries_nb.planning.pruning import PruningDecision, Rule
from fries_nb.topology.expansion import chains, channel_count, channels_of, host_of, workers_of

__all__ = [
    "Component", "Covering", "CriticalPath", "Prediction", "PruningDecision", "Queue", "Rule", "chains",
    "channel_count",
    "channels_of", "cover", "host_of", "minimal_covering_subdag", "workers_of",
]
