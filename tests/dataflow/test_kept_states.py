"""A state that cannot change in place is refused where it is declared, brought by a change, or made by one."""

from __future__ import annotations

import enum
from collections import Counter, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.keys import why_unchangeable
from fries_nb.dataflow.updates import check_updates
from fries_nb.errors import DataflowError, OperatorError
from fries_nb.operators.dry_run import DryRun, prepare
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.messages import WorkerId

Pair = namedtuple("Pair", "a b")


class Light(enum.Enum):
    """States of a machine, which look as if they could be kept."""

    RED = 1


@dataclass(frozen=True)
class Frozen:
    """A value; it can change only through what it refers to."""

    a: Any = 0


@dataclass
class Open:
    """A state as it should be."""

    a: list[int] = field(default_factory=list)


class Number(int):
    """A number that can have attributes."""


FIXED = [
    None, True, 0, 1.5, 1j, "", b"", (), (1, "a"), (1, (2,)), frozenset(), frozenset({1}), Pair(1, 2), Frozen(),
    range(3),
    Decimal(1), Fraction(1), datetime(2024, 1, 1, tzinfo=UTC), timedelta(1), UUID(int=1), Light.RED, np.int64(0),
    np.datetime64("2024"), pd.Timestamp(0), pa.scalar(1), pa.table({"a": [1]}),
]  # fmt: skip
CHANGEABLE = [
    {}, [], set(), bytearray(), deque(), Counter(), ([], 0), Pair([], 0), Frozen([]), Open(), object(), Number(1),
    np.zeros(1), np.array(0), pd.DataFrame(), pd.Series([1]), iter([1]),
]  # fmt: skip


class Sum:
    """Adds up, and makes its states of a function."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def initial_state(self) -> Any:
        return self.make()

    def process(self, row: Any, state: Any) -> Any:
        return row

    def close(self, key: Any, time: Any, state: Any) -> Any:
        return None


def stream(timed: bool = False) -> fn.Stream:
    """Rows with a key, and with times."""
    flow = fn.Dataflow("states")
    rows = pa.table({"k": ["a"], "t": pa.array([1])})
    return flow.source("rows", fn.replay(rows), **({"time": "t"} if timed else {}))


DECLARED = {
    "map": lambda function: stream().map("M", function, key="k"),
    "flat_map": lambda function: stream().flat_map("M", function, key="k"),
    "window": lambda function: stream(timed=True).window("M", function, fn.tumbling(60), key="k"),
    "reduce": lambda function: stream(timed=True).reduce("M", function, key="k"),
}


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize("state", [0, "", (), frozenset(), None], ids=repr)
def test_it_is_refused_when_it_is_declared(kind: str, state: Any) -> None:
    """By every kind that keeps state; the message says what can be one."""
    with pytest.raises(DataflowError, match=r"operator 'M'.*initial_state.*cannot change in place.*expected a dict"):
        DECLARED[kind](Sum(lambda: state))


@pytest.mark.parametrize("state", FIXED, ids=repr)
def test_what_cannot_change_is_refused(state: Any) -> None:
    """By one sentence on one line."""
    why = why_unchangeable(state)
    assert type(state).__name__ in why
    assert "\n" not in why


@pytest.mark.parametrize("state", CHANGEABLE, ids=lambda state: type(state).__name__)
def test_what_can_change_is_a_state(state: Any) -> None:
    """Itself, or anything in it."""
    assert why_unchangeable(state) == ""
    DECLARED["map"](Sum(lambda: state))


def test_a_change_that_brings_one_is_refused() -> None:
    """Before it is planned."""
    good = stream().map("M", Sum(dict), key="k")
    good.sink("out", fn.memory())
    with pytest.raises(
        DataflowError, match=r"operator 'M': its initial_state\(\) returns 0 \(int\), which cannot change"
    ):
        check_updates(good.flow.graph(), {"M": fn.Update(Sum(int))})


def test_one_that_fails_is_tried_again_for_the_first_key() -> None:
    """It may need what open() loads; what it then makes is checked, too."""
    loaded: list[Any] = []
    function = Sum(lambda: loaded[0])
    DECLARED["map"](function)
    instance = Instance(WorkerId("M", 0), Operator("M", function=function, key=("k",)), function, audit=False)
    loaded.append(3)
    with pytest.raises(OperatorError, match=r"initial_state\(\) of M returned 3 \(int\), which cannot change in place"):
        instance.state.touch("a")
    loaded[0] = []
    assert instance.state.touch("a") == []


def test_one_that_exits_does_not_end_the_notebook() -> None:
    """SystemExit is the user's failure as any other."""

    def leave() -> None:
        raise SystemExit

    DECLARED["map"](Sum(leave))


def test_one_that_keeps_no_state_may_have_any() -> None:
    """Nothing is called that would not be."""

    class Stateless(Sum):
        def process(self, row: Any) -> Any:  # type: ignore[override]
            return row

    DECLARED["map"](Stateless(int))


def test_a_transformation_that_makes_one_is_refused_in_the_trial_and_for_each_key() -> None:
    """A change with Update(state=len) would be the last that changes anything."""
    state = KeyedState(list)
    state.put("a", [1])
    update = cloudpickle.dumps(fn.Update(Sum(list), state=len))
    order = DryRun("u1", WorkerId("M", 0), update, Operator("M", function=Sum(list)), Sum(list), state.sample(1), ())
    assert (
        "new M failed in the state transformation: the state transformation returned 1 (int)"
        in prepare(order).answer.error
    )
    state.transform(len)
    with pytest.raises(
        OperatorError, match=r"the state transformation returned 1 \(int\), which cannot change in place"
    ):
        state.touch("a")
