"""A worker at rest: what it hands over at a checkpoint's marker, and how an instance is brought back from that."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest
from worker_bench import Bench, Sum, change, checkpoint, data, decided, operations, version

from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.errors import OperatorError, ProtocolError
from fries_nb.operators.instance import Instance
from fries_nb.operators.pickled_states import loaded_states, part_of_states
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Snapshot
from fries_nb.protocol.messages import Commit, Done, End, Ended, Failed, Fcm, Marker, Saved, WorkerId
from fries_nb.protocol.trace import RanMany, Updated, Wrote
from fries_nb.worker.events import Save, TellController, Traced
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.saving import Saving, saved
from fries_nb.worker.snapshot import restore, restore_ended


class Reluctant:
    """A function that cannot be opened."""

    def open(self) -> None:
        raise RuntimeError("no model here")

    def process(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


class Gone:
    """Something that can be pickled, and not brought back."""

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


def keyed() -> Operator:
    """An operator with keyed state."""
    return Operator("M", function=Sum(), key=("n",))


def take_checkpoint(bench: Bench, number: int = 1) -> None:
    """A checkpoint's marker comes on every channel."""
    for index in range(len(bench.incoming)):
        bench.arrive(index, checkpoint(number))
    bench.run()


def snapshot_of(bench: Bench) -> Snapshot:
    """What the last operator of the bench's worker has handed over last."""
    bench.take()
    return [one.snapshots for one in bench.said if isinstance(one, Save)][-1][-1]


def states(snapshot: Snapshot) -> dict[Any, Any]:
    """Key to state, of all bins."""
    return {key: state for parts in snapshot.bins.values() for key, state in loaded_states(parts, {}).items()}


def instance(operator: Operator | None = None, audit: bool = False) -> Instance:
    """An instance by itself."""
    operator = operator or keyed()
    return Instance(WorkerId(operator.name, 0), operator, operator.function, audit)


def test_the_trace_the_acknowledgements_and_the_snapshot_come_in_this_order() -> None:
    """The trace so far belongs to the checkpoint, so it is handed out before the acknowledgement that closes it."""
    bench = Bench(keyed(), Operator("N", function=version(1)), audit=True)
    bench.arrive(0, data(1, 2))
    bench.run()
    said = len(bench.said)
    for index in (0, 1):
        bench.arrive(index, checkpoint(7, "AMNZ"))
    bench.run()
    told = [one for one in bench.said[said:] if not isinstance(one, SendFrame)]
    assert [type(one) for one in told] == [Traced, Traced, TellController, TellController, Save]
    assert operations(told[0].records) == [RanMany((1, 2), "M")]
    assert [one.answer for one in told[2:4]] == [Done(7, WorkerId("M", 0)), Done(7, WorkerId("N", 0))]
    assert (told[4].epoch, [(one.operator, one.index) for one in told[4].snapshots]) == (7, [("M", 0), ("N", 0)])
    assert bench.sent[-1] == checkpoint(7, "AMNZ")


def test_a_snapshot_holds_what_came_in_front_of_the_marker_on_every_channel_and_nothing_else() -> None:
    """A snapshot holds what came in front of the marker on every channel and nothing else."""
    bench = Bench(keyed())
    for frame in (data(1), checkpoint(1), data(2)):
        bench.arrive(0, frame)
    bench.arrive(1, data(3))
    bench.run()
    bench.arrive(1, checkpoint(1))
    bench.run()
    part = snapshot_of(bench)
    assert (part.processed, part.applied, states(part)) == (2, (), {1: [1], 3: [3]})
    assert bench.worker.instances[0].processed == 3


def test_state_is_settled_before_it_is_saved_and_bins_are_those_of_the_routing() -> None:
    """State is settled before it is saved and bins are those of the routing."""
    bench = Bench(keyed())
    bench.arrive(0, data(*range(40)))
    bench.run()
    bench.prepare("M", "u1", Update(Sum(), state=lambda old: [*old, -1]))
    bench.direct("M", Fcm(change(1, "M")))
    take_checkpoint(bench, 2)
    part = snapshot_of(bench)
    assert part.applied == ("u1",)
    assert states(part) == {n: [n, -1] for n in range(40)}
    live = bench.worker.instances[0].state
    assert {number: loaded_states(parts, {}) for number, parts in part.bins.items()} == live.bins()
    assert len(part.bins) > 1


