"""The performance harness: each benchmark alternates between our side and its rivals, and reports values and ratios.

``BENCHMARKS`` lists them by name. Each takes a scale (1.0 is the size of the targets) and the number of pairs, and
returns a ``BenchReport``. No test depends on them; they are run by hand, on an idle machine.
"""

from __future__ import annotations

from collections.abc import Callable

from fries_nb.experiments.bench.costs import idle, latency, planning, quiet, rest, row, times
from fries_nb.experiments.bench.delay import crowd, delay, versions
from fries_nb.experiments.bench.display_cost import display, watched
from fries_nb.experiments.bench.join_state import join_state
from fries_nb.experiments.bench.keyed_state import beyond_memory, checkpoint_state
from fries_nb.experiments.bench.maps import chain, exchange
from fries_nb.experiments.bench.nexmark_peers import nexmark
from fries_nb.experiments.bench.pairs import BenchReport, keep
from fries_nb.experiments.bench.rescale_costs import idle_bins, joining, recovery, rescale_peers, second_host
from fries_nb.experiments.bench.reshape_costs import reshape
from fries_nb.experiments.bench.slow_services import slow_services
from fries_nb.experiments.bench.timed_rates import components, iteration, loop_change, window_latency, windows
from fries_nb.experiments.bench.w1_throughput import checkpoint, constraints, files, identities, kafka, w1

__all__ = ["BENCHMARKS", "BenchReport", "keep"]

BENCHMARKS: dict[str, Callable[[float, int], BenchReport]] = {
    "delay": delay,
    "quiet": quiet,
    "chain": chain,
    "exchange": exchange,
    "crowd": crowd,
    "w1": w1,
    "latency": latency,
    "row": row,
    "rest": rest,
    "plan": planning,
    "display": display,
    "checkpoint": checkpoint,
    "checkpoint-state": checkpoint_state,
    "beyond-memory": beyond_memory,
    "constraints": constraints,
    "recovery": recovery,
    "versions": versions,
    "times": times,
    "idle": idle,
    "windows": windows,
    "window-latency": window_latency,
    "iteration": iteration,
    "components": components,
    "loop-change": loop_change,
    "idle-bins": idle_bins,
    "joining": joining,
    "second-host": second_host,
    "rescale-peers": rescale_peers,
    "reshape": reshape,
    "watched": watched,
    "files": files,
    "identities": identities,
    "kafka": kafka,
    "slow-services": slow_services,
    "nexmark": nexmark,
    "join-state": join_state,
}
