"""Lighter functions of a constraint: what is refused on declaration, in one sentence, and what is kept."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import fries_nb as fn
from fries_nb.dataflow import DataflowBuilder, memory, rate
from fries_nb.errors import DataflowError, FriesError, PlanError


def same(row: Any) -> Any:
    """A function of a row."""
    return row


@pytest.fixture
def flow() -> DataflowBuilder:
    """Payments through FC, FM and MC to a sink."""
    flow = DataflowBuilder("fraud")
    fc = flow.source("payments", rate(1_000)).map("FC", same, key="c")
    fc.map("FM", same, key="t").map("MC", same).sink("scored", memory())
    return flow


class Locked:
    """A function that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def process(self, row: Any) -> Any:
        """As it is."""
        return row


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({}, PlanError, r"^the change is empty; expected at least one operator"),
        ([same], PlanError, r"^a change maps operator names to functions; got a list"),
        ({"FM": 5}, DataflowError, r"^operator 'FM': "),
        ({"FM": Locked()}, DataflowError, r"^the lighter function of FM cannot be pickled: TypeError: .* open\(\)"),
        ({"FM": fn.Update(same, state=len)}, PlanError, r"the state of FM is transformed without a way back; expected"),
    ],
)
def test_lighter_functions_that_cannot_serve_are_refused_at_once(change: Any, kind: type, words: str) -> None:
    """Before there is a constraint."""
    with pytest.raises(kind, match=words):
        fn.lighter(change)


LIGHT = {"FM": same}


@pytest.mark.parametrize(
    ("policy", "change", "kind", "words"),
    [
        ("tell", LIGHT, DataflowError, r"^on_violation='tell' changes no function, and got lighter=Lighter\(FM\); exp"),
        ("apply", None, DataflowError, r"^on_violation='apply' got lighter=None; .* lighter=fn.lighter\({'FC': "),
        ("propose", None, DataflowError, r"^on_violation='propose' got lighter=None; expected fn.lighter"),
        ("apply", {"FN": same}, DataflowError, r"^no operator 'FN'; .*; did you mean 'FM'\?$"),
        ("apply", {"FM": same, "payments": same}, PlanError, r"^operator 'payments' \(source\) runs no function"),
        ("apply", {"FM": same, "scored": same}, PlanError, r"^operator 'scored' \(sink\) runs no function"),
        ("apply", {"FM": fn.batched(same)}, PlanError, r"^'FM' runs a function of a row and would change to one of"),
        ("apply", {"MC": same}, DataflowError, r"^MC does not count in FC -> FM, so its effect .*: FC, FM$"),
    ],
)
def test_lighter_functions_that_do_not_fit_are_refused(
    flow: DataflowBuilder, policy: str, change: Any, kind: type, words: str
) -> None:
    """By the call that declares the constraint, which is not kept."""
    given = None if change is None else fn.lighter(change)
    with pytest.raises(kind, match=words):
        flow.constrain(["FC", "FM"], 300, on_violation=policy, lighter=given)
    assert flow.constraints() == ()


def test_a_plain_dict_is_not_taken_for_lighter_functions(flow: DataflowBuilder) -> None:
    """It was not checked."""
    with pytest.raises(DataflowError, match=r"got lighter={'FM': .*}; expected fn.lighter\({...}\)"):
        flow.constrain(["FC", "FM"], 300, on_violation="apply", lighter=LIGHT)


def test_one_operator_has_lighter_functions_in_one_constraint(flow: DataflowBuilder) -> None:
    """Two would replace each other's."""
    flow.constrain(["FC", "FM"], 300, on_violation="apply", lighter=fn.lighter(LIGHT))
    with pytest.raises(
        FriesError, match=r"^FM has lighter functions in two constraints, on FC -> FM and on FM -> MC, "
    ):
        flow.constrain(["FM", "MC"], 100, on_violation="propose", lighter=fn.lighter({"FM": same, "MC": same}))
    assert len(flow.constraints()) == 1


def test_declared_again_a_constraint_has_the_last_lighter_functions(flow: DataflowBuilder) -> None:
    """As when its cell is run again, with functions that are equal in their text only."""
    flow.constrain(["FC"], 300)
    for _ in range(2):
        last = fn.lighter({"FM": lambda row: row})
        flow.constrain(["FC", "FM"], 300, on_violation="apply", lighter=last)
    flow.constrain(["MC"], 300)
    assert [str(one.sequence) for one in flow.constraints()] == ["FC", "FC -> FM", "MC"]
    assert list(flow.lighters().values())[1] is last


def test_functions_are_no_part_of_the_constraint(flow: DataflowBuilder) -> None:
    """Which is sent to every host."""
    given = flow.constrain(["FC", "FM"], 300, on_violation="apply", lighter=fn.lighter(LIGHT))
    assert not any(callable(getattr(given, name)) for name in given.__slots__)
