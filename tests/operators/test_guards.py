"""A worker under guard: a tuple that its chain fails on waits for the rollback, and has left nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from worker_bench import Bench, change, data, decided

from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.operators.dry_run import DryRun, prepare
from fries_nb.operators.instance import Instance
from fries_nb.protocol.checkpoints import CommittedChange, Snapshot
from fries_nb.protocol.messages import (
    Data,
    Done,
    Failed,
    Fcm,
    Marker,
    Paused,
    Prepare,
    Reconfigure,
    Resumed,
    Unguard,
    WorkerId,
)
from fries_nb.protocol.trace import RanMany, Updated
from fries_nb.worker.events import Traced, WorkerTick
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.snapshot import restore

M = WorkerId("M", 0)


def old(row: dict[str, Any]) -> dict[str, Any]:
    """What runs in the beginning."""
    return row | {"v": 1}


def bad(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on the third tuple."""
    if row["n"] == 3:
        raise ValueError("not 3")
    return row | {"v": 2}


def guarded(bench: Bench, name: str, function: Any, number: int = 1) -> None:
    """A change of one operator under guard, all the way."""
    payload = cloudpickle.dumps(Update(function))
    order = Prepare(f"u{number}", payload, rehearse=False, guard=f"u{number}.back")
    bench.direct(name, order)
    for one in bench.take():
        if isinstance(one, DryRun):
            bench.worker.handle(prepare(one))
    bench.direct(name, Fcm(change(number, name, scope=name)))
    bench.run()


def rolled_back(bench: Bench, name: str) -> None:
    """The rollback's FCM comes."""
    bench.direct(name, Fcm(Marker(9, frozenset(name), Reconfigure("u1.back", frozenset(name)))))
    bench.run()


def rows(bench: Bench) -> list[tuple[int, int]]:
    """(n, v) of all that left."""
    bench.take()
    frames = [one.frame for one in bench.said if isinstance(one, SendFrame)]
    return [(row["n"], row["v"]) for one in frames if isinstance(one, Data) for row in one.batch.to_pylist()]


@pytest.mark.parametrize("policy", ["fail", "pause", memory()])
def test_a_tuple_that_fails_is_processed_by_what_ran_before(policy: Any) -> None:
    """Whatever the operator's policy: nothing failed, nobody is told to fix it, no dead letter was written."""
    bench = Bench(Operator("M", function=old, on_error=policy))
    guarded(bench, "M", bad)
    bench.arrive(0, data(1, 2, 3, 4))
    bench.run()
    [paused] = bench.answers(Paused)
    assert (paused.worker, paused.change, paused.error) == (M, "u1", "M failed on a tuple: ValueError: not 3")
    rolled_back(bench, "M")
    assert rows(bench) == [(1, 2), (2, 2), (3, 1), (4, 1)]
    assert bench.answers(Failed) == bench.answers(Resumed) == []
    assert [done.switched for done in bench.answers(Done)] == [True, True]
    assert bench.worker.instances[0].applied == ("u1", "u1.back")


def test_without_its_guard_the_tuple_follows_the_policy() -> None:
    """It is tried again, and fails the run; a rollback may still come to what has not failed."""
    bench = Bench(Operator("M", function=old))
    guarded(bench, "M", bad)
    bench.arrive(0, data(3))
    bench.run()
    bench.direct("M", Unguard("u2"))
    bench.run()
    assert bench.answers(Failed) == []
    bench.direct("M", Unguard("u1", keeps=True))
    bench.run()
    assert [failed.error for failed in bench.answers(Failed)] == ["M failed on a tuple: ValueError: not 3"]
    rolled_back(bench, "M")
    assert bench.worker.instances[0].function({"n": 3}) == {"n": 3, "v": 1}


def test_a_guard_that_ends_before_the_switch_begins_nowhere() -> None:
    """A fix was ordered ahead of its change. A rollback that may still come needs what ran before all the same."""
    for keeps in (False, True):
        bench = Bench(Operator("M", function=old))
        bench.direct("M", Prepare("u1", cloudpickle.dumps(Update(bad)), rehearse=False, guard="u1.back"))
        for one in bench.take():
            if isinstance(one, DryRun):
                bench.worker.handle(prepare(one))
        bench.direct("M", Unguard("u1", keeps=keeps))
        bench.direct("M", Fcm(change(1, "M", scope="M")))
        bench.arrive(0, data(3))
        bench.run()
        assert bool(bench.answers(Failed)) == (not keeps)
        assert [paused.change for paused in bench.answers(Paused)] == (["u1"] if keeps else [])


