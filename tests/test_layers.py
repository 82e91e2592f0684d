"""The house of the design, checked from the syntax trees: imports, lengths and names."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fries_nb"

# Each layer imports from those after it, and from its own room. A layer with two rooms keeps them apart.
LAYERS = (
    ("notebook", "experiments", "labs", "__main__"),
    ("commands",),
    ("compared_runs",),
    ("report",),
    ("run", "simulation", "testing"),
    ("running",),
    ("changes",),
    ("telemetry",),
    ("spark",),
    ("driver",),
    ("host",),
    ("connectors", "transport"),
    ("storage",),
    ("controller", "worker"),
    ("operators",),
    ("constraints",),
    ("planning",),
    ("protocol",),
    ("dataflow", "progress"),
    ("transitions",),
    ("displays", "errors", "locks", "words"),
)
# The one module of the protocol that the audit knows: the judge shares no code with the accused.
TRACE = "fries_nb.protocol.trace"
JUDGED_BY = {
    "notebook", "experiments", "labs", "__main__", "commands", "compared_runs", "run", "running", "report",
    "simulation", "fries_nb",
}  # fmt: skip
# The package itself holds the public names; these may use it as a user would. `audit` and `workloads` stand aside.
USERS = {"notebook", "experiments", "labs", "__main__", "commands", "workloads"}

CORE = {"worker", "controller", "operators", "protocol", "planning", "constraints", "progress"}
# The cores of a host and of a driver stand beside their processes; clocks, locks and threads come from environments.
HOST_CORE = {
    f"fries_nb.host.{name}"
    for name in (
        "frame_router", "host_chains", "host_core", "host_loop", "host_progress", "host_topology", "hosted_worker",
    )
}  # fmt: skip
DRIVER_CORE = {f"fries_nb.driver.{name}" for name in ("committer", "driver_core", "driver_topology")}
OUTSIDE_WORLD = {
    "time", "threading", "_thread", "socket", "selectors", "select", "zmq", "random", "secrets", "asyncio",
    "concurrent", "multiprocessing", "subprocess", "signal", "queue", "uuid", "pyspark", "py4j",
}  # fmt: skip
NOTEBOOK_ONLY = {"IPython", "ipywidgets", "bokeh", "anywidget", "traitlets", "ipykernel"}
SPARK_ONLY = {"pyspark", "py4j"}
# A benchmark, or an experiment, needs its rival as the rival's own users would write it, and that is plain PySpark.
RIVALS = ("fries_nb.experiments.rivals",)
BAD_WORDS = {"manager", "handler", "context", "helper", "helpers", "util", "utils"}


@functools.cache
def permitted() -> dict[str, set[str]]:
    """For each room, the rooms of the package that it may import ("fries_nb" stands for the public names)."""
    allowed = {
        room: {room, *(below for layer in LAYERS[depth + 1 :] for below in layer)}
        for depth, layer in enumerate(LAYERS)
        for room in layer
    }
    allowed["simulation"] -= {"spark"}  # it stands in for Spark, above the queue of changes that both run
    allowed["audit"] = {"audit", "dataflow", TRACE, "errors"}
    allowed["workloads"] = {"workloads"}
    allowed["__main__"] |= {"notebook", "experiments"}  # the commands start both
    allowed["commands"] |= {"experiments"}
    # The public names, and the extension's hook.
    allowed["fries_nb"] = set(allowed["run"]) | {"compared_runs", "report", "run", "notebook"}
    for rooms in allowed.values():
        rooms |= {TRACE} if "protocol" in rooms else set()
    for room in JUDGED_BY:
        allowed[room].add("audit")
    for room in USERS:
        allowed[room] |= {"fries_nb", "workloads"}
    return allowed


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package: its dotted name and its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def room_of(module: str) -> str:
    """The room a module belongs to: the first part below the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


@functools.cache
def parsed(source: str) -> ast.Module:
    """The syntax tree of a module; several rules ask for it."""
    return ast.parse(source)


