"""Seeded clusters whose hosts have next to no memory for states, so that most of these are on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fries_nb.host.host_workers import Assembly
from fries_nb.operators import cold_states
from fries_nb.operators.cold_states import ColdStates, MemoryFile, PutStates, StateBudget
from fries_nb.simulation.faults import Deployment

BYTES = 60
"""The limit of all hosts of a cluster: two or three states."""


def most_states_on_disk(patch: pytest.MonkeyPatch) -> list[int]:
    """Let hosts have few states in memory from now on; returns a list with the number of those that were moved out."""
    assembly, put, moved = Deployment.assembly, ColdStates.put, [0]

    def limited(self: Deployment, *given: Any) -> Assembly:
        return replace(assembly(self, *given), budget=StateBudget(BYTES, MemoryFile))

    def counted(self: ColdStates, states: Sequence[tuple[Any, Any]]) -> PutStates:
        found = put(self, states)
        moved[0] += len(found.places)
        return found

    patch.setattr(Deployment, "assembly", limited)
    patch.setattr(ColdStates, "put", counted)
    patch.setattr(cold_states, "SEGMENT_BYTES", 300)
    return moved