def test_a_later_change_ends_the_guard() -> None:
    """What ran before the first is let go."""
    bench = Bench(Operator("M", function=old))
    guarded(bench, "M", bad)
    guarded(bench, "M", old, number=2)
    bench.direct("M", Unguard("u2"))
    bench.arrive(0, data(3))
    bench.run()
    assert rows(bench) == [(3, 1)]
    assert bench.worker.instances[0].guarded == ""


def test_a_chain_takes_a_tuple_as_a_whole_or_not_at_all() -> None:
    """The operator in front, whose first row of the tuple had passed, counts and traces it once."""

    def twice(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield row | {"half": 0}
        yield row | {"half": 1}

    def second(row: dict[str, Any]) -> dict[str, Any]:
        if row["half"]:
            raise ValueError("no")
        return row | {"v": 2}

    bench = Bench(Operator("L", kind=Kind.FLAT_MAP, function=twice), Operator("M", function=old), audit=True)
    guarded(bench, "M", second)
    bench.arrive(0, data(1))
    bench.run()
    assert bench.answers(Paused)[0].worker == M
    assert rows(bench) == []
    rolled_back(bench, "M")
    assert rows(bench) == [(1, 1), (1, 1)]
    bench.worker.handle(WorkerTick())
    bench.take()
    traced = [record for one in bench.said if isinstance(one, Traced) for record in one.records]
    ran = [(one.operator, one.transactions) for one in traced if isinstance(one, RanMany)]
    assert ran == [("L", (1,)), ("M", (1, 1))]
    assert [one.id for one in traced if isinstance(one, Updated)] == ["u1", "u1.back"]
    assert [instance.processed for instance in bench.worker.instances] == [1, 2]


def test_an_operator_in_front_of_the_changed_one_follows_its_own_policy() -> None:
    """Its failure is none of the new configuration."""
    bench = Bench(Operator("L", function=bad), Operator("M", function=old))
    guarded(bench, "M", old)
    bench.arrive(0, data(3))
    bench.run()
    assert bench.answers(Paused) == []
    assert [failed.worker for failed in bench.answers(Failed)] == [WorkerId("L", 0)]


def test_a_worker_restored_behind_a_rollback_runs_what_ran_before_in_its_name() -> None:
    """Though the function that was undone is not shipped any more: so the audit finds no switch without effect."""
    first = decided("u0", M=Update(bad))
    gone = CommittedChange("u1", "fries", (("M",),), {}, superseded=("M",))
    back = CommittedChange("u1.back", "fries", (("M",),), {}, undoes="u1")
    instance = Instance(M, Operator("M", function=old), old, audit=True)
    restore(instance, Snapshot("M", 0, 5, ("u0", "u1", "u1.back")), (first, gone, back))
    assert (instance.identity, instance.function({"n": 1})) == ("u1.back", {"n": 1, "v": 2})


class Keeps:
    """Has a generator in its state, of which there is no copy."""

    def initial_state(self) -> dict[str, Any]:
        return {"numbers": iter(number for number in range(9))}

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        return row | {"got": next(state["numbers"])}


def test_a_guard_is_no_worse_than_none_where_a_neighbours_state_cannot_be_copied() -> None:
    """Tuples pass; one that the new function fails on cannot be taken back, so it fails the run, as without a guard."""
    bench = Bench(Operator("L", function=Keeps(), key=("n",)), Operator("M", function=old))
    bench.arrive(0, data(1, 3))
    bench.run()
    guarded(bench, "M", bad)
    bench.arrive(0, data(1, 2, 3))
    bench.run()
    assert rows(bench) == [(1, 1), (3, 1)]  # what the failing tuple's slice had made goes with the run
    assert bench.answers(Paused) == []
    [failed] = bench.answers(Failed)
    assert failed.worker == M
    assert failed.error.endswith("not 3 (no rollback in place: the state of another operator cannot be copied)")
