"""Keyed state: a key goes through all transformations that it has missed, in order, when it is first touched."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.errors import OperatorError
from fries_nb.worker.state import KeyedState

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("touch"), st.integers(0, 5)),
        st.tuples(st.just("change"), st.integers(0, 9)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_lazy_transformation_equals_one_at_the_moment_of_the_switch(steps: list[tuple[str, int]]) -> None:
    """Lazy transformation equals one at the moment of the switch."""
    lazy = KeyedState(lambda: ["new"])
    eager: dict[int, list[Any]] = {}
    for step, number in steps:
        if step == "touch":
            assert lazy.touch(number) == eager.setdefault(number, ["new"])
            lazy.live[number].append(number)
            eager[number].append(number)
        elif step == "change":
            lazy.transform(lambda old, n=number: [*old, f"t{n}"])
            eager = {key: [*old, f"t{number}"] for key, old in eager.items()}
        else:
            lazy.settle()
            assert lazy.waiting == 0
        assert len(lazy) == len(eager)
    assert {key: state for states in lazy.bins().values() for key, state in states.items()} == eager


def test_a_change_without_transformation_keeps_the_states() -> None:
    """A change without transformation keeps the states."""
    state = KeyedState(list)
    state.touch("k").append(1)
    state.transform(None)
    assert state.live == {"k": [1]}


def test_a_transformation_that_raises_leaves_the_old_state_for_a_later_try() -> None:
    """A transformation that raises leaves the old state for a later try."""
    state = KeyedState(list)
    state.touch("k").append(1)
    fails = [True]

    def second(old: list[int]) -> list[int]:
        if fails:
            raise ValueError("not yet")
        return [*old, 3]

    state.transform(lambda old: [*old, 2])
    state.transform(second)
    with pytest.raises(ValueError, match="not yet"):
        state.touch("k")
    assert state.waiting == 1
    fails.clear()
    assert state.touch("k") == [1, 2, 3]


def test_a_transformation_that_forgets_to_return_is_refused() -> None:
    """A transformation that forgets to return is refused."""
    state = KeyedState(list)
    state.touch("k")
    state.transform(lambda old: old.append(1))
    with pytest.raises(OperatorError, match="returned None"):
        state.touch("k")


def test_a_sample_is_a_copy_with_all_that_its_key_has_missed() -> None:
    """A sample is a copy with all that its key has missed."""
    state = KeyedState(list)
    state.touch("old").append(1)
    state.transform(lambda old: [*old, "t1"])
    state.touch("new").append(2)
    state.transform(lambda old: [*old, "t2"])
    copies = [copy.revive() for copy in state.sample(5)]
    assert copies == [[1, "t1", "t2"], [2, "t2"]]
    assert state.waiting == 2
    assert len(state.sample(1)) == 1
    copies[0].append("changed")
    assert state.touch("old") == [1, "t1", "t2"]


def test_a_sample_copies_states_of_classes_that_only_this_process_knows() -> None:
    """A sample copies states of classes that only this process knows."""

    class Window:
        def __init__(self) -> None:
            self.values = [1]

    state = KeyedState(Window)
    state.touch("k")
    assert state.sample(1)[0].revive().values == [1]


def test_a_state_that_cannot_be_pickled_is_an_error_of_the_sample() -> None:
    """A state that cannot be pickled is an error of the sample."""
    state = KeyedState(threading.Lock)
    state.touch("k")
    with pytest.raises(TypeError, match="pickle"):
        state.sample(1)
