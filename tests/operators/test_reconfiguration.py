"""Prepare and rehearsal find what can fail about a new function, say it in words, and leave the worker as it is."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from worker_bench import Bench

from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.dataflow.operators import batched
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update
from fries_nb.operators.dry_run import DryRun, Recent, prepare
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.messages import Rehearse, WorkerId
from fries_nb.worker.rehearsal import Rehearsals

ROW = pa.RecordBatch.from_pydict({"n": pa.array([3], type=pa.int32())})


class Counting:
    """Needs a state that is a list."""

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state.append(row["n"])
        return row | {"sum": sum(state)}


class Model:
    def __init__(self, works: bool = True) -> None:
        self.works = works
        self.opened = False

    def open(self) -> None:
        if not self.works:
            raise FileNotFoundError("no model.bin")
        self.opened = True

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"opened": self.opened}


def fails_on_a_row(row: dict[str, Any]) -> dict[str, Any]:
    """Divides by nought on the row at hand."""
    return {"x": 1 / (row["n"] - 3)}


def yields(row: dict[str, Any]) -> Any:
    """A generator."""
    yield row


def order(
    update: Update | bytes, present: Any = lambda row: row, states: Any = (), row: Any = ROW, **more: Any
) -> DryRun:
    """What the shell is told to prepare."""
    payload = update if isinstance(update, bytes) else cloudpickle.dumps(update)
    recent = () if row is None else (Recent(row),)
    return DryRun("u1", WorkerId("FD", 0), payload, Operator("FD", **more), present, states, recent)


def tried(update: Update | bytes, present: Any = lambda row: row, *given: Any, **more: Any) -> Any:
    """The last answer to this update: that of the rehearsal, if it came so far."""
    rehearsals = Rehearsals(lambda: 0)
    made = rehearsals.prepare(order(update, present, *given, **more))
    if made.ready is None or not made.answer.samples:
        return made.answer
    bench = Bench(Operator("FD", function=present, **more))
    return rehearsals.rehearse(WorkerId("FD", 0), Rehearse("u1", {"FD": made.answer.samples}), [bench.worker])[0]


def test_a_function_is_opened_rehearsed_and_ready() -> None:
    """A function is opened rehearsed and ready."""
    assert tried(Update(Model())).writes == {"FD": {"n": "int32", "opened": "bool"}}
    made = prepare(order(Update(Model())))
    assert made.answer.error == ""
    assert made.ready is not None
    assert made.ready.function.opened


@pytest.mark.parametrize(
    ("update", "more", "message"),
    [
        (b"no pickle", {}, "new FD cannot be unpickled here: UnpicklingError"),
        (Update(Model(works=False)), {}, r"new FD failed in open\(\): FileNotFoundError: no model.bin"),
        (Update(fails_on_a_row), {}, "new FD failed in a rehearsal on a recent tuple: .*ZeroDivisionError"),
        (Update(lambda row: [row]), {}, "new FD failed in a rehearsal on a recent tuple: FD returned list"),
        (Update(lambda row: {"x": object()}), {}, "new FD failed in a rehearsal on a recent tuple: .*cannot hold"),
        (
            Update(batched(lambda data: data)),
            {},
            "new FD does not fit: the new function is batched, the running one works row by row",
        ),
        (Update(yields), {}, "new FD does not fit: it is one_to_many, the operator was planned as one_to_one"),
    ],
)
def test_what_fails_is_said_in_words(update: Any, more: Any, message: str) -> None:
    """With a traceback."""
    answer = tried(update, **more)
    assert answer.details
    assert re.search(message, answer.error), answer.error


def test_the_details_start_at_the_users_frame() -> None:
    """The details start at the users frame."""
    details = tried(Update(fails_on_a_row)).details
    files = [line for line in details.splitlines() if line.startswith("  File")]
    assert len(files) == 1
    assert files[0].endswith("in fails_on_a_row")


def kept(*states: Any) -> Any:
    """Copies of these states, as a worker would hand them over."""
    state = KeyedState(list)
    for key, value in enumerate(states):
        state.put(key, value)
    return state.sample(5)


@pytest.mark.parametrize(
    ("transform", "back", "message"),
    [
        (lambda old: old["x"], None, "failed in the state transformation: TypeError"),
        (lambda old: old.append(1), None, "failed in the state transformation: .*returned None; it must return"),
        (lambda old: {"not": "a list"}, None, "failed in a rehearsal on a recent tuple: .*AttributeError"),
        (lambda old: [*old, 3], lambda new: new[3:][0], "failed in the transformation back: IndexError"),
    ],
)
def test_a_transformation_is_tried_on_copies(transform: Any, back: Any, message: str) -> None:
    """There, and back, whichever change may have to go."""
    present = Counting()
    states = [1, 2]
    answer = tried(Update(Counting(), state=transform, back=back), present, kept(states), key=("n",))
    assert re.search(message, answer.error), answer.error
    assert states == [1, 2]


def test_a_rehearsal_sees_a_transformed_state() -> None:
    """A rehearsal sees a transformed state."""
    answer = tried(Update(Counting(), state=lambda old: [*old, 0.5]), Counting(), kept([1]), key=("n",))
    assert answer.writes == {"FD": {"n": "int32", "sum": "double"}}


def test_without_a_row_there_is_no_rehearsal() -> None:
    """Without a row there is no rehearsal."""
    answer = tried(Update(fails_on_a_row), row=None)
    assert (answer.error, answer.samples) == ("", ())


def test_a_batch_function_is_rehearsed_on_a_batch() -> None:
    """A batch function is rehearsed on a batch."""
    present = batched(lambda data: data)
    new = batched(lambda data: data.append_column("k", pa.array(["a"] * data.num_rows)))
    assert tried(Update(new), present).writes == {"FD": {"n": "int32", "k": "string"}}


def test_a_one_to_many_operator_may_become_narrower() -> None:
    """A one to many operator may become narrower."""
    assert tried(Update(lambda row: [row]), yields, kind=Kind.FLAT_MAP, emits=Emits.ONE_TO_MANY).error == ""
    assert tried(Update(lambda row: row), yields, emits=Emits.ONE_TO_MANY).error == ""


def test_a_new_table_writes_its_own_types() -> None:
    """Of a decimal that happens to be short, the table's type counts and not what the value would suggest."""
    table = pa.table({"n": pa.array([3], pa.int32()), "price": pa.array([Decimal("1.25")], pa.decimal128(7, 2))})
    join = JoinTable("J", table, {"n": "n"})
    join.open()
    answer = tried(Update(join), present=join, kind=Kind.JOIN)
    assert (answer.error, answer.writes) == ("", {"FD": {"n": "int32", "price": "decimal128(7, 2)"}})
