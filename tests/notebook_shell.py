"""A real IPython shell for tests, and runs that need no Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from fries_nb.changes import Change
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.scheduling import schedule


@contextmanager
def ipython(directory: Path) -> Iterator[InteractiveShell]:
    """A shell with the extension, which keeps its files in the directory and leaves the process as it was."""
    main = sys.modules["__main__"]
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config, ipython_dir=str(directory))
    try:
        shell.run_line_magic("load_ext", "fries_nb")
        yield shell
    finally:
        shell.run_line_magic("unload_ext", "fries_nb")
        InteractiveShell.clear_instance()
        shell.restore_sys_module_state()
        sys.modules["__main__"] = main


class StandIn:
    """In place of a run: plans a change as a run does, and ends it as ``outcome`` says, or never if that is None."""

    def __init__(self, graph: Graph, **options: Any) -> None:
        self.graph = graph
        self.options = options
        self.state = "running"
        self.error = ""
        self.outcome: str | None = "done"
        self.asked: dict[str, Any] = {}

    def reconfigure(self, change: dict[str, Any], scheduler: str, pruning: bool) -> Change:
        """Refuses what a run refuses."""
        updates = as_updates(change)
        check_updates(self.graph, updates)
        plan = schedule(scheduler, self.graph, updates, pruning)
        self.asked = change
        asked = Change("u1", plan, updates, 1.0)
        if self.outcome is not None:
            error = "" if self.outcome == "done" else "FM[0]: open() raised OSError: no model"
            parts = tuple(tuple(sorted(part.operators)) for part in plan.covering.components)
            asked.resolve(Outcome("u1", scheduler, self.outcome, error, components=parts))
        return asked

    def stop(self, drain: bool = False, timeout: float | None = None) -> None:
        """Ends at once."""
        self.state = "stopped"

    def wait(self, timeout: float | None = None) -> str:
        """It has ended."""
        return self.state
