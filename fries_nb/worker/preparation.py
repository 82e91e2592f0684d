"""A worker's part of preparing a change: it asks for a trial beside its work, and keeps what comes back."""

from __future__ import annotations

from fries_nb.messages import Prepare
from fries_nb.worker.events import Instruction, Tell
from fries_nb.worker.instance import Instance
from fries_nb.worker.recent import Recent
from fries_nb.worker.reconfiguration import Rehearse, Rehearsed, rehearsal


def begun(order: Prepare, instance: Instance, recent: Recent | None) -> Instruction:
    """Begin to prepare a change of this operator: what the shell has to try out, or a refusal at once.

    ``recent`` is the tuple to rehearse on; ``None`` where there is to be no rehearsal.
    """
    instance.expect(order.change, order.tagged)
    asked = rehearsal(order, instance, recent)
    return asked if isinstance(asked, Rehearse) else kept_ready(asked, instance)


def kept_ready(rehearsed: Rehearsed, instance: Instance) -> Instruction:
    """What was prepared waits for its marker, unless the change was aborted meanwhile; the answer to the controller."""
    answer = rehearsed.answer
    if rehearsed.ready is not None and instance.expects(answer.change):
        instance.prepared[answer.change] = rehearsed.ready
    return Tell(answer)
