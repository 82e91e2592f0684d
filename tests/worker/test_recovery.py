"""A worker restored from a snapshot does what the one that was snapshotted goes on to do, whatever it is fed.

The uninterrupted worker and the restored one get the same frames behind the marker; what they send on each channel,
their traces and the states that they end in are equal. So they are with changes before the marker, and with changes
decided behind it: the uninterrupted worker applies those on an FCM, the restored one finds them among the decided.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from worker_bench import Bench, change, checkpoint, data, decided, operations

from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.operators.pickled_states import loaded_states
from fries_nb.protocol.checkpoints import CommittedChange, Snapshot
from fries_nb.protocol.messages import ChannelId, Data, Fcm
from fries_nb.protocol.trace import Record
from fries_nb.worker.events import Save, Traced, WorkerTick
from fries_nb.worker.outbox import SendFrame


class Seen:
    """Sums what it has seen of a key; a version of its own, and a first value that depends on it."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        return [1000 * self.version]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state.append(row["n"])
        return row | {"sum": sum(state), "v": self.version}


def twice(version: int) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Two rows for one."""
    return lambda row: [row | {"copy": copy, "w": version} for copy in range(2)]


def chain() -> tuple[Operator, ...]:
    """An operator with keyed state, one that multiplies, one that drops."""
    return (
        Operator("M", function=Seen(), key=("n",)),
        Operator("N", kind=Kind.FLAT_MAP, emits=Emits.ONE_TO_MANY, function=twice(0)),
        Operator("O", kind=Kind.FILTER, function=lambda row: (row["sum"] + row["copy"]) % 3 > 0),
    )


def update_of(number: int) -> dict[str, Update]:
    """What change ``number`` does: to M, to N, or to both."""
    updates = {
        "M": Update(Seen(number), state=lambda old: [*old, 10**number]),
        "N": Update(twice(number)),
    }
    names = (("M",), ("N",), ("M", "N"))[number % 3]
    return {name: updates[name] for name in names}


def apply_change(bench: Bench, number: int) -> CommittedChange:
    """Prepare a change and switch to it at once; what would be decided about it."""
    updates = update_of(number)
    for operator, update in updates.items():
        bench.prepare(operator, f"u{number}", update)
    bench.direct("M", Fcm(change(number, *updates, scope="MNOZ")))
    return decided(f"u{number}", **updates)


def feed(bench: Bench, chance: random.Random, frames: int) -> None:
    """Frames on both channels, worked on in slices of any length."""
    for _ in range(frames):
        bench.arrive(chance.randrange(2), data(*[chance.randrange(12) for _ in range(chance.randint(1, 9))]))
        for _ in range(chance.randrange(3)):
            bench.worker.run(limit=chance.randint(1, 5))
            bench.take()
        bench.run()


def rest_of(bench: Bench, said: int) -> tuple[dict[ChannelId, list[Any]], list[Record]]:
    """What a worker has sent on each channel, and recorded, from this word of it on."""
    bench.worker.handle(WorkerTick())
    bench.take()
    sent: dict[ChannelId, list[Any]] = {}
    for send in (one for one in bench.said[said:] if isinstance(one, SendFrame)):
        for channel in send.channels:
            if isinstance(send.frame, Data):
                sent.setdefault(channel, []).extend(send.frame.batch.to_pylist())
    records = operations(record for one in bench.said[said:] if isinstance(one, Traced) for record in one.records)
    return sent, records


def checkpointed(bench: Bench, number: int) -> tuple[Snapshot, ...]:
    """Take a checkpoint."""
    for index in (0, 1):
        bench.arrive(index, checkpoint(number, "AMNOZ"))
    bench.run()
    return [one.snapshots for one in bench.said if isinstance(one, Save)][-1]


def opened(snapshots: tuple[Snapshot, ...], before: tuple[Snapshot, ...] = ()) -> list[Any]:
    """Snapshots, with what they build on, and their states unpickled: two pickles of one value may differ."""
    found = []
    for position, one in enumerate(snapshots):
        parts = dict(before[position].bins) if one.since else {}
        parts |= {bin_: parts.get(bin_, ()) + later for bin_, later in one.bins.items()}
        states = {bin_: loaded_states(some, {}) for bin_, some in sorted(parts.items())}
        found.append((replace(one, bins={}, since=0), states))
    return found


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("seed", range(15))
def test_a_restored_worker_goes_on_as_the_one_that_was_not_interrupted(seed: int, later: int) -> None:
    """``later`` changes are decided behind the marker, up to two are applied in front of it."""
    chance = random.Random(seed)
    bench = Bench(*chain(), audit=True, receivers=3)
    changes = []
    for number in range(1, 1 + chance.randrange(3)):
        feed(bench, chance, chance.randrange(4))
        changes.append(apply_change(bench, number))
    feed(bench, chance, chance.randrange(5))
    snapshots = checkpointed(bench, 10)
    said = len(bench.said)
    changes += [apply_change(bench, number) for number in range(5, 5 + later)]
    fed = chance.getstate()
    feed(bench, chance, 6)
    expected = rest_of(bench, said)

    again = Bench(*chain(), audit=True, receivers=3, snapshots=snapshots, decided=changes)
    chance.setstate(fed)
    feed(again, chance, 6)
    sent, records = rest_of(again, 0)
    assert sent == expected[0]
    assert by_operator(records) == by_operator(expected[1])
    assert opened(checkpointed(again, 20)) == opened(checkpointed(bench, 20), snapshots)


def by_operator(records: list[Record]) -> dict[str, list[Any]]:
    """Each operator's records one by one: how many were handed out together does not matter."""
    found: dict[str, list[Any]] = {}
    for record in records:
        transactions = getattr(record, "transactions", None)
        found.setdefault(record.operator, []).extend([record] if transactions is None else transactions)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_restored_at_once_is_saved_as_it_was(seed: int) -> None:
    """Save, restore, save: nothing is added and nothing is lost; without a snapshot it begins at the beginning."""
    chance = random.Random(seed)
    bench = Bench(*chain(), receivers=3)
    feed(bench, chance, 5)
    changes = [apply_change(bench, 1)]
    feed(bench, chance, 5)
    snapshots = checkpointed(bench, 10)
    again = Bench(*chain(), receivers=3, snapshots=snapshots, decided=changes)
    assert opened(checkpointed(again, 10)) == opened(snapshots)
    first = Bench(*chain(), receivers=3, decided=changes)
    feed(first, random.Random(seed), 3)
    switched = Bench(*chain(), receivers=3)
    apply_change(switched, 1)
    feed(switched, random.Random(seed), 3)
    assert opened(checkpointed(first, 10)) == opened(checkpointed(switched, 10))