def imports_of(tree: ast.Module, package: str) -> Iterator[str]:
    """Dotted names of all that a module imports, at whatever depth; relative ones are made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: package.count(".") + 2 - node.level]
                base = ".".join([*above, *filter(None, [base])])
            # `from fries_nb import run` names a room, `from fries_nb import Dataflow` a public name.
            yield from (f"{base}.{alias.name}" if base == "fries_nb" else base for alias in node.names)


def imported_room(name: str) -> str:
    """The room that an imported name of the package belongs to; "fries_nb" for a public name."""
    if name == TRACE:
        return TRACE
    parts = name.split(".")
    known = {room for layer in LAYERS for room in layer} | {"audit", "workloads"}
    return parts[1] if len(parts) > 1 and parts[1] in known else "fries_nb"


def broken_imports(module: str, source: str, package: str | None = None) -> list[str]:
    """What a module imports against the rules, in words."""
    room, found = room_of(module), []
    for name in imports_of(parsed(source), package or module.rpartition(".")[0] or module):
        top = name.split(".")[0]
        if top == "fries_nb" and imported_room(name) not in permitted()[room]:
            found.append(f"{module}: {room} must not import {imported_room(name)} ({name})")
        if (room in CORE or module in HOST_CORE | DRIVER_CORE) and top in OUTSIDE_WORLD:
            found.append(f"{module}: the core must not import {top}")
        if top in NOTEBOOK_ONLY and room != "notebook":
            found.append(f"{module}: only notebook imports {top}")
        if top in SPARK_ONLY and room != "spark" and not module.startswith(RIVALS):
            found.append(f"{module}: only spark imports {top}")
    return found


def chance_or_clock(module: str, source: str) -> list[str]:
    """Chance and clock that need no import of their own: numpy.random, os.urandom, datetime.now."""
    if room_of(module) not in CORE:
        return []
    attributes = (node for node in ast.walk(parsed(source)) if isinstance(node, ast.Attribute))
    return [
        f"{module}:{node.lineno}: the core must not use .{node.attr}"
        for node in attributes
        if node.attr in {"random", "urandom", "now", "utcnow", "today"} and isinstance(node.value, ast.Name)
        and node.value.id in {"np", "numpy", "os", "datetime", "date"}
    ]  # fmt: skip


def too_long(module: str, source: str) -> list[str]:
    """Files of more than 800 lines and functions of 40 (the docstring apart: an example is not length), in words."""
    found = [f"{module}: {lines} lines"] if (lines := len(source.splitlines())) > 800 else []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if length >= 40:
                found.append(f"{module}.{node.name}: {length} lines")
    return found


def words(name: str) -> set[str]:
    """The lower-case words of a name in snake_case or CamelCase."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def bad_names(module: str, source: str) -> list[str]:
    """Modules, classes and functions called by a word that says nothing."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    names = [module.split(".")[-1], *(node.name for node in ast.walk(parsed(source)) if isinstance(node, kinds))]
    return [f"{module}: {name}" for name in names if words(name) & BAD_WORDS]


@pytest.mark.parametrize("rule", [broken_imports, chance_or_clock, too_long, bad_names])
def test_the_house_keeps_its_rules(rule):
    """Every module of the package obeys every rule of the house."""
    broken = []
    for module, path in modules():
        if rule is broken_imports:
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            broken += broken_imports(module, path.read_text(), package)
        else:
            broken += rule(module, path.read_text())
    assert broken == []


TWICE = {"events"}
"""Names of modules that two rooms have: the events of the controller and of the workers."""


def names_by_module() -> dict[str, list[str]]:
    """Where each name of a module (`__init__` and `__main__` apart) and of a public class occurs in the package."""
    found: dict[str, list[str]] = {}
    for module, path in modules():
        if not path.stem.startswith("__"):
            found.setdefault(path.stem, []).append(module)
        classes = (node.name for node in parsed(path.read_text()).body if isinstance(node, ast.ClassDef))
        for name in classes:
            if not name.startswith("_"):
                found.setdefault(name, []).append(module)
    return found


def test_a_name_means_one_thing():
    """Names of modules and of public classes occur once in the package: none has to be told apart by its room."""
    assert {name: where for name, where in names_by_module().items() if len(where) > 1 and name not in TWICE} == {}


MADE_BY = {
    "EventQueue": {"fries_nb.driver.driver_core"},
    "Journaled": {"fries_nb.driver.driver_core"},
    "DriverTopology": {"fries_nb.driver.driver_core"},
    "HostLoop": {"fries_nb.host.host_core"},
    "FrameRouter": {"fries_nb.host.host_core"},
    "HostChains": {"fries_nb.host.host_core"},
}
"""What the core of a driver or of a host is made of, or says, with the only module that does so."""


def made_by(module: str, source: str) -> set[tuple[str, str]]:
    """The parts of a core that a module makes."""
    called = (node.func for node in ast.walk(parsed(source)) if isinstance(node, ast.Call))
    names = (getattr(one, "id", None) or getattr(one, "attr", None) for one in called)
    return {(name, module) for name in names if name in MADE_BY}


def test_there_is_one_core_of_a_driver_and_one_of_a_host():
    """Runs on Spark and seeded ones share them: no other module queues a controller's events, or runs loops."""
    found = {pair for module, path in modules() for pair in made_by(module, path.read_text())}
    assert found == {(name, module) for name, makers in MADE_BY.items() for module in makers}
    classes = [node.name for _, path in modules() for node in ast.walk(parsed(path.read_text()))
               if isinstance(node, ast.ClassDef)]  # fmt: skip
    assert [classes.count(name) for name in ("DriverCore", "HostCore", "Committer", "ProgressLink")] == [1, 1, 1, 1]
    assert made_by("fries_nb.simulation.cluster", "answers = events.Journaled('u1', 0)")