def test_a_commit_without_checkpoint_and_an_ended_worker_save_nothing() -> None:
    """A commit without checkpoint and an ended worker save nothing."""
    bench = Bench(keyed())
    bench.direct("M", Fcm(Marker(1, frozenset("AMZ"), Commit(1))))
    for index in (0, 1):
        bench.arrive(index, End())
    bench.run()
    bench.direct("M", Fcm(checkpoint(2)))
    assert bench.answers(Done) == [Done(1, WorkerId("M", 0)), Done(2, WorkerId("M", 0), ended=True)]
    assert not [one for one in bench.said if isinstance(one, Save)]


@pytest.mark.parametrize("by_fcm", [True, False])
def test_a_transformation_that_fails_at_the_checkpoint_fails_the_operator_and_saves_nothing(
    by_fcm: bool,
) -> None:
    """The marker has been passed on by then."""
    bench = Bench(keyed())
    bench.arrive(0, data(1, 2, 3, 4, 5))
    bench.run()

    def picky(old: list[int]) -> list[int]:
        if old == [5]:
            raise ValueError("not five")
        return old

    bench.prepare("M", "u1", Update(Sum(), state=picky))
    bench.direct("M", Fcm(change(1, "M")))
    if by_fcm:
        bench.direct("M", Fcm(checkpoint(2)))
        bench.run()
    else:
        take_checkpoint(bench, 2)
    (failed,) = bench.answers(Failed)
    assert (failed.worker, failed.error) == (
        WorkerId("M", 0),
        "the state transformation of M failed: ValueError: not five",
    )
    assert failed.details.splitlines()[1].endswith("in picky")
    assert bench.worker.failed
    assert not [one for one in bench.said if isinstance(one, Save)]


def test_a_state_that_cannot_be_pickled_costs_the_checkpoint_and_not_the_run() -> None:
    """A state that cannot be pickled costs the checkpoint and not the run."""
    bench = Bench(keyed())
    bench.worker.instances[0].state.put(1, threading.Lock())
    take_checkpoint(bench)
    (answer,) = bench.answers(Saved)
    assert (answer.epoch, answer.worker, answer.name) == (1, WorkerId("M", 0), "")
    assert answer.error.startswith("the state of M cannot be saved: TypeError: cannot pickle")
    assert len(bench.answers(Done)) == 1
    bench.arrive(0, data(7))
    bench.run()
    assert bench.sent[-1]["n"] == 7


def test_a_sources_position_does_not_count_what_waits_in_its_inbox() -> None:
    """A sources position does not count what waits in its inbox."""
    bench = Bench(Operator("M", kind=Kind.SOURCE))
    bench.arrive(0, data(1, 2, 3))
    bench.run()
    bench.arrive(0, data(4, 5))
    bench.direct("M", Fcm(checkpoint(1, "MZ")))
    bench.run()
    assert snapshot_of(bench).processed == 3


@pytest.mark.parametrize(
    ("key", "values"),
    [((), [None]), (("a",), [1, None, 2**40]), (("a",), ["x", "y", ""]), (("a", "b"), [(1, "x"), (2, None)])],
)
def test_every_sort_of_key_comes_back(key: tuple[str, ...], values: list[Any]) -> None:
    """No key, whole numbers, text, nulls, several columns."""
    one, other = (instance(Operator("M", function=Sum(), key=key)) for _ in range(2))
    one.state.load({value: deque([number]) for number, value in enumerate(values)})
    restore(other, saved(one), ())
    assert other.state.live == one.state.live


def test_an_instance_runs_the_last_function_decided_for_it_with_later_changes_on_top() -> None:
    """The function is of the last change; the transformations are those that the snapshot has missed, in order."""
    before = Snapshot("M", 0, 9, ("u1",), {0: (part_of_states({1: [1]})[0],)})
    changes = [
        decided("u1", M=Update(version(1), state=lambda old: [*old, "never"])),
        decided("u2", M=Update(version(2), state=lambda old: [*old, "two"]), N=Update(version(0))),
        decided("u3", N=Update(version(3))),
        decided("u4", M=Update(Sum(), state=lambda old: [*old, "four"])),
    ]
    restored = instance(audit=True)
    restore(restored, before, changes)
    assert (restored.processed, restored.applied, type(restored.function).__name__) == (9, ("u1", "u2", "u4"), "Sum")
    assert operations(restored.records()) == [Updated("u2", "M"), Updated("u4", "M")]
    assert restored.state.waiting == 1
    assert restored.state.touch(1) == [1, "two", "four"]
    assert restored.state.touch(2) == []


