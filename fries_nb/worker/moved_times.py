"""Times that move with the bins of a timed operator: entries of its agenda, tokens, and how far it has fired.

What moves is counted all the way, so no frontier passes it: the old owner counts it as on its way in the step in which
it gives it up, the new owner as held in the step in which it takes it over (see ``change_batch.moving``).

Nothing fires on the way, nor out of order. The old owner fires nothing from the moment that the move's marker has come
on all channels, until all is shipped: rows that it would make then would follow the marker downstream. The new owner
has the tokens as soon as the states that refer to them, but entries, and keys that wait for the frontier, only when the
marker has come on all of its channels: rows that it would make earlier would precede the marker.

Whether a row of a key is late depends on how far entries of the key have fired, wherever that was; so this moves too.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.messages import WorkerId
>>> class Remind:
...     def process(self, row, state, at): ...
...     def due(self, key, time, state): ...
>>> operator = Operator("R", function=Remind(), key=("k",))
>>> one, other = (Instance(WorkerId("R", index), operator, Remind(), audit=False) for index in range(2))
>>> one.agenda.call(59, 7), one.agenda.call(59, 8)
(None, None)
>>> bin = next(bin for bin, entries in one.agenda.saved().entries.items() if entries == [((0, 59), 8)])
>>> old, new = TimesTransfer(one), TimesTransfer(other)
>>> moved = [old.give([bin]) for _ in old.sort([bin], 500)]
>>> new.install(moved[0]), len(one.agenda), len(other.agenda)
(None, 1, 0)
>>> new.take_over(), len(other.agenda)
(None, 1)
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator

import pyarrow as pa

from fries_nb.dataflow.keys import canonical_key
from fries_nb.messages import MovedTimes
from fries_nb.operators.definitions import copied
from fries_nb.operators.instance import Instance
from fries_nb.progress.agenda import Antichain, Entry


class TimesTransfer:
    """The times of the bins of one move, at one worker of a timed operator; for other operators there are none.

    Args:
        instance: the operator at this worker.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._sorted: dict[int, list[Entry]] = {}
        self._waiting: list[MovedTimes] = []

    def sort(self, bins: Collection[int], count: int) -> Iterator[None]:
        """Find the entries of bins that leave, ``count`` in each step."""
        if self._instance.agenda is not None:
            yield from self._instance.agenda.sort_out(bins, count, self._sorted)

    def give(self, bins: Collection[int]) -> MovedTimes | None:
        """Give up what is held for these bins, whose states have been pickled; ``None`` if it is not timed."""
        agenda, tokens, came = self._instance.agenda, self._instance.tokens, self._instance.came
        if agenda is None or tokens is None:
            return None
        keepers = {} if agenda.keepers is None else agenda.keepers.saved()
        keepers = {bin: keepers[bin] for bin in bins if bin in keepers}
        told = agenda.keepers is None or not agenda.keepers.release(keepers)
        entries = {bin: self._sorted.pop(bin, []) for bin in bins}
        held = {bin: (entries[bin], keepers.get(bin, [])) for bin in bins}
        fired = {bin: agenda.release(bin, entries[bin]) for bin in bins}
        return MovedTimes(
            {bin: copied(both) for bin, both in held.items() if any(both)},
            tokens.release(bins),
            {bin: tuple((t, *rounds) for rounds, t in of.items()) for bin, of in fired.items() if of},
            b"" if came is None else came.serialize().to_pybytes(),
            agenda.frontier.elements if told and agenda.frontier is not None else None,
        )

    def install(self, moved: MovedTimes | None) -> None:
        """Take over the tokens, to which states that are unpickled next refer; the rest waits for ``take_over``."""
        if moved is None:
            return
        assert self._instance.tokens is not None, "both workers are of the same operator"
        self._instance.tokens.receive(moved.tokens)
        if self._instance.came is None and moved.came:
            self._instance.came = pa.ipc.read_schema(pa.py_buffer(moved.came))
        self._instance.rewindowed = self._instance.rewindowed or bool(self._instance.applied)
        self._waiting.append(moved)

    def take_over(self) -> None:
        """Take over the entries that have come: from now on they fire here."""
        agenda, waiting, self._waiting = self._instance.agenda, self._waiting, []
        for moved in waiting:
            assert agenda is not None, "both workers are of the same operator"
            held = {bin: pickle.loads(both) for bin, both in moved.agenda.items()}
            for bin in {**moved.agenda, **moved.fired}:
                entries = [(tuple(time), canonical_key(key)) for time, key in held.get(bin, ((), ()))[0]]
                agenda.receive(bin, entries, {(*rounds,): t for t, *rounds in moved.fired.get(bin, ())})
            if agenda.keepers is not None:
                keepers = {
                    bin: [(canonical_key(key), number) for key, number in kept] for bin, (_, kept) in held.items()
                }
                is_told = moved.reached is not None and agenda.frontier == Antichain(tuple(map(tuple, moved.reached)))
                agenda.keepers.receive(keepers, are_due=agenda.frontier is not None and not is_told)