SHORTEST = 60
SHORT = {
    "fries_nb.__main__": "what `python -m` runs",
    "fries_nb.commands": "a file for each command",
    "fries_nb.words": "one form of durations for all rooms, from constraints to notebooks",
    "fries_nb.experiments.rivals.keyed_job": "a program of its own, which older versions run by its file",
    "fries_nb.locks": "a decorator that several classes of the room share",
    "fries_nb.spark.daemon": "a program of its own, which Spark starts by its name",
    "fries_nb.spark.interrupt": "the handler of a signal, which belongs to the process and not to a run",
    "fries_nb.protocol.progress_locations": "dataflow and progress meet here: neither knows the other",
    "fries_nb.transitions": "the check of a move, which machines of several rooms share",
}
"""Modules of less than ``SHORTEST`` lines, or rooms with such modules, and why they are not part of another."""


def short_modules() -> set[str]:
    """Modules of less than ``SHORTEST`` lines, ``__init__`` apart."""
    return {
        module
        for module, path in modules()
        if path.name != "__init__.py" and len(path.read_text().splitlines()) < SHORTEST
    }


def broken_reasons(short: Collection[str], reasons: Collection[str]) -> list[str]:
    """Short modules without a reason of their own or of their room, and reasons that no short module needs."""
    rooms = {module.rpartition(".")[0] for module in short}
    bare = [module for module in short if module not in reasons and module.rpartition(".")[0] not in reasons]
    stale = [name for name in reasons if name not in short and name not in rooms]
    return sorted([f"{module}: less than {SHORTEST} lines" for module in bare] + [f"{name}: stale" for name in stale])


def test_a_short_module_has_a_reason():
    """A module of a few lines is part of the one where a reader would look for it, or says why it is not."""
    assert broken_reasons(short_modules(), SHORT) == []


def test_a_short_module_without_a_reason_is_seen():
    """The rule is not empty: it misses any reason that is taken away, and sees those that nothing needs."""
    now = short_modules()
    assert all(broken_reasons(now, SHORT.keys() - {name}) for name in SHORT)
    short = {"fries_nb.scheduling.fries", "fries_nb.worker.meters"}
    assert broken_reasons(short, {"fries_nb.scheduling", "fries_nb.worker.inbox", "fries_nb.schedul"}) == [
        "fries_nb.schedul: stale",
        "fries_nb.worker.inbox: stale",
        "fries_nb.worker.meters: less than 60 lines",
    ]


def test_every_room_is_known():
    """A new room has to be given its place among the layers before it can import anything."""
    assert {room_of(module) for module, _ in modules()} - set(permitted()) == set()


