"""The runtime without Spark: a seeded cluster in one thread, and dataflows and runs drawn from a seed.

    clock        time that is moved by hand
    draws        what may happen next, drawn in constant time
    ports        a sink's port that keeps rows
    network      the lanes between workers and controller, each a FIFO
    faults       what goes wrong, and when
    store        what survives it
    hosts        the workers of one incarnation on that network
    cluster      a controller and its hosts, killed and started again
    functions    functions that leave their name and version on every row
    flows        random dataflows made of them, beside a plain description
    reference    what such a dataflow puts out, in plain Python
    scenarios    random runs: which dataflow, on what cluster, changed when, what goes wrong
"""

from __future__ import annotations

from fries_nb.testing.clock import ManualClock
from fries_nb.testing.cluster import Cluster

__all__ = ["Cluster", "ManualClock"]
