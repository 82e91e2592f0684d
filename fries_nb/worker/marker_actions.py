"""The effect of a marker's action on one operator of a chain."""

from __future__ import annotations

from fries_nb.messages import Commit, Done, Marker, Reconfigure
from fries_nb.operators.instance import Instance
from fries_nb.worker.events import ClosePart, Instruction, TellController


def effect_of(marker: Marker, instance: Instance, ended: bool) -> Done:
    """Carry out the marker's action at this operator, and return the acknowledgement.

    Args:
        marker: a marker that is complete at this worker.
        instance: an operator in the marker's scope.
        ended: whether the worker has ended; a change then has no effect.
    """
    action, worker = marker.action, instance.worker
    if ended:
        if isinstance(action, Reconfigure):
            instance.skip_change(action.change)
        return Done(marker.id, worker, ended=True)
    if isinstance(action, Commit):
        read = instance.processed if instance.operator.traits.is_source else 0
        return Done(marker.id, worker, read=read)
    if not isinstance(action, Reconfigure) or worker.operator not in action.targets:
        return Done(marker.id, worker)
    if action.before in instance.applied:
        instance.supersede_change(action.change)
        return Done(marker.id, worker)
    old_tuples = instance.old_tuples(action.change)
    return Done(marker.id, worker, switched=instance.switch(action.change, action.before), old_tuples=old_tuples)


def acknowledgement(marker: Marker, instance: Instance, ended: bool) -> tuple[Instruction, bool]:
    """Carry out the marker's action at this operator, and make the instruction that acknowledges it.

    The acknowledgement of a commit's marker names the parts that the operator has written, so the current part is
    closed first.

    Args:
        marker: see ``effect_of``.
        instance: see ``effect_of``.
        ended: see ``effect_of``.

    Returns:
        The instruction, and whether the operator runs another function from now on.
    """
    done = effect_of(marker, instance, ended)
    closes = isinstance(marker.action, Commit) and not ended
    return ClosePart(done) if closes else TellController(done), done.switched
