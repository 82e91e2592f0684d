"""States that a worker moves out of memory between tuples, as long as its host has more there than it may.

    between two tuples   those of ``BETWEEN_LOOKS`` keys at a time, for a millisecond; or until the host has little more
                         than it may (``SLACK``), since rows may bring keys faster than that
    a row of such a key  its state comes back (``KeyedState.get``), and others go

Whatever cannot be moved stays in memory, and rows go on: it is said once, and tried again when there is more.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.operators.cold_states import MemoryFile
>>> from fries_nb.protocol.messages import WorkerId
>>> one = Instance(WorkerId("FM", 0), Operator("FM", key=("c",)), dict, audit=False)
>>> one.budget = StateBudget(100_000, MemoryFile)
>>> for key in range(200):
...     one.state.touch(key)["kept"] = b"x" * 1_000
>>> moving = MovingOut(clock=lambda: 0)
>>> moving.advance([one]), one.state.sizes().bytes < 100_000, one.state.on_disk[0] > 100, len(one.state)
((False, []), True, True, 200)
>>> len(one.state.get(7)["kept"])
1000
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fries_nb.errors import exception_text
from fries_nb.operators.cold_states import PLACE_BYTES, StateBudget, StateSizes
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import MovedOut
from fries_nb.worker.events import Warned

SLICE_NS = 1_000_000
"""Nanoseconds for which states are moved between two tuples, if there are few too many."""
BETWEEN_LOOKS = 16
"""Number of keys between two looks at the clock."""
SLACK = 16
"""This part of the limit may be exceeded between two slices."""
MOST_MOVED = 512
"""Number of keys that are moved between two tuples at most."""
RETRIED = 1.05
"""Growth of the states in memory after which it is tried again to move some that could not be moved."""


class MovingOut:
    """What one worker moves out of memory.

    Args:
        clock: returns nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._refused: dict[Instance, float] = {}  # the bytes in memory at which it is tried again
        self._said: set[tuple[Instance, str]] = set()

    def advance(self, instances: Sequence[Instance]) -> tuple[bool, list[Warned]]:
        """Move states out of memory, if there are too many.

        Returns:
            Whether more are to be moved at once, and what is to be said.
        """
        if instances[0].budget is None:  # and none of the others has one
            return False, []
        until, said = self._clock() + SLICE_NS, list[Warned]()
        left = [instance for instance in instances if self._advance(instance, until, said)]
        return bool(left), said

    def _advance(self, instance: Instance, until: int, said: list[Warned]) -> bool:
        state, budget, count = instance.state, instance.budget, 0
        assert budget is not None, "see advance"
        sizes = state.sizes()
        while (excess := budget.excess(instance, sizes)) > 0 and sizes.bytes >= self._refused.get(instance, 0.0):
            if count >= MOST_MOVED or (self._clock() >= until and excess < budget.limit / SLACK):
                return True
            with instance.bound():
                out = state.move_out(BETWEEN_LOOKS, budget.file)
            count += out.moved
            sizes = state.sizes()
            if out.moved:  # perhaps up to a state that cannot be moved, behind which others can
                self._refused.pop(instance, None)
            elif out.failure is None:  # all states in memory are those of a marker, to be saved first
                return False
            else:
                self._refused[instance] = sizes.bytes * RETRIED
            for what, words in _words(instance, budget, out, sizes).items():
                if (instance, what) not in self._said:
                    self._said.add((instance, what))
                    said.append(Warned(instance.worker, words))
        return False


def _words(instance: Instance, budget: StateBudget, out: MovedOut, sizes: StateSizes) -> dict[str, str]:
    """What to say of states that were moved, or were not; each only once."""
    name, found = instance.worker.operator, dict[str, str]()
    if out.failure is not None:
        key, error = out.failure
        where, why = f"of key {key!r} of {name}", exception_text(error)
        found["refused"] = f"the state {where} cannot be moved out of memory: {why}; it stays there"
        if isinstance(error, OSError):
            words = f"states of {name} cannot be moved to disk: {why}"
            found["refused"] = f"{words}; they stay in memory, also beyond state_bytes="
    key, size = out.largest
    if size > budget.limit:
        words = f"the state of key {key!r} of {name} alone has {size:,} bytes, more than state_bytes={budget.limit:,}"
        found["large"] = f"{words}; each of its rows brings it back from disk"
    if (places := sizes.places * PLACE_BYTES) > budget.limit // 2:
        words = f"the places of {sizes.places:,} keys of {name} on disk take {places:,} bytes of memory"
        found["places"] = f"{words}, more than half of state_bytes={budget.limit:,}; expected more of it, or more hosts"
    return found
