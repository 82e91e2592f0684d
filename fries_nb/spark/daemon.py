"""The process from which Spark forks Python workers, with the imports of a host preloaded.

Without it, imports take most of the time to start or restart a host. Spark starts it as
``python -m fries_nb.spark.daemon`` in sessions that fries_nb starts.
"""

from __future__ import annotations

import warnings

from pyspark.daemon import manager

from fries_nb.spark.stage import warm_up

if __name__ == "__main__":
    # Suppresses a warning of PySpark's own applyInPandasWithState; concatenations in user functions still warn.
    warnings.filterwarnings("ignore", "The behavior of DataFrame concatenation", FutureWarning, r"pyspark\.worker")
    warm_up()
    manager()
