"""The runtime without Spark: a seeded cluster in one thread, and dataflows and runs drawn from a seed.

- ``clock``: a clock that the test advances
- ``draws``: the next event, drawn in constant time
- ``ports``: a sink that keeps its rows in memory
- ``network``: the FIFO lanes between workers and controller
- ``progress_lanes``: the exchange of counts of pointstamps over that network
- ``faults``: which failure is injected, and when
- ``store``: the storage that survives failures
- ``readers``: the input that the sources have not read yet
- ``hosts``: the workers of one incarnation, connected by that network
- ``cluster``: a controller and its hosts; kills and restarts them
- ``stamp_functions``: functions that append their name and version to every row
- ``drawn_flows``: random dataflows of these functions, with a plain description of each
- ``figures``: the dataflows of the paper's figures
- ``reference_run``: the expected output of such a dataflow, computed in plain Python
- ``scenarios``: random runs: dataflow, cluster, changes and failures
"""

from __future__ import annotations

from fries_nb.simulation.clock import ManualClock
from fries_nb.simulation.cluster import Cluster

__all__ = ["Cluster", "ManualClock"]
