"""How a drawn run of a controller and a crowd of workers ends: the laws of all its interleavings."""

from __future__ import annotations

import pyarrow as pa
from controller_crowd import Crowd

from fries_nb.controller.change_steps import Changes
from fries_nb.controller.events import (
    CheckpointKept,
    ColumnRefused,
    Guard,
    Instruction,
    Resolved,
    RunEnded,
    Tell,
)
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.checkpoints import Checkpoint
from fries_nb.protocol.messages import Control, Failed, Marker, Paused, Prepare, Resumed, Unguard, WorkerId


class Watched(Crowd):
    """A crowd under guard.

    Args:
        seed: of everything that happens.
        failures: so many times a worker may fail under guard.
        refusals: so many times a sink may refuse a column.
        world: of ``Crowd``.
    """

    def __init__(self, seed: int, failures: int = 0, refusals: int = 0, **world: int) -> None:
        self.failures, self.refusals, self.columns = failures, refusals, 0
        self.excused = False
        self.guards: dict[str, Guard] = {}
        super().__init__(seed, **world)

    def be_born(self, record: Checkpoint | None) -> None:
        """Nobody keeps what it ran before, or waits."""
        super().be_born(record)
        self.kept: dict[WorkerId, str] = {}
        self.guarded: dict[WorkerId, str] = {}
        self.waits: dict[WorkerId, str] = {}
        self.waiting_workers: set[WorkerId] = set()
        self.dead: set[WorkerId] = set()
        self.ways: dict[tuple[WorkerId, str], str] = {}

    # ---- what may happen

    def guard(self, change: str, targets: frozenset[str]) -> Guard | None:
        """Most changes are under guard, for a while or for as long as the run; some have no way back."""
        self.plans[f"{change}.back"] = "fries"
        if self.rng.random() < 0.2:
            return None
        seconds = self.rng.choice([0.02, 0.2, 1000.0])
        plan = schedule("fries", self.graph, targets)
        self.guards[change] = Guard(plan, self.rng.random() < 0.8, seconds)
        return self.guards[change]

    def misfortune(self) -> None:
        """Besides: a worker fails under guard."""
        free = [w for w in self.workers if w not in self.ended | self.stuck | self.dead | self.spent]
        waiting = [w for w in free if w in self.guarded]
        failing = [w for w in free if w not in self.guarded and self.lasting(w)]
        if not self.failures or not self.admitted or self.held or not (waiting or failing) or self.rng.random() < 0.3:
            super().misfortune()
            return
        self.failures -= 1
        worker = self.rng.choice(waiting + failing)
        if worker in self.guarded:
            self.wait(worker)
            return
        self.dead.add(worker)
        self.stuck.add(worker)
        self.answers[worker].append(Failed(worker, "boom"))

    def lasting(self, worker: WorkerId) -> list[str]:
        """The changes that this worker has switched to, under a guard that lasts and can send the run back."""
        changes = self.laws.past[worker].changes if self.laws.checkpoints else ()
        return [each for each in changes if self.laws.guards.get(each, self) is None and self.guards[each].back]

    def keep(self) -> None:
        """Or a sink cannot commit what the record would make output."""
        record = self.laws.keeping
        if not self.refusals or not record or not record.sinks or not self.laws.checkpoints or self.rng.random() < 0.7:
            super().keep()
            return
        self.refusals -= 1
        self.columns += 1
        column, sink = f"c{self.columns}", self.rng.choice(sorted(record.sinks))
        columns = pa.schema({column: pa.int64()}).serialize().to_pybytes()
        self.laws.refused = column
        self.hear(ColumnRefused(sink, column, columns, "two types"))
        self.hear(CheckpointKept(self.laws.kept("two types"), "two types"))

    def ready(self) -> list[tuple[WorkerId, Marker]]:
        """Whoever has failed takes nothing any more."""
        return [(worker, marker) for worker, marker in super().ready() if worker not in self.dead]

    # ---- what a worker does

    def say(self, worker: WorkerId) -> None:
        """What fails under a guard that lasts ends no run."""
        saved = self.lasting(worker) or self.controller.state == "recovering"
        fails = isinstance(self.answers[worker][0], Failed)
        self.excused = self.excused or (fails and not saved)
        super().say(worker)
        assert not (fails and saved) or self.laws.over is None, f"{worker} failed under guard, and so did the run"

    def wait(self, worker: WorkerId) -> None:
        """A worker waits in front of a tuple, for the rollback of the change that it has switched to."""
        self.waits[worker] = self.guarded[worker]
        self.stuck.add(worker)
        self.answers[worker].append(Paused(worker, "boom", change=self.guarded[worker], chain=(worker.operator,)))

    def pause(self, worker: WorkerId) -> None:
        """Under guard it waits for the rollback instead."""
        if worker in self.guarded:
            self.wait(worker)
        else:
            self.waiting_workers.add(worker)
            super().pause(worker)

    def obey(self, worker: WorkerId, control: Control) -> None:
        """Besides: guards begin and end."""
        match control:
            case Prepare(change=change, guard=guard) if guard:
                self.ways[worker, change] = guard
            case Unguard(change=change, keeps=False) if self.kept.get(worker) != change:
                self.ways.pop((worker, change), None)
            case Unguard(change=change, keeps=keeps) if self.kept.get(worker) == change:
                was = self.guarded.pop(worker, "")
                if not keeps:
                    del self.kept[worker]
                if was and self.waits.get(worker) == change:
                    self.retry(worker)
        super().obey(worker, control)

    def switch(self, worker: WorkerId, change: str, before: str) -> None:
        """Back to what it ran before; or to something new, and then a guard may begin, and another one is over."""
        kept = self.kept.get(worker, "")
        if kept and change == f"{kept}.back":
            self.kept.pop(worker)
            self.guarded.pop(worker, None)
            return
        super().switch(worker, change, before)
        if before != f"{kept}.back":
            self.kept.pop(worker, None)
            self.guarded.pop(worker, None)
        if self.ways.get((worker, change)):
            self.kept[worker] = self.guarded[worker] = change

    def retry(self, worker: WorkerId) -> None:
        """It fails again, and waits or pauses by what it runs now; or gets past its tuple."""
        self.waits.pop(worker, None)
        again = self.rng.random() < 0.3
        if again and worker in self.guarded:
            self.wait(worker)
        elif again:
            self.waiting_workers.add(worker)
            self.answers[worker].append(Paused(worker, "boom again"))
        elif worker in self.waiting_workers:
            self.waiting_workers.discard(worker)
            self.answers[worker].append(Resumed(worker))
        self.stuck -= set() if again else {worker}

    # ---- what the controller says

    def carry_out(self, instruction: Instruction) -> None:
        """Note which guards begin when their change is decided."""
        match instruction:
            case Tell(control=Prepare(change=change, guard=guard)) if guard:
                self.laws.guards.setdefault(change, None)
        super().carry_out(instruction)


