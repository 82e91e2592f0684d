"""Looks into a state: pieces, parts, limits, and what has changed or gone between two pieces."""

from __future__ import annotations

import pickle

import pytest

from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.updates import Edits
from fries_nb.operators.instance import Instance
from fries_nb.operators.pickled_states import Pickles, loads
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.messages import LookAtState, WorkerId
from fries_nb.worker.looks import BETWEEN_LOOKS, PART_BYTES, PIECE_NS, StateLook


class Ticking:
    """A clock that goes on by so much with each look at it."""

    def __init__(self, step_ns: int) -> None:
        self.now_ns, self.step_ns = 0, step_ns

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


def holding(count: int, size: int = 1) -> Instance:
    """An operator's worker with so many keys."""
    made = Instance(WorkerId("K", 0), Operator("K", key=("k",)), dict, audit=False)
    for key in range(count):
        made.state.touch(key)["text"] = "x" * size
    return made


def parts_of(look: StateLook) -> list[list[tuple[object, object]]]:
    """All parts of the answer."""
    found = []
    while True:
        if (part := look.advance()) is not None:
            assert part.error == ""
            found.append([loads(one, {}) for one in part.pieces])
            if part.is_last:
                return found


def test_a_piece_is_short_and_the_next_one_goes_on() -> None:
    """Keys that have gone meanwhile are left out, others are as they are when they are copied."""
    instance = holding(3 * BETWEEN_LOOKS)
    look = StateLook(LookAtState(1, most=1_000), instance, Ticking(PIECE_NS))
    assert look.advance() is None
    instance.state.drop(0)
    instance.state.touch(1)["text"] = "later"
    instance.state.touch("new")
    [found] = parts_of(look)
    assert [key for key, _ in found] == list(range(3 * BETWEEN_LOOKS - 1, 0, -1))
    assert dict(found)[1] == {"text": "later"}


def test_parts_are_about_as_large_as_said() -> None:
    """A large answer does not leave at once."""
    found = parts_of(StateLook(LookAtState(1, most=1_000), holding(40, PART_BYTES // 8), lambda: 0))
    assert [len(part) for part in found] == [8] * 5


@pytest.mark.parametrize(("most", "spread", "keys"), [
    (2, False, [9, 8]), (3, True, [0, 4, 8]), (100, True, list(range(10))), (100, False, list(range(9, -1, -1))),
])  # fmt: skip
def test_the_newest_keys_are_copied_or_some_from_everywhere(most: int, spread: bool, keys: list[int]) -> None:
    """The newest one comes first."""
    [found] = parts_of(StateLook(LookAtState(1, most=most, spread=spread), holding(10), lambda: 0))
    assert [key for key, _ in found] == keys


def test_keys_that_are_asked_for_are_copied_as_they_are_equal() -> None:
    """1.0 is 1; those that are not there are left out."""
    look = StateLook(LookAtState(1, 3, pickle.dumps([1.0, 77, 2])), holding(10), lambda: 0)
    [found] = parts_of(look)
    assert [key for key, _ in found] == [1, 2]


def test_states_that_wait_for_a_transformation_are_transformed() -> None:
    """As with their next row; if that fails, the sentence says so and the state is kept."""
    instance = holding(2)
    instance.state.transform(lambda state: {**state, "new": True})
    [found] = parts_of(StateLook(LookAtState(1, most=5), instance, lambda: 0))
    assert all(state["new"] for _, state in found)  # type: ignore[index]
    instance.state.transform(lambda state: state["missing"])
    part = StateLook(LookAtState(1, most=5), instance, lambda: 0).advance()
    assert part is not None
    assert (part.is_last, part.error) == (True, "the state of K cannot be copied: KeyError: 'missing'")
    assert len(instance.state) == 2


@pytest.mark.parametrize(("keys", "size", "copied", "told"), [
    (200, 100_000, 64, "200 keys of K[0] have about 20 MB, at most 10"),  # known by some keys
    (20, 1_000_000, 10, "20 keys of K[0] have about 20 MB, at most 10"),  # as soon as there are so many bytes
])  # fmt: skip
def test_a_state_that_is_too_large_is_refused_with_its_size(keys: int, size: int, copied: int, told: str) -> None:
    """However many keys it has."""
    look, parts = StateLook(LookAtState(1, most=10**9, limit=10_000_000), holding(keys, size), lambda: 0), []
    while not parts or not parts[-1].is_last:
        parts += [part for part in [look.advance()] if part is not None]
    assert sum(len(part.ends) for part in parts) == copied
    assert (parts[-1].error, parts[-1].total) == (told, keys)


def test_a_value_that_cannot_be_pickled_leaves_no_trace() -> None:
    """The others are there."""
    pickles = Pickles()
    pickles.add([1])
    with pytest.raises(TypeError):
        pickles.add(["x" * 100, (one for one in ())])
    pickles.add([2])
    first, last = pickles.ends
    assert [pickle.loads(one) for one in (pickles.content[:first], pickles.content[first:last])] == [[1], [2]]


def test_edits_set_the_states_of_their_keys_only() -> None:
    """When the key is met, in order with other transformations; and a rollback undoes them."""
    state = KeyedState(list)
    for key in ("a", "b", "c"):
        state.touch(key).append(key)
    edits, back = Edits({"a": ["new"]}), Edits({"a": ["a"]})
    state.transform(lambda held: [*held, 1])
    state.transform(edits)
    state.transform(lambda held: [*held, 2])
    assert (state.touch("a"), state.touch("b")) == (["new", 2], ["b", 1, 2])
    state.touch("a").append(3)
    assert edits.states == {"a": ["new"]}  # what rows add is not added to the edit
    state.transform(back)
    state.settle()
    assert {key: state.get(key) for key in ("a", "b", "c")} == {"a": ["a"], "b": ["b", 1, 2], "c": ["c", 1, 2]}
