"""W1 by whichever version of fries_nb is imported; a program that starts from its file, so that an older one can be.

Only what both versions have is used. The embedded Spark of the process serves all its jobs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fries_nb.experiments.bench.ours import HOSTS, flow_seconds, spark_session
from fries_nb.experiments.bench.w1_throughput import scored


def main() -> None:
    """Serves: for each line ``{"job", "path"}`` on standard input, runs W1 on the file and prints ``{"seconds"}``."""
    # The job is the number of hosts; each has one worker of every operator.
    with spark_session(HOSTS) as spark:
        for line in sys.stdin:
            asked = json.loads(line)
            took = flow_seconds(scored, spark, Path(asked["path"]), hosts=int(asked["job"]))
            print(json.dumps({"seconds": took}), flush=True)


if __name__ == "__main__":
    main()
