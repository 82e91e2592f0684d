"""The process that Spark forks Python workers from, with what a host needs loaded already.

A host that is started again after a failure, or for the first time, would otherwise spend most of that time on
imports. Spark starts it as ``python -m fries_nb.spark.daemon`` in sessions that fries_nb starts.
"""

from __future__ import annotations

import warnings

from pyspark.daemon import manager

import fries_nb.spark.host as host

if __name__ == "__main__":
    # Of what PySpark itself does for applyInPandasWithState; the user's own concatenations warn as ever.
    warnings.filterwarnings("ignore", "The behavior of DataFrame concatenation", FutureWarning, r"pyspark\.worker")
    host.warm_up()
    manager()
