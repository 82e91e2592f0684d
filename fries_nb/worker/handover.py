"""State with which one operator begins, or goes on, and which another has at the marker of a change of the shape.

By this a shadow begins with the state of what it shadows, and is promoted with its own. The giver makes a copy when it
applies the marker, so between two tuples, and sends it to the worker of the heir that has its index, which owns the
same bins. The heir takes no tuple from its own switch on, or if it is added by the change from its beginning, until all
of the copy has come: which may be before its switch.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import Reconfigure
>>> workers = WorkerId("FM", 0), WorkerId("FM~shadow", 0)
>>> old, new = (Instance(one, Operator(one.operator, key=("k",)), dict, audit=False) for one in workers)
>>> old.state.touch(7)["seen"] = 3
>>> marker = Marker(1, frozenset(("FM",)), Reconfigure("u1", frozenset(), epoch=2, inherits=(("FM~shadow", "FM"),)))
>>> giver, heir = Handover(), Handover()
>>> heir.expect(new.worker)
>>> [shipped] = giver.give(marker, [old])
>>> heir.waits, heir.take(shipped, new), heir.waits, new.state.touch(7)
(True, True, False, {'seen': 3})
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

from fries_nb.errors import OperatorError, exception_text
from fries_nb.operators.instance import Instance, user_traceback
from fries_nb.operators.pickled_states import copied
from fries_nb.protocol.messages import Marker, MovedBins, Reconfigure, WorkerId

PIECE_BYTES = 256 * 1024
"""Size in bytes from which on a piece is complete."""


class Handover:
    """The states that the operators of one worker give, and wait for."""

    def __init__(self) -> None:
        self._awaited: set[WorkerId] = set()
        self._came: dict[WorkerId, list[MovedBins]] = {}

    @property
    def waits(self) -> bool:
        """Whether the worker takes no tuple, since a state is still to come."""
        return bool(self._awaited)

    def expect(self, heir: WorkerId) -> None:
        """Take no tuple before all of the state has come to this operator, which is added by the change."""
        self._awaited.add(heir)

    def give(self, marker: Marker, instances: Iterable[Instance]) -> list[MovedBins]:
        """Copy the states that these operators give at a marker; returns what is to be shipped.

        Raises:
            OperatorError: a state cannot be copied.
        """
        action, shipped = marker.action, list[MovedBins]()
        assert isinstance(action, Reconfigure), "only a change of the shape hands states over"
        heirs = {giver: heir for heir, giver in action.inherits}
        for instance in instances:
            name, index = instance.worker
            if name in heirs:
                pieces = [*_pieces(instance)]
                to = WorkerId(heirs[name], index)
                shipped += [MovedBins(to, marker.id, (), states, pieces=len(pieces)) for states in pieces]
        return shipped

    def switch(self, marker: Marker, instances: Iterable[Instance]) -> None:
        """Wait for the states with which these operators go on, unless all has come; raises as ``take`` does."""
        assert isinstance(marker.action, Reconfigure), "see give"
        heirs = dict(marker.action.inherits)
        for instance in instances:
            if instance.worker.operator in heirs:
                self._awaited.add(instance.worker)
                self._load_if_complete(instance)

    def take(self, moved: MovedBins, instance: Instance) -> bool:
        """Take a piece of the state of this operator; returns whether all has come.

        Raises:
            OperatorError: it cannot be unpickled.
        """
        self._came.setdefault(instance.worker, []).append(moved)
        return self._load_if_complete(instance)

    def _load_if_complete(self, instance: Instance) -> bool:
        came = self._came.get(instance.worker, [])
        if instance.worker not in self._awaited or not came or len(came) < came[0].pieces:
            return False
        try:
            states = {key: one for moved in came for part in moved.states.values() for key, one in _loaded(part)}
        except Exception as error:
            words = f"the state with which {instance.worker} goes on cannot be unpickled: {error!r}"
            raise OperatorError(words, instance.worker.operator, user_traceback(error)) from error
        instance.state.load(states)
        self._awaited.discard(instance.worker)
        del self._came[instance.worker]
        return True


def _loaded(part: bytes) -> Sequence[tuple[object, object]]:
    return [*pickle.loads(part).items()] if part else []


def _pieces(instance: Instance) -> Iterator[dict[int, bytes]]:
    """The state, bin by bin and pickled, in pieces; at least one, which may be empty."""
    name, states, size, sent = instance.worker.operator, dict[int, bytes](), 0, False
    try:
        for number, of_bin in instance.state.bins().items():
            states[number] = copied(of_bin)
            size += len(states[number])
            if size >= PIECE_BYTES:
                yield states
                states, size, sent = {}, 0, True
    except Exception as error:
        words = f"the state of {name} cannot be copied: {exception_text(error)}"
        raise OperatorError(words, name, user_traceback(error)) from error
    if states or not sent:
        yield states
