"""How a drawn run of a controller and a crowd of workers ends: the laws of all its interleavings."""

from __future__ import annotations

from controller_crowd import Crowd
from controller_watched import Watched

from fries_nb.controller.change_steps import Changes
from fries_nb.controller.events import Resolved, RunEnded

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
