"""Keyed state, in bins, transformed key by key.

The key space is cut into ``BINS`` bins by the same stable hash that partitions tuples (``topology.partitioning``), so
the state of a bin and the tuples that need it move together. Within a worker the live states lie in one flat dict;
a bin is the set of keys that hash to it, and :meth:`KeyedState.bins` sorts them out when somebody asks.

A change with a state transformation T (Fries, section 2.2) does not walk through the state when it commits: it puts
the old states aside, in a layer, and a key is transformed when it is first touched, or by :meth:`KeyedState.settle`.
Changes may follow each other; a key then goes through all transformations that it has missed, in order. What a key has
missed is its layer's own, since a change that is undone goes back by another way for keys that it has transformed.

>>> state = KeyedState(list)
>>> state.touch("c7").append(12.5)
>>> state.transform(lambda amounts: [*amounts, None])
>>> state.waiting, state.touch("c7"), state.waiting
(1, [12.5, None], 0)
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from operator import eq
from typing import Any

import cloudpickle

from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.operators import takes_state
from fries_nb.errors import OperatorError
from fries_nb.topology.partitioning import bins_of_keys

Transform = Callable[[Any], Any]
_NAN = float("nan")


def keeps_state(operator: Operator, function: Any) -> bool:
    """Whether the operator keeps a state per key while it runs this function."""
    return operator.traits.keeps_state or (operator.traits.runs_user_code and takes_state(function))


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A pickled copy of one key's state, and the transformations that the key has missed so far."""

    pickled: bytes
    missed: tuple[Transform, ...]

    def revive(self) -> Any:
        """The state as the running function would see it."""
        return transformed(pickle.loads(self.pickled), self.missed)


def same_key(key: Any) -> Any:
    """The key, with one and the same object for all NaN in it: to a dict any other NaN is another key.

    >>> {same_key(float("nan")): 1}[same_key(float("nan"))]
    1
    """
    if isinstance(key, tuple):
        return key if all(map(eq, key, key)) else tuple(map(same_key, key))
    return key if key == key else _NAN


def transformed(state: Any, transforms: tuple[Transform, ...]) -> Any:
    """The state after these transformations, in order.

    Raises:
        OperatorError: one returned ``None``; most likely it changed the state in place and forgot to return it.
    """
    for transform in transforms:
        state = transform(state)
        if state is None:
            raise OperatorError("the state transformation returned None; it must return the new state")
    return state


@dataclass(slots=True)
class _Layer:
    """States put aside, and the transformations that they have missed since, in order."""

    states: dict[Any, Any]
    missed: tuple[Transform, ...]


class KeyedState:
    """State per key of one worker. ``None`` is not a state: a key that has it counts as never seen.

    Attributes:
        live: key to state, in the present configuration's form.
        initial: makes the state of a key that was never seen.
    """

    def __init__(self, initial: Callable[[], Any]) -> None:
        self.live: dict[Any, Any] = {}
        self.initial = initial
        self._layers: list[_Layer] = []

    def touch(self, key: Any) -> Any:
        """The state of ``key``, transformed or made anew if need be. Called when ``live`` does not have it.

        A transformation that raises leaves the old state where it was, so that a later try finds it.
        """
        key = same_key(key)
        found = self.live.get(key)
        if found is None:
            for layer in self._layers:
                if key in layer.states:
                    found = transformed(layer.states[key], layer.missed)
                    del layer.states[key]
                    break
            else:
                found = self.initial()
            self.live[key] = found
        return found

    def transform(self, transform: Transform | None) -> None:
        """Begin a new configuration; ``None`` keeps the states as they are."""
        if transform is not None:
            self._layers = [layer for layer in self._layers if layer.states]
            for layer in self._layers:
                layer.missed += (transform,)
            self._layers.append(_Layer(self.live, (transform,)))
            self.live = {}

    def undo(self, transform: Transform | None, back: Transform | None) -> None:
        """Go back to the configuration before the last one, which began with ``transform``: by ``back``, key by key.

        Keys that were not touched since have not been transformed, and are as if it had never begun, however many
        earlier transformations they have missed.
        """
        if transform is None:
            return
        spared = [layer for layer in self._layers if layer.missed[-1] is transform]
        self._layers = [layer for layer in self._layers if layer.missed[-1] is not transform]
        self.transform(back)
        for layer in spared:
            layer.missed = layer.missed[:-1]
            if layer.missed:
                self._layers.append(layer)
            else:
                self.live.update(layer.states)

    @property
    def waiting(self) -> int:
        """Number of keys not transformed yet."""
        return sum(len(layer.states) for layer in self._layers)

    def load(self, states: dict[Any, Any]) -> None:
        """Hold these states and no others, in the present configuration's form."""
        self.live = {same_key(key): state for key, state in states.items()}
        self._layers.clear()

    def settle(self) -> None:
        """Transform every key that still waits; idempotent."""
        for layer in self._layers:
            for key in list(layer.states):
                self.touch(key)
        self._layers.clear()

    def sample(self, count: int) -> tuple[StateCopy, ...]:
        """Copies of the states of at most ``count`` keys. What they have missed is applied when they are revived.

        Raises:
            Exception: whatever pickling raises, where a state cannot be pickled.
        """
        copies = [StateCopy(cloudpickle.dumps(state), ()) for state in islice(self.live.values(), count)]
        for layer in self._layers:
            waiting = islice(layer.states.values(), count - len(copies))
            copies.extend([StateCopy(cloudpickle.dumps(state), layer.missed) for state in waiting])
        return tuple(copies)

    def bins(self) -> dict[int, dict[Any, Any]]:
        """Settled state, bin by bin: the bins of ``partition``, so that a key's tuples and its state go together."""
        self.settle()
        keys = list(self.live)
        grouped: dict[int, dict[Any, Any]] = {}
        for key, bin_ in zip(keys, bins_of_keys(keys).tolist(), strict=True):
            grouped.setdefault(bin_, {})[key] = self.live[key]
        return grouped

    def __len__(self) -> int:
        return len(self.live) + self.waiting
