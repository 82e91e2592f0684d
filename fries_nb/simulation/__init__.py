"""The runtime without Spark: a seeded cluster in one thread, and dataflows and runs drawn from a seed.

- ``network``: the next event, drawn in constant time, and the FIFO lanes between workers, hosts and controller
- ``virtual_threads``: threads as generators, resumed in a drawn order: the environment of a host's core
- ``faults``: which failure is injected, and when; the settings that all incarnations share
- ``store``: the storage that survives failures, with the parts of sinks
- ``readers``: the input that the sources have not read yet
- ``hosts``: the workers of one incarnation, each event of which is drawn, with chains and trials; ``threaded_hosts``:
  the same by host cores, with their topology and links
- ``seeded_progress``: the hosts' links for counts
- ``cluster``: the environment of a driver's core, and its hosts; kills and restarts them
- ``rescaling_cluster``: clusters whose chains, workers, hosts, bins and splits change while they run
- ``reshaping_cluster``: drawn programs that are edited while they run
- ``stamp_functions``: functions that append their name and version to every row, and the paper's figures of them
- ``drawn_flows``: random dataflows of these functions, a plain description of each, and its output in plain Python
- ``scenarios``: random runs: dataflow, cluster, changes and failures
"""

from __future__ import annotations

from fries_nb.simulation.cluster import Cluster, ManualClock

__all__ = ["Cluster", "ManualClock"]
