"""fries_nb: change the operators of a dataflow while it runs on Spark, transactionally, from a notebook.

Every source tuple is processed wholly by the old or wholly by the new configuration. The layers, each of which imports
only from those to its right (``tests/test_layers.py`` checks it):

    notebook | experiments | labs | __main__  ->  commands  ->  compared_runs  ->  report
        ->  run | simulation | testing  ->  running  ->  changes  ->  telemetry  ->  spark  ->  driver  ->  host
        ->  connectors | transport  ->  storage  ->  controller | worker  ->  operators  ->  constraints
        ->  planning  ->  protocol  ->  dataflow | progress  ->  transitions
        ->  displays, errors, locks, words

A run answers with values; ``report`` draws them, which this module registers in ``displays``. ``audit`` judges from a
trace alone and shares no code with what it judges; ``workloads`` uses this module only.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

from fries_nb.changes.change import Change
from fries_nb.connectors.sink import Sink
from fries_nb.connectors.source import Position, Source, Split
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.arguments import tuples
from fries_nb.dataflow.constraints import edge
from fries_nb.dataflow.endpoints import delta, memory, parquet, rate, replay, sql, table
from fries_nb.dataflow.join_bounds import latest, within
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.stream_endpoints import files, kafka
from fries_nb.dataflow.streams import Stream
from fries_nb.dataflow.top_rows import top
from fries_nb.dataflow.updates import Update, lighter
from fries_nb.dataflow.windowing import count, months, session, sliding, tumbling
from fries_nb.displays import Displays, use
from fries_nb.errors import FriesError, SinkError, SourceError, UncommittedWarning

__version__ = "0.1.0"

__all__ = [
    "Change", "Dataflow", "FriesError", "Outcome", "Position", "Run", "Sink", "SinkError", "Source", "SourceError",
    "Split", "Stream", "UncommittedWarning", "Update", "batched", "checkpoint", "compare", "count", "delta", "edge",
    "files", "kafka", "latest", "lighter", "memory", "months", "parquet", "rate", "replay", "session", "ship", "show",
    "sliding", "sql", "table", "top", "tumbling", "tuples", "within",
]  # fmt: skip


def _bundle(value: Any) -> dict[str, str]:
    from fries_nb.report import display

    return display(value)


def _report(path: str | PathLike[str], story: Any) -> str:
    from fries_nb.report import run_page, write_page

    return write_page(path, run_page(story))


use(Displays(_bundle, _report))


def __getattr__(name: str) -> Any:
    """Imports on first access what hosts do not need: ``checkpoint``, and what needs pyspark."""
    if name in ("Dataflow", "Run"):
        from fries_nb import run

        return getattr(run, name)
    if name == "checkpoint":
        from fries_nb.running.checkpoint_view import checkpoint

        return checkpoint
    if name == "compare":
        from fries_nb.compared_runs import compare

        return compare
    if name == "ship":
        from fries_nb.spark.shipping import ship

        return ship
    raise AttributeError(f"module 'fries_nb' has no attribute {name!r}")


def show(run: Any, offer: Any = None) -> None:
    """Show the live view of a run in the output of the current notebook cell, as ``run`` on its last line does.

    Args:
        run: a run, as returned by ``Dataflow.run``.
        offer: operator name to label to new function (or ``fn.Update``), as in
            ``{"FM": {"lighter": LightModel()}}``. The form below the picture then offers these functions only and
            evaluates no text. Under Voila, whose visitors are not the author, it never evaluates text.

    Raises:
        RunError: there is no notebook kernel, or ``run`` is not a run.
        FriesError: an operator cannot run a function that is offered for it.
    """
    from fries_nb.notebook.extension import show

    show(run, offer)


def __dir__() -> list[str]:
    """The public names, including those imported on demand, without this module's own imports."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def load_ipython_extension(shell: Any) -> None:
    """Registers the magics, for ``%load_ext fries_nb``; starts nothing.

    Args:
        shell: the IPython shell.
    """
    from fries_nb.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Removes the magics, for ``%unload_ext fries_nb``; runs continue.

    Args:
        shell: the IPython shell.
    """
    from fries_nb.notebook.extension import unload

    unload(shell)