def test_tests_are_short_enough_to_be_read():
    """The length of files is bounded in the tests as well."""
    long = [path.name for path in (ROOT / "tests").rglob("*.py") if len(path.read_text().splitlines()) > 800]
    assert long == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("fries_nb.controller.change_steps", "from fries_nb.worker.inbox import Inbox"),
        ("fries_nb.worker.inbox", "import fries_nb.controller.change_steps"),
        ("fries_nb.worker.inbox", "def f():\n    from ..controller import change_steps"),
        ("fries_nb.worker.inbox", "import zmq"),
        ("fries_nb.host.host_core", "import threading"),
        ("fries_nb.driver.driver_core", "import time"),
        ("fries_nb.planning.covering", "from time import monotonic"),
        ("fries_nb.constraints.sequences", "from time import monotonic"),
        ("fries_nb.constraints.monitor", "from fries_nb.worker.outbox import Outbox"),
        ("fries_nb.dataflow.graph", "from fries_nb.progress import tokens"),
        ("fries_nb.dataflow.graph", "import fries_nb"),
        ("fries_nb.audit.judge", "from fries_nb.protocol.messages import WorkerId"),
        ("fries_nb.worker.inbox", "from fries_nb.audit.judge import judge"),
        ("fries_nb.workloads.fraud", "from fries_nb.dataflow.graph import Graph"),
        ("fries_nb.workloads.fraud", "from fries_nb import dataflow"),
        ("fries_nb.run", "from pyspark.sql import SparkSession"),
        ("fries_nb.run", "from fries_nb.notebook import magics"),
        ("fries_nb.running.run_monitor", "from fries_nb.report import run_page"),
        ("fries_nb.simulation.cluster", "from fries_nb.report.runs import run_page"),
        ("fries_nb.experiments.bench.hop", "import pyspark"),
        ("fries_nb.commands.plan", "from IPython import get_ipython"),
        ("fries_nb.host.host", "from fries_nb.simulation import Cluster"),
    ],
)
def test_a_forbidden_import_is_seen(module, line):
    """The import rules are not empty: each of these breaks one."""
    assert len(broken_imports(module, line)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("fries_nb.spark.session", "from pyspark.sql import SparkSession"),
        ("fries_nb.experiments.rivals.hop", "from pyspark.sql import SparkSession"),
        ("fries_nb.run", "from fries_nb.spark.launch import launch\nfrom fries_nb.audit.judge import judge"),
        ("fries_nb.workloads.fraud", "import fries_nb as fn\nfrom fries_nb.workloads.payments import payments_path"),
        ("fries_nb.audit.judge", "import networkx\nfrom fries_nb.protocol.trace import Ran"),
        ("fries_nb.protocol.trace", "from fries_nb.protocol.messages import WorkerId"),
        ("fries_nb.protocol.messages", "from fries_nb.protocol.messages import WorkerId"),
        ("fries_nb.worker.worker", "from fries_nb.constraints.reactions import ResizeBuffer"),
        ("fries_nb.worker.inbox", "from fries_nb.planning.schedulers import Plan\nfrom . import outbox"),
        ("fries_nb.__main__", "from fries_nb.commands import plan"),
        ("fries_nb.commands.demo", "import fries_nb as fn\nfrom fries_nb.experiments.bench import pairs"),
    ],
)
def test_a_permitted_import_passes(module, line):
    """The import rules forbid no more than the design does."""
    assert broken_imports(module, line) == []


def test_length_names_and_chance_are_seen():
    """The other rules are not empty either."""
    body = "\n".join(f"    x{n} = {n}" for n in range(39))
    assert too_long("fries_nb.run", f"def f():\n{body}") == ["fries_nb.run.f: 40 lines"]
    assert too_long("fries_nb.run", "x = 1\n" * 801) == ["fries_nb.run: 801 lines"]
    assert bad_names("fries_nb.spark.utils", "class RunManager: ...\ndef event_handler(): ...\ndef handle(): ...") == [
        "fries_nb.spark.utils: utils",
        "fries_nb.spark.utils: RunManager",
        "fries_nb.spark.utils: event_handler",
    ]
    assert chance_or_clock("fries_nb.worker.bins", "x = np.random.default_rng(0)") != []