FINISHED = RunEnded("finished")


def ends_well(seed: int, **world: int) -> None:
    """A run whose sources end by themselves, at any time."""
    crowd = Crowd(seed, **world)
    crowd.run(lambda: crowd.laws.over is not None and crowd.requested == len(crowd.laws.outcomes))
    assert crowd.laws.over == FINISHED
    crowd.laws.at_the_end()


def ends_well_after_losses(seed: int) -> None:
    """Hosts are lost while workers end, and those that had ended in front of the checkpoint end again."""
    ends_well(seed, checkpoints=True, losses=5)


def rests_well(seed: int, **world: int) -> None:
    """A run that one endless source keeps alive while others end; then it is drained."""
    crowd = Crowd(seed, endless=True, **world)
    crowd.run(lambda: crowd.at_rest() or crowd.laws.over is not None)
    if not crowd.laws.over:
        crowd.drain()
        crowd.run(lambda: crowd.laws.over is not None)
    assert crowd.laws.over == FINISHED
    crowd.laws.at_the_end()


def recovers_well(seed: int) -> None:
    """Hosts are lost at random moments of a run with checkpoints, during recoveries as well."""
    rests_well(seed, checkpoints=True, losses=6)


def is_mended(seed: int) -> None:
    """Workers are paused on tuples until their operator is changed."""
    rests_well(seed, poison=4)


def survives_everything(seed: int) -> None:
    """All at once."""
    rests_well(seed, checkpoints=True, losses=4, poison=3)


def is_rolled_back(seed: int) -> None:
    """What fails under guard is rolled back, in place or from a checkpoint; columns in two types are told."""
    world = {} if seed % 4 == 0 else {"checkpoints": True, "refusals": 2}
    crowd = Watched(seed, endless=True, failures=4, poison=seed % 3, **world)
    crowd.run(lambda: crowd.at_rest() or crowd.laws.over is not None)
    crowd.failures = crowd.refusals = 0
    if not crowd.laws.over:
        crowd.drain()
        crowd.run(lambda: crowd.laws.over is not None)
    assert crowd.laws.over == FINISHED or crowd.excused
    crowd.laws.at_the_end()


def is_rolled_back_after_losses(seed: int) -> None:
    """Sources end at any time, and hosts are lost meanwhile."""
    crowd = Watched(seed, checkpoints=True, losses=3, failures=3, refusals=2)
    crowd.run(lambda: crowd.laws.over is not None and crowd.requested == len(crowd.laws.outcomes))
    assert crowd.laws.over == FINISHED or crowd.excused
    crowd.laws.at_the_end()


def ask_only_the_living(changes, change, now_ns, begin=Changes._begin):
    """Prepare nothing at workers that have ended, as if no recovery could go back to before."""
    gone = changes._workers.ended
    told = [tell for tell in begin(changes, change, now_ns) if isinstance(tell, Resolved) or tell.worker not in gone]
    change.pending_acks -= gone
    return told
