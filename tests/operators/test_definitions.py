"""State holds the classes of the function that uses it: after ``resume``, after a change, and after its rollback."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.updates import Update
from fries_nb.errors import OperatorError
from fries_nb.operators.dry_run import DryRun, prepare
from fries_nb.operators.instance import Instance
from fries_nb.operators.pickled_states import Recipe, dumps, gathered, loads
from fries_nb.protocol.checkpoints import CommittedChange, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.shipping import dumped
from fries_nb.worker.saving import saved
from fries_nb.worker.snapshot import restore

CELL = """
import dataclasses, enum, typing

class Mode(enum.Enum):
    SLOW = 1
    CALM = 1
    FAST = 2

class Marks(enum.Flag):
    RED = 1
    BLUE = 2

@dataclasses.dataclass(slots=True)
class Point:
    x: int
    mode: Mode = Mode.SLOW

class Pair(typing.NamedTuple):
    a: int
    b: int

Item = typing.TypeVar("Item")

class Box(typing.Generic[Item]):
    def __init__(self, item):
        self.item = item

class Outer:
    class Inner(dict):
        pass

class Reduced:
    def __init__(self, n):
        self.n = n
    def __reduce__(self):
        return (made, (self.n,))

def made(n):
    return Reduced(n)

class Total:
    def __init__(self):
        self.total = 0
    def add(self):
        self.total += STEP

STEP = 1

class Summed:
    def initial_state(self):
        return Total()
    def process(self, row, state):
        assert type(state) is Total, "a state of another class"
        state.add()
        return row | {"total": state.total}

class Every:
    def initial_state(self):
        return [Mode.CALM, Marks.RED | Marks.BLUE, Point(1), Pair(1, 2), Box(3), Outer.Inner(a=1), Reduced(4), made]
    def process(self, row, state):
        return row | {"right": held(state)}

def held(state):
    mode, marks, point, pair, box, inner, reduced, function = state
    return (
        mode is Mode.SLOW and marks == Marks.RED | Marks.BLUE and marks.__class__ is Marks
        and isinstance(point, Point) and point == Point(1) and point.mode is Mode.SLOW
        and isinstance(pair, Pair) and type(box) is Box and type(inner) is Outer.Inner
        and type(reduced) is Reduced and function is made
    )
