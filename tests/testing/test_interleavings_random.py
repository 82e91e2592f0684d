"""Random dataflows, clusters, changes and interleavings: the promises hold in all of them.

Every seed is one run; see `interleaving_checks` for what is checked of it, and for how to replay one.
"""

from __future__ import annotations

import pytest
from interleaving_checks import SOAK, try_seed

RUNS = 120
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_every_interleaving(chunk):
    """Changes are transactions, nothing is lost, order and state are kept, commits are cuts, every run ends."""
    size = RUNS * SOAK // CHUNKS
    for seed in range(chunk * size, (chunk + 1) * size):
        try_seed(seed)
