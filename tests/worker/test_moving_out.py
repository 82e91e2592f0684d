"""States that are moved out of memory: which, how many at once, and what is said of those that cannot be moved."""

from __future__ import annotations

from typing import Any

import pytest

from fries_nb.dataflow.graph import Operator
from fries_nb.operators import pickled_states
from fries_nb.operators.cold_states import MemoryFile, StateBudget
from fries_nb.operators.instance import Instance
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.tokens import TokenBook
from fries_nb.protocol.messages import WorkerId
from fries_nb.worker.moving_out import MOST_MOVED, MovingOut

LIMIT = 100_000
KEPT = b"x" * 1_000


def kept(budget: StateBudget, keys: int, name: str = "FM", state: Any = None) -> Instance:
    """An operator's worker with these states."""
    one = Instance(WorkerId(name, 0), Operator(name, key=("c",)), dict, audit=False)
    one.budget = budget
    for key in range(keys):
        one.state.touch(key)["kept"] = KEPT if state is None else state
    return one


def moved(one: Instance, moving: MovingOut) -> list[str]:
    """What is said until nothing more is to be moved."""
    said: list[str] = []
    more = True
    while more:
        more, warned = moving.advance([one])
        said += [warning.text for warning in warned]
    return said


def no_file() -> MemoryFile:
    """A disk on which no file can be made."""
    raise PermissionError(30, "Read-only file system")


def test_only_workers_with_more_than_an_equal_share_move_states_out() -> None:
    """So an operator with few states keeps them, however many another one has."""
    budget = StateBudget(LIMIT, MemoryFile)
    many, few = kept(budget, 300), kept(budget, 20, "W")
    movings = MovingOut(lambda: 0), MovingOut(lambda: 0)
    for _ in range(3):
        assert moved(few, movings[1]) == moved(many, movings[0]) == []
    assert few.state.on_disk == (0, 0)
    in_memory = many.state.sizes().bytes + few.state.sizes().bytes
    assert LIMIT * 0.8 < in_memory <= LIMIT


def test_rows_wait_for_few_states_at_a_time() -> None:
    """However many there are; and for a millisecond, if there are little more than there may be."""
    budget = StateBudget(LIMIT, MemoryFile)
    one, moving = kept(budget, 5_000), MovingOut(lambda: 0)
    more, _ = moving.advance([one])
    assert (more, one.state.on_disk[0]) == (True, MOST_MOVED)
    moved(one, moving)
    for key in range(3):
        one.state.get(key)
    times = iter(range(0, 10**9, 600_000))
    before = one.state.on_disk[0]
    MovingOut(lambda: next(times)).advance([one])
    assert one.state.on_disk[0] <= before + 16


def test_states_that_are_to_be_saved_are_saved_first() -> None:
    """While all states in memory are those of a marker; then they are moved."""
    one, moving = kept(StateBudget(LIMIT, MemoryFile), 200), MovingOut(lambda: 0)
    one.state.begin_saving()
    assert moved(one, moving) == []
    assert one.state.on_disk == (0, 0)
    while one.state.save_some(50):
        pass
    one.state.end_saving(1)
    assert moved(one, moving) == []
    assert one.state.on_disk[0] > 100


def test_a_disk_without_room_is_told_once_and_states_stay() -> None:
    """It is tried again when there are more of them."""
    tried = 0

    def file() -> MemoryFile:
        nonlocal tried
        tried += 1
        return no_file()

    one, moving = kept(StateBudget(LIMIT, file), 200), MovingOut(lambda: 0)
    words = "states of FM cannot be moved to disk: "
    assert [text.startswith(words) for text in moved(one, moving)] == [True]
    for _ in range(20):
        assert moved(one, moving) == []
    assert (tried, len(one.state), one.state.on_disk) == (1, 200, (0, 0))
    for key in range(200, 220):
        one.state.touch(key)["kept"] = KEPT
    assert moved(one, moving) == []
    assert tried == 2


def test_a_state_that_cannot_be_pickled_is_named_and_others_are_moved() -> None:
    """With its key; it stays where it is."""
    one, moving = kept(StateBudget(LIMIT, MemoryFile), 200), MovingOut(lambda: 0)
    one.state.get(3)["lock"] = (number for number in ())
    said = moved(one, moving)
    for key in range(1_000, 1_100):
        one.state.touch(key)["kept"] = KEPT
    said += moved(one, moving)
    why = "TypeError: cannot pickle 'generator' object"
    assert said == [f"the state of key 3 of FM cannot be moved out of memory: {why}; it stays there"]
    assert "lock" in one.state.get(3)
    assert one.state.on_disk[0] > 200


def test_a_state_that_holds_a_token_stays() -> None:
    """Or the token would count as lost."""
    one, moving = kept(StateBudget(LIMIT, MemoryFile), 200), MovingOut(lambda: 0)
    book = TokenBook("FM", ChangeBatch())
    with book.bound():
        for key in range(200):
            one.state.get(key)["token"] = book.keep(bin=3, time=(0, 7))
    assert moved(one, moving) == [
        "the state of key 0 of FM cannot be moved out of memory: TokenError: it holds a token; it stays there"
    ]
    assert one.state.on_disk == (0, 0)


def test_a_state_that_is_larger_than_the_limit_is_named() -> None:
    """It works, and is slow."""
    one, moving = kept(StateBudget(LIMIT, MemoryFile), 1, state=b"x" * 2 * LIMIT), MovingOut(lambda: 0)
    [said] = moved(one, moving)
    assert said.startswith("the state of key 0 of FM alone has 200,0")
    assert said.endswith("more than state_bytes=100,000; each of its rows brings it back from disk")
    assert len(one.state.get(0)["kept"]) == 2 * LIMIT


def test_places_take_memory_as_well() -> None:
    """Of very many small states; it is said before they take all of it."""
    one, moving = kept(StateBudget(LIMIT, MemoryFile), 1_000, state=KEPT[:200]), MovingOut(lambda: 0)
    [said] = moved(one, moving)
    assert said.startswith("the places of ")
    assert said.endswith("more than half of state_bytes=100,000; expected more of it, or more hosts")


def test_a_state_comes_back_with_the_class_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a cell has made another class of its name since; states of both may be on disk."""
    name = ("__main__", "Total")

    def total(version: int) -> type:
        made = type("Total", (), {"version": version, "__module__": "__main__"})
        pickled_states.note({name: made}, [])
        return made

    budget = StateBudget(LIMIT, MemoryFile)
    one, moving = kept(budget, 0), MovingOut(lambda: 0)
    classes = [total(1), total(2)]
    for key in range(300):
        state = one.state.touch(key)
        state["kept"], state["total"] = KEPT, classes[key // 7 % 2]()
    assert moved(one, moving) == []
    assert one.state.on_disk[0] > 200
    for key in range(300):
        assert type(one.state.get(key)["total"]) is classes[key // 7 % 2], key
