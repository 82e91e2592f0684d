"""fries_nb: change the operators of a dataflow while it runs on Spark, transactionally, from a notebook.

Every source tuple is processed wholly by the old or wholly by the new configuration. The layers, each of which imports
only from those to its right (``tests/test_layers.py`` checks it):

    notebook | experiments | __main__  ->  run  ->  running  ->  report  ->  spark | testing
        ->  connectors | transport  ->  storage  ->  controller | worker  ->  operators  ->  scheduling  ->  planning
        ->  topology  ->  messages, trace, checkpoints  ->  dataflow | progress

``audit`` judges from a trace alone and shares no code with what it judges; ``workloads`` uses this module only.
"""

from __future__ import annotations

from typing import Any

from fries_nb.dataflow.builder import Stream
from fries_nb.dataflow.endpoints import delta, memory, parquet, rate, replay
from fries_nb.dataflow.limits import tuples
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.updates import Update
from fries_nb.errors import FriesError, SourceError, UncommittedWarning

__all__ = [
    "Dataflow", "FriesError", "SourceError", "Stream", "UncommittedWarning", "Update", "batched", "delta", "memory",
    "parquet", "rate", "replay", "ship", "show", "tuples",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """``Dataflow`` and ``ship`` need pyspark; they are imported when they are first asked for."""
    if name == "Dataflow":
        from fries_nb.run import Dataflow

        return Dataflow
    if name == "ship":
        from fries_nb.spark.package import ship

        return ship
    raise AttributeError(f"module 'fries_nb' has no attribute {name!r}")


def show(run: Any, offer: Any = None) -> None:
    """Show a run live in the output of a notebook's cell, as a cell does whose last line is ``run``.

    Args:
        run: what ``flow.run()`` returned.
        offer: operator name to label to new function (or ``fn.Update``), as in
            ``{"FM": {"lighter": LightModel()}}``. The form below the picture then chooses among these, and evaluates
            no text. Under Voila, whose visitors are not the author, it never does.

    Raises:
        RunError: this is no notebook, or ``run`` is no run.
        FriesError: an operator could not run what is offered for it.
    """
    from fries_nb.notebook.extension import show

    show(run, offer)


def __dir__() -> list[str]:
    """The public names, those imported on demand too, and none that this module has imported for itself."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext fries_nb`` in a notebook: adds the magics, starts nothing."""
    from fries_nb.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext fries_nb``: takes the magics away; what runs goes on."""
    from fries_nb.notebook.extension import unload

    unload(shell)