"""

OPERATOR = Operator("M", key=("k",))
WORKER = WorkerId("M", 0)


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Runs a cell, again and again, in a module that is the user's, as ``__main__`` is in a notebook."""
    module = ModuleType("the_users_cells")
    module.__file__ = str(tmp_path / "cells.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def run(text: str) -> ModuleType:
        exec(compile(text, "<cell>", "exec"), vars(module))
        return module

    return run


def instance_of(payload: bytes) -> Instance:
    """A worker with a function, as a host makes it."""
    recipe = Recipe(lambda: __import__("pickle").loads(payload), {})
    with gathered() as definitions:
        function = recipe()
    instance = Instance(WORKER, OPERATOR, function, audit=False)
    instance.recreate = Recipe(recipe.load, definitions)
    return instance


def processed(instance: Instance, key: int) -> Any:
    """What the function makes of a row."""
    return instance.function.process({"k": key}, instance.state.touch(key))


def changed(instance: Instance, change: str, update: Update, guard: str = "") -> str:
    """Prepare a change and switch to it; returns the error of the dry run."""
    order = DryRun(change, WORKER, dumped(update), OPERATOR, instance.function, instance.copies(3), (), guard)
    result = prepare(order)
    if result.ready is not None:
        instance.prepared[change] = result.ready
        instance.switch(change)
    return result.answer.error


def test_all_kinds_of_definitions_in_state_are_those_of_the_next_process(cell: Callable[[str], ModuleType]) -> None:
    """Enums with aliases, flags, dataclasses with slots, named tuples, generics, nested classes, reduced, functions."""
    first = instance_of(dumped(cell(CELL).Every()))
    assert processed(first, 1) == {"k": 1, "right": True}
    snapshot = saved(first)
    assert ("the_users_cells", "Outer.Inner") in snapshot.needs
    later = instance_of(dumped(cell(CELL).Every()))  # as the next process has it: all classes are others
    restore(later, snapshot, ())
    assert processed(later, 1) == {"k": 1, "right": True}


def test_a_corrected_method_takes_effect_for_all_keys(cell: Callable[[str], ModuleType]) -> None:
    """What the state holds stays, what its class does is new."""
    first = instance_of(dumped(cell(CELL).Summed()))
    assert [processed(first, key)["total"] for key in (1, 2, 2)] == [1, 1, 2]
    later = instance_of(dumped(cell(CELL.replace("STEP = 1", "STEP = 100")).Summed()))
    restore(later, saved(first), ())
    assert [processed(later, key)["total"] for key in (1, 2, 3)] == [101, 102, 100]


def test_a_class_that_has_gone_is_named_with_the_operator(cell: Callable[[str], ModuleType]) -> None:
    """It was renamed: no guess is made."""
    first = instance_of(dumped(cell(CELL).Summed()))
    processed(first, 1)
    snapshot = saved(first)
    module = cell(CELL.replace("Total", "Sum"))
    del module.Total, first
    gc.collect()  # a new process has never had it
    later = instance_of(dumped(module.Summed()))
    with pytest.raises(OperatorError, match="cannot be restored: it holds Total of the_users_cells, wh"):
        restore(later, snapshot, ())


def test_a_class_cell_that_runs_again_corrects_the_state_at_the_change_and_not_before(
    cell: Callable[[str], ModuleType],
) -> None:
    """As with autoreload, but as part of the transaction; its guard's rollback returns the class, too."""
    running = instance_of(dumped(cell(CELL).Summed()))
    processed(running, 1), processed(running, 2)
    again = cell(CELL.replace("STEP = 1", "STEP = 100"))
    update = Update(again.Summed())
    assert changed(running, "u1", update, guard="r1") == ""
    assert processed(running, 1)["total"] == 101
    running.switch("r1")
    assert [processed(running, key)["total"] for key in (1, 2)] == [102, 2]


def test_the_users_transformation_gets_states_of_the_corrected_class(cell: Callable[[str], ModuleType]) -> None:
    """The class first, then what the update does with it."""
    running = instance_of(dumped(cell(CELL).Summed()))
    processed(running, 1)
    again = cell(CELL + "\n    def doubled(self):\n        self.total *= 2\n        return self\nTotal.doubled = held")
    again.Total.doubled = lambda self: setattr(self, "total", self.total * 2) or self
    assert changed(running, "u1", Update(again.Summed(), state=lambda total: total.doubled())) == ""
    assert processed(running, 1)["total"] == 3


def test_a_member_that_a_corrected_enum_lacks_is_refused_in_the_dry_run(cell: Callable[[str], ModuleType]) -> None:
    """Nothing has changed anywhere."""
    code = CELL + "\nclass Moded:\n    def initial_state(self):\n        return [Mode.FAST]\n"
    code += "    def process(self, row, state):\n        return row | {'fast': state[0] is Mode.FAST}\n"
    running = instance_of(dumped(cell(code).Moded()))
    assert processed(running, 1)["fast"]
    error = changed(running, "u1", Update(cell(code.replace("    FAST = 2\n", "    FAST = 3\n")).Moded()))
    assert "new M failed in the state transformation: ValueError: 2 is not a valid Mode" in error
    assert processed(running, 1)["fast"]


def test_each_operator_keeps_its_own_version_of_a_class(cell: Callable[[str], ModuleType]) -> None:
    """Only one of two operators is changed; a restart from before and from behind the change finds each right."""
    before = dumped(cell(CELL).Summed())
    one, other = instance_of(before), instance_of(before)
    for instance in (one, other):
        processed(instance, 1)
    early = saved(one)
    update = Update(cell(CELL.replace("STEP = 1", "STEP = 100")).Summed())
    payload = dumped(update)
    assert changed(one, "u1", update) == ""
    assert [processed(instance, 1)["total"] for instance in (one, other)] == [101, 2]
    decided = (CommittedChange("u1", "fries", (("M",),), {"M": payload}),)
    for snapshot, total in ((early, 101), (saved(one), 201)):
        again = instance_of(before)
        restore(again, snapshot, decided)
        assert processed(again, 1)["total"] == total
    again = instance_of(before)
    restore(again, saved(other), ())
    assert processed(again, 1)["total"] == 3


def test_a_rolled_back_change_leaves_the_classes_of_before_to_a_restart(cell: Callable[[str], ModuleType]) -> None:
    """The snapshot was taken behind the guard's rollback."""
    before = dumped(cell(CELL).Summed())
    running = instance_of(before)
    processed(running, 1)
    update = Update(cell(CELL.replace("STEP = 1", "STEP = 100")).Summed())
    payload = dumped(update)
    assert changed(running, "u1", update, guard="r1") == ""
    processed(running, 1)
    running.switch("r1")
    decided = (
        CommittedChange("u1", "fries", (("M",),), {"M": payload}),
        CommittedChange("r1", "fries", (("M",),), {}, undoes="u1"),
    )
    assert processed(running, 1)["total"] == 102
    again = instance_of(before)
    restore(again, saved(running), decided)
    assert processed(again, 1)["total"] == 103


def test_what_has_no_name_is_pickled_by_value(cell: Callable[[str], ModuleType]) -> None:
    """Lambdas, closures and classes in functions cannot be found again; they are as they were."""
    code = """
def local():
    class Own:
        n = 1
    return Own
Own = local()
class Held:
    def initial_state(self):
        return [Own(), lambda: 7]
    def process(self, row, state):
        return row | {"n": state[0].n + state[1]()}
"""
    first = instance_of(dumped(cell(code).Held()))
    assert processed(first, 1)["n"] == 8
    snapshot = saved(first)
    assert not [name for name in snapshot.needs if "Own" in name[1]]
    later = instance_of(dumped(cell(code).Held()))
    restore(later, snapshot, ())
    assert processed(later, 1)["n"] == 8


def test_state_is_small_since_it_holds_no_code(cell: Callable[[str], ModuleType]) -> None:
    """A class by value would come with all that its methods use."""
    running = instance_of(dumped(cell("TABLE = 'x' * 100_000\n" + CELL.replace("+= STEP", "+= len(TABLE)")).Summed()))
    for key in range(10):
        processed(running, key)
    pickled = b"".join(part for parts in saved(running).bins.values() for part in parts)
    assert len(pickled) < 10_000


def test_another_python_finds_the_definitions_that_came_with_the_function(
    cell: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """On a host the user's module does not exist, and ``__main__`` is something else."""
    running = instance_of(dumped(cell(CELL).Every()))
    processed(running, 1)
    (tmp_path / "function").write_bytes(dumped(cell(CELL).Every()))
    (tmp_path / "state").write_bytes(dumps(running.state.touch(1))[0])
    host = """
        import pickle, sys
        from fries_nb.operators.pickled_states import gathered, loads
        with gathered() as definitions:
            function = pickle.loads(open("function", "rb").read())
        assert "the_users_cells" not in sys.modules
        print(function.process({}, loads(open("state", "rb").read(), definitions)))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(host)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert ran.stdout == "{'right': True}\n"


def test_keys_of_timed_operators_and_others_are_found_among_all_that_was_shipped(
    cell: Callable[[str], ModuleType],
) -> None:
    """A class that this function does not use, but another one of the run."""
    module = cell(CELL)
    shipped = instance_of(dumped(module.Summed()))
    pickled, names = dumps(module.Total())
    assert names == {("the_users_cells", "Total")}
    assert type(loads(pickled, {})) is module.Total, shipped


def test_snapshots_of_several_bins_tell_each_need_once(cell: Callable[[str], ModuleType]) -> None:
    """The driver ships what it finds under these names with a resumed run."""
    running = instance_of(dumped(cell(CELL).Summed()))
    for key in itertools.chain(range(50)):
        processed(running, key)
    snapshot: Snapshot = saved(running)
    assert len(snapshot.bins) > 1
    assert snapshot.needs == (("the_users_cells", "Total"),)
