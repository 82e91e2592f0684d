"""Keyed state: a key goes through all transformations that it has missed, in order, when it is first touched."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_setting import Count, batch, execution, guarded, instance, letters, outcome

from fries_nb.dataflow.graph import Kind
from fries_nb.errors import OperatorError
from fries_nb.operators.instance import Instance, Ready
from fries_nb.operators.row_versions import side_by_side
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.rollout import RolloutStep

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


class Append:
    """A transformation that appends its name and counts its calls, with an exact way back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    def __call__(self, old: list[Any]) -> list[Any]:
        self.calls += 1
        return [*old, self.name]

    def back(self, new: list[Any]) -> list[Any]:
        """What it was."""
        assert new[-1] == self.name
        return new[:-1]


HELD = range(5)
HISTORY = st.lists(
    st.tuples(st.sampled_from(["touch", "change", "undone"]), st.sets(st.sampled_from(HELD), max_size=3)), max_size=12
)


@given(HISTORY)
def test_a_change_that_is_undone_has_never_been(history: list[tuple[str, set[int]]]) -> None:
    """Against a state that never met it. Only keys touched meanwhile were transformed, and go the way back."""
    state, never = KeyedState(list), KeyedState(list)
    for one in (state, never):
        one.load({key: [key] for key in HELD})
    changes = [Append(f"{number} {step}") for number, (step, _) in enumerate(history)]
    for (step, keys), change in zip(history, changes, strict=True):
        if step == "change":
            state.transform(change)
            never.transform(change)
            continue
        if step == "undone":
            state.transform(change)
            for key in keys:
                assert state.touch(key) == [*never.touch(key), change.name]
            assert change.calls == len(keys)
            state.undo(change, change.back)
        for key in keys:
            assert state.touch(key) == never.touch(key)
            state.live[key].append("seen")
            never.live[key].append("seen")
    assert sorted(copy.revive()[0] for copy in state.sample(9)) == list(HELD)
    for one in (state, never):
        one.settle()
    assert state.live == never.live
    assert [change.calls for (step, keys), change in zip(history, changes, strict=True) if step == "undone"] == [
        len(keys) for step, keys in history if step == "undone"
    ]


@pytest.mark.parametrize("earlier", range(4))
def test_an_undone_transformation_is_asked_of_no_key_that_it_has_not_met(earlier: int) -> None:
    """However many transformations a key had missed before: what fails on it is gone with its change."""
    state = KeyedState(list)
    state.load({"met": [], "not met": []})

    def picky(old: list[Any]) -> list[Any]:
        if not old or old[-1] != "in":
            raise ValueError("only what is in")
        return [*old, "picky"]

    for number in range(earlier):
        state.transform(Append(f"t{number}"))
    state.touch("met").append("in")
    state.transform(picky)
    assert state.touch("met")[-1] == "picky"
    with pytest.raises(ValueError, match="only what is in"):
        state.touch("not met")
    state.undo(picky, lambda new: [*new, "back"])
    before = [f"t{number}" for number in range(earlier)]
    assert (state.touch("not met"), state.touch("met")) == (before, [*before, "in", "picky", "back"])


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


def _in_turns(chain: Instance, *changes: tuple[str, float]) -> None:
    """Changes decided row by row from row 2, 4, ... on; each tags states with its name, and takes the tag off again."""
    for number, (change, share) in enumerate(changes, 1):
        tag = partial(_tagged, change)
        chain.prepared[change] = Ready(Count(), tag, back=partial(_untagged, change))
        chain.decide_rows(change, (RolloutStep({0: 2 * number - 1}, share),))


def _tagged(tag: str, state: dict[str, Any]) -> dict[str, Any]:
    return state | {"tags": [*state.get("tags", []), tag]}


def _untagged(tag: str, state: dict[str, Any]) -> dict[str, Any]:
    *tags, last = state["tags"]
    assert last == tag
    return {name: value for name, value in state.items() if name != "tags"} | ({"tags": tags} if tags else {})


def test_a_key_is_in_the_form_of_the_version_that_has_touched_it_last() -> None:
    """There and back along several changes, a withdrawn one beside the way; one form is declared all the time."""
    counting = instance("A", Kind.MAP, Count(), key=("k",))
    _in_turns(counting, ("u1", 1.0), ("u2", 0.5))
    counting.decide_rows("u2", (RolloutStep({0: 3}, 0.5), RolloutStep({0: 5}, 0.0)))
    _in_turns(counting, ("u3", 1.0))
    tags = {0: [], 1: ["u1"], 2: ["u1", "u2"], 3: ["u1", "u3"]}
    side_by_side(counting)[0].state.touch("k")
    for version in (3, 0, 2, 3, 1, 2, 0, 3, 2):
        assert side_by_side(counting)[version].state.touch("k").get("tags", []) == tags[version]
        assert counting.state.peek("k")["tags"] == counting.state.sample(1)[0].revive()["tags"] == tags[3]
        assert len(counting.state) == 1
    assert counting.canaries == ("u2",)
    for change in ("u2", "u1", "u3"):
        counting.settle(change)
        assert counting.state.peek("k")["tags"] == tags[3]
    assert counting.newest is counting.state
    assert counting.state.bins().popitem()[1] == {"k": {"seen": 0, "tags": tags[3]}}


def test_a_row_whose_transformation_fails_leaves_the_state_as_it_was() -> None:
    """Also if that has changed half of it in place; the row is a dead letter, and the next one tries again."""
    counting, kept = guarded(Kind.MAP, Count(), key=("k",))
    fails = [True]

    def tag(state: dict[str, Any]) -> dict[str, Any]:
        state["seen"] += 100
        if fails:
            raise ValueError("not yet")
        return state

    counting.prepared["u1"] = Ready(Count(), tag, back=lambda state: state | {"seen": state["seen"] - 100})
    counting.decide_rows("u1", (RolloutStep({0: 1}),))
    running = execution(counting)
    assert [row["seen"] for row in outcome(running, batch(k=[7, 7, 7]))] == [1, 2]
    assert len(letters(kept)) == 1
    assert side_by_side(counting)[0].state.find(7) == {"seen": 2}
    fails.clear()
    assert [row["seen"] for row in outcome(running, batch(k=[7, 7, 7, 7]))] == [3, 4, 105, 106]
