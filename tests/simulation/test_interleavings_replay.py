"""A failure can be replayed from its seed, in another process and on another day."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import hashlib
from fries_nb.simulation.scenarios import draw_scenario, play
digest = hashlib.sha256()
for seed in range(8):
    cluster = play(draw_scenario(seed)).cluster
    digest.update(repr((cluster.records(), cluster.outcomes, cluster.epochs, cluster.clock())).encode())
print(digest.hexdigest())
"""


def test_a_seed_says_all():
    """Nothing depends on how a process happens to order its sets, or on any clock."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=True, text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