def test_the_trace_of_a_restored_instance_begins_with_the_number_of_records_before_it() -> None:
    """In front of the changes that it catches up with; each time that it is restored, and not if it begins anew."""
    before, changes = Snapshot("M", 0, 9, traced=(9, 1, 2)), [decided("u1", M=Update(version(1)))]
    restored = instance(audit=True)
    for _ in range(2):
        restore(restored, before, changes)
        assert restored.records() == [
            Wrote("M", 0, ran=9, updated=1, emitted=2, function="u1"),
            Updated("u1", "M"),
            Wrote("M", 0, ran=9, updated=2, emitted=2, function="u1"),
        ]
    restore(restored, before, [])
    assert [type(record) for record in restored.records()] == [Wrote]
    restore(restored, None, changes)
    assert [type(record) for record in restored.records()] == [Updated, Wrote]


def test_without_a_snapshot_an_instance_begins_with_the_decided_function() -> None:
    """Without a snapshot an instance begins with the decided function."""
    restored = instance(Operator("M", function=version(1)))
    restore(restored, None, [decided("u1", M=Update(version(2)))])
    assert (restored.processed, restored.applied, restored.function({})) == (0, ("u1",), {"v": 2})
    untouched = instance(Operator("M", function=version(1)))
    restore(untouched, None, [decided("u1", N=Update(version(2)))])
    assert (untouched.applied, untouched.function({})) == ((), {"v": 1})


def test_an_operator_without_later_changes_runs_what_its_snapshot_had_applied() -> None:
    """An operator without later changes runs what its snapshot had applied."""
    restored = instance(audit=True)
    restore(restored, Snapshot("M", 0, 1, ("u1",)), [decided("u1", M=Update(version(7)))])
    assert restored.function({}) == {"v": 7}
    assert operations(restored.records()) == []


def test_to_restore_is_idempotent_and_leaves_the_original_alone() -> None:
    """To restore is idempotent and leaves the original alone."""
    one, other = instance(audit=True), instance(audit=True)
    one.state.touch(1).append(1)
    snapshot = saved(one)
    changes = [decided("u1", M=Update(Sum(), state=lambda old: [*old, 0]))]
    restore(other, snapshot, changes)
    for _ in range(2):
        restore(other, snapshot, changes)
        assert other.state.waiting == 1
        assert (other.applied, other.state.touch(1), other.state.waiting) == (("u1",), [1, 0], 0)
        other.state.touch(1).append("not for long")
        other.state.touch(2)
        other.log.runs_by("").append(5)
    restore(other, snapshot, changes)
    assert operations(other.records()) == [Updated("u1", "M")]
    assert one.state.live == {1: [1]}


def test_a_worker_that_had_ended_records_no_change() -> None:
    """Its trace is closed, and no function is put in its place: nobody may have tried the new one there."""
    record = Checkpoint("r", 3, 1, {}, ended=("M[0]",), decided=("u1",))
    restored = instance(audit=True)
    restore_ended(restored, record)
    assert operations(restored.records()) == []
    assert (len(restored.state), restored.processed, restored.applied) == (0, 0, ("u1",))


@pytest.mark.parametrize(
    ("before", "changes", "words"),
    [
        (Snapshot("N", 0, 0), [], r"M\[0\] was to be restored from a snapshot of N\[0\]"),
        (Snapshot("M", 1, 0), [], r"M\[0\] was to be restored from a snapshot of M\[1\]"),
    ],
)
def test_a_snapshot_that_is_not_the_instances_is_refused(
    before: Snapshot, changes: list[CommittedChange], words: str
) -> None:
    """A snapshot that is not the instances is refused, and nothing is restored."""
    restored = instance()
    with pytest.raises(ProtocolError, match=words):
        restore(restored, before, changes)
    assert restored.applied == ()


@pytest.mark.parametrize(
    ("before", "changes", "words"),
    [
        (None, [decided("u1", M=Update(Reluctant()))], r"M failed in open\(\): RuntimeError: no model here"),
        (
            None,
            [CommittedChange("u1", "fries", (), {"M": b"?"})],
            "new M of change 'u1' cannot be unpickled here: Unpickling",
        ),
        (
            Snapshot("M", 0, 0, (), {0: (part_of_states({1: Gone()})[0],)}),
            [],
            "the state of M cannot be restored: ValueError: invalid literal",
        ),
    ],
)
def test_a_users_code_that_fails_when_restored_is_told_by_the_operators_name(
    before: Snapshot | None, changes: list[CommittedChange], words: str
) -> None:
    """A users code that fails when restored is told by the operators name."""
    with pytest.raises(OperatorError, match=words) as raised:
        restore(instance(), before, changes)
    assert raised.value.operator == "M"


