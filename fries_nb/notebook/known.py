"""Registry of the notebook's dataflows and runs: those made by magics, and those held by the user's variables.

Starts a run in a thread, since Spark may have to be started first, which takes seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics

from fries_nb.errors import RunError, unknown
from fries_nb.notebook.cells import DeclaringCell
from fries_nb.notebook.options import shortened
from fries_nb.run import Dataflow, Run
from fries_nb.spark import session
from fries_nb.words import counted


class Start:
    """A run that is being started, at once, in a thread of its own, which calls ``launch`` and ``ready``."""

    def __init__(self, flow: str, launch: Callable[[], Run], ready: Callable[[Run], None]) -> None:
        self.flow = flow
        self.error: Exception | None = None  # why the start failed; ``None`` if it has not
        self._launch = launch
        self._ready = ready
        self._run: Run | None = None
        self._cancelled = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go, name="fries-start", daemon=True)
        self._thread.start()

    @property
    def under_way(self) -> bool:
        """Whether the start has neither succeeded, failed nor been cancelled."""
        return self._thread.is_alive() and not self._cancelled

    def progress(self, hosts: int) -> str:
        """What the start is doing, in a few words; ``hosts`` are to join."""
        what, run = f"starting {self.flow!r}", self._run
        if run is None:
            return f"{what}: {'Spark runs, the sources are prepared' if session.is_active() else 'Spark is starting'}"
        joined = len(run.host_processes)
        if joined < hosts:
            return f"{what}: {joined} of {counted(hosts, 'host')} {'has' if joined == 1 else 'have'} joined"
        return f"{what}: {'the host has' if hosts == 1 else f'all {hosts} hosts have'} joined, operators are opened"

    def run(self, timeout: float | None = None) -> Run:
        """Wait for the run, at most ``timeout`` seconds."""
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        if self._run is None:
            raise TimeoutError(f"{self.flow!r} is still starting")
        return self._run

    def cancel(self) -> None:
        """Cancel the start; a run that comes to exist nevertheless is stopped."""
        with self._lock:
            self._cancelled = True
            run = self._run
        if run is not None:
            run.request_stop(drain=False)
            run.wait()

    def _go(self) -> None:
        try:
            run = self._launch()
        except Exception as error:  # noqa: BLE001 - raised again in the cell, or shown by %fries_status
            self.error = error
            return
        with self._lock:
            wanted = not self._cancelled
            if wanted:
                self._run = run
                self._ready(run)
        if not wanted:
            run.request_stop(drain=False)
            run.wait()


OVER = frozenset({"finished", "stopped", "failed"})


class Registry:
    """Dataflows and runs by name. A run has the name of its dataflow, and that of a variable that holds it.

    In the user's namespace, ``flow`` and ``run`` hold the most recent dataflow and run.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._flows: dict[str, Dataflow] = {}
        self._cells: dict[str, DeclaringCell] = {}
        self._runs: dict[str, Run] = {}
        self._starts: dict[str, Start] = {}
        self._newest = ""  # the flow that was started last

    def keep_flow(self, cell: DeclaringCell) -> None:
        """Register what a cell has declared; it replaces an earlier dataflow of the same name."""
        self._flows[cell.flow.name] = cell.flow
        self._cells[cell.flow.name] = cell

    def cell(self, name: str) -> DeclaringCell | None:
        """The cell that has declared a dataflow last; ``None`` if another kind of cell has."""
        return self._cells.get(name)

    def keep_run(self, run: Run) -> None:
        """Register a run; it replaces an earlier run of the same dataflow."""
        self._runs[run.graph.name] = run
        self._newest = run.graph.name
        self._starts.pop(run.graph.name, None)

    def keep_start(self, start: Start) -> None:
        """Register a start that is under way or has failed, until its dataflow has a run."""
        if start.under_way or start.error is not None:
            self._starts[start.flow] = start
            self._newest = start.flow

    def starts(self) -> list[Start]:
        """The starts that are under way, and failed starts that were not retried."""
        return [start for start in self._starts.values() if start.under_way or start.error is not None]

    def flow(self, name: str | None = None) -> Dataflow:
        """Look up a dataflow by its name or a variable. Without a name: the value of ``flow``, or the only one."""
        last = self._names.get("flow")
        if isinstance(last, Dataflow) and name in (None, last.name):
            return last
        flows = self.flows()
        if name is None and len(flows) == 1:
            return next(iter(flows.values()))
        if not flows:
            raise UsageError("no dataflow is declared yet; begin with a cell %%fries_dataflow NAME")
        if name is None:
            raise UsageError(f"which dataflow? name one of {', '.join(flows)}")
        if name not in flows:
            held = self._names.get(name)
            if isinstance(held, Dataflow):
                return held
            raise UsageError(unknown("dataflow", shortened(name), flows))
        if name not in self._flows and len(alike := self._variables(name)) > 1:
            raise UsageError(f"{', '.join(alike)} are all named {name!r}; name the variable instead")
        return flows[name]

    def run(self, name: str | None = None) -> Run:
        """Look up a run by name. Without a name: the only live run, or else the last one, even if it has ended."""
        self._refuse_unstarted(name)
        if name is not None:
            return self._named(name)
        live, last = self.live(), self._held("run")
        if last is not None and (last in live or not live):
            return last
        if len(live) > 1:
            raise UsageError(f"which run? name one of {', '.join(run.graph.name for run in live)}")
        if not (live or self._runs):
            raise UsageError("no dataflow has been started; start one with %fries_run")
        return live[0] if live else list(self._runs.values())[-1]

    def run_before_flow(self, name: str | None) -> Run | None:
        """The run of a name, for what can be asked of dataflows as well; ``None`` if only a dataflow has it."""
        live = self.live()
        if live and (name is None or name not in self.flows() or self.live(name)):
            return self.run(name)
        return None

    def flows(self) -> dict[str, Dataflow]:
        """All dataflows by name; those made by magics take precedence over those held by variables."""
        held = {value.name: value for value in self._values() if isinstance(value, Dataflow)}
        return {**held, **self._flows}

    def runs(self) -> list[Run]:
        """All runs, each once."""
        held = [value for value in self._values() if isinstance(value, Run)]
        return list({id(run): run for run in [*self._runs.values(), *held]}.values())

    def live(self, flow: str | None = None) -> list[Run]:
        """The runs that have not ended, optionally those of one dataflow only."""
        return [run for run in self.runs() if run.state not in OVER and flow in (None, run.graph.name)]

    def variable(self, run: Run) -> str:
        """A variable that holds the run; ``run`` if there is none."""
        return next((name for name, value in list(self._names.items()) if value is run and name[:1] != "_"), "run")

    def variables_of(self, kind: type) -> list[str]:
        """The user's variables that hold a value of this kind."""
        return [name for name, value in list(self._names.items()) if isinstance(value, kind) and name[:1] != "_"]

    def _refuse_unstarted(self, name: str | None) -> None:
        for start in self.starts():
            newest = start.under_way or start.flow == self._newest
            if start.flow == name or (name is None and newest and not self.live()):
                if start.error is None:
                    raise UsageError(f"{start.flow!r} is starting; it will be there in a few seconds")
                raise RunError(f"{start.flow!r} did not start: {start.error}")

    def _named(self, name: str) -> Run:
        if (held := self._held(name)) is not None:
            return held
        runs = {run.graph.name: run for run in [*self.runs(), *self._runs.values(), *self.live()]}
        if name not in runs:
            raise UsageError(unknown("run", shortened(name), runs))
        return runs[name]

    def _held(self, variable: str) -> Run | None:
        """The run held by a variable."""
        return next((run for run in self.runs() if run is self._names.get(variable)), None)

    def _variables(self, flow: str) -> list[str]:
        """The variables that hold dataflows of this name, one for each dataflow."""
        held = {
            id(value): name
            for name, value in list(self._names.items())
            if isinstance(value, Dataflow) and value.name == flow and name[:1] != "_"
        }
        return list(held.values())

    def _values(self) -> Iterator[Any]:
        """The values of the user's variables, without IPython's output history."""
        return (value for name, value in list(self._names.items()) if not name.startswith("_"))


class RunMagics(Magics):
    """Magics on the dataflows and runs of a notebook."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, known: Registry) -> None:
        super().__init__(shell)
        self._known = known