def test_a_worker_continues_the_round_of_its_rebalanced_edges() -> None:
    """A worker continues the round of its rebalanced edges."""
    bench = Bench(Operator("M", function=version(1)), receivers=3)
    bench.arrive(0, data(1, 2))
    bench.run()
    take_checkpoint(bench)
    snapshot = snapshot_of(bench)
    assert snapshot.round_robin_positions == {"Z": 2}
    restored = Bench(Operator("M", function=version(1)), receivers=3, snapshots=[snapshot])
    restored.arrive(0, data(3))
    restored.run()
    (send,) = [one for one in restored.said if isinstance(one, SendFrame)]
    assert send.channels[0].receiver == WorkerId("Z", 2)


def test_a_round_goes_on_among_another_number_of_receivers() -> None:
    """At any number of workers a checkpoint is resumed: a turn beyond the last receiver is one of the first."""
    snapshot = Snapshot("M", 0, 0, round_robin_positions={"Z": 2})
    restored = Bench(Operator("M", function=version(1)), receivers=2, snapshots=[snapshot])
    restored.arrive(0, data(3))
    restored.run()
    (send,) = [one for one in restored.said if isinstance(one, SendFrame)]
    assert send.channels[0].receiver == WorkerId("Z", 0)


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (Snapshot("M", 1, 0, round_robin_positions={"Z": 0}), r"a snapshot of M\[1\]"),
        (Snapshot("N", 0, 0, round_robin_positions={"Z": 0}), r"a snapshot of N\[0\]"),
        (Snapshot("M", 0, 0, round_robin_positions={"Z": -1}), "do not fit out-edges to {'Z': 3}"),
        (Snapshot("M", 0, 0, round_robin_positions={"Y": 0}), "do not fit out-edges to {'Z': 3}"),
    ],
)
def test_a_worker_refuses_a_snapshot_of_another_place(snapshot: Snapshot, words: str) -> None:
    """A worker refuses a snapshot of another place."""
    operator = Operator("M", function=version(1))
    with pytest.raises(ProtocolError, match=words):
        Bench(operator, receivers=3, snapshots=[snapshot])


def test_dead_letters_are_closed_and_handed_in_by_the_operator_that_wrote_them() -> None:
    """At a commit with its acknowledgement, at the end with its last word."""
    bench = Bench(Operator("M", function=version(1)), Operator("N", function=version(1)))
    letters = bench.keep_letters(1)
    bench.direct("M", Fcm(Marker(1, frozenset("AMNZ"), Commit(1))))
    bench.direct("M", Fcm(change(2, scope="MNZ")))
    assert [done.files for done in bench.answers(Done)] == [(), ("part-1",), (), ()]
    for index in (0, 1):
        bench.arrive(index, End())
    bench.run()
    assert bench.answers(Ended) == [Ended(WorkerId("M", 0)), Ended(WorkerId("N", 0), ("part-2",))]
    bench.direct("M", Fcm(Marker(3, frozenset("AMNZ"), Commit(3))))
    assert letters.parts == 2


class Refuses:
    """A state that raises when it is pickled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


def nested(depth: int) -> list[Any]:
    """A list in a list in a list ..."""
    held: list[Any] = []
    for _ in range(depth):
        held = [held]
    return held


@pytest.mark.parametrize(
    "state",
    [
        Refuses(SystemExit("no")), Refuses(MemoryError("no")), Refuses(TypeError("no")), nested(100_000),
        threading.Lock(), (each for each in ()),
    ],
)  # fmt: skip
def test_whatever_pickling_a_state_raises_fails_the_checkpoint_and_not_the_worker(state: Any) -> None:
    """It is answered, and the worker goes on."""
    one = instance()
    one.state.touch("c7").append(state)
    answer = Saving(4, [one], {}, 0, lambda: 0).advance(99)
    assert isinstance(answer, TellController)
    assert isinstance(answer.answer, Saved)
    assert answer.answer.error.startswith("the state of M cannot be saved: ")
