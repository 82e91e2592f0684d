"""A rehearsal asks a one-to-many function for a few rows of a tuple, however many it would make, or without end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from worker_bench import Bench, data

from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.protocol.messages import Rehearsed
from fries_nb.worker.trial import MOST_ROWS

PATIENCE = 10_000
asked: dict[str, int] = {"rows": 0, "ends": 0}
"""What the functions below were asked for; they are known here as in the rehearsal, by name."""


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    """Each test counts from zero."""
    asked.update(rows=0, ends=0)


def endless(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As good as endless: nobody should get to where it fails."""
    try:
        for child in range(PATIENCE):
            asked["rows"] += 1
            yield row | {"child": child}
        raise AssertionError("asked for ever more")
    finally:
        asked["ends"] += 1


def hundred(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A hundred rows."""
    return [dict(row) for _ in range(100)]


def listed(row: dict[str, Any]) -> dict[str, Any]:
    """A long list in a column."""
    return row | {"many": list(range(PATIENCE))}


def counted(row: dict[str, Any]) -> dict[str, Any]:
    """Counts the rows that come to it."""
    asked["rows"] += 1
    return row


class Once:
    """What is there before it."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> Iterator[dict[str, Any]]:
        """One row."""
        return itself(row)


class Endless:
    """Likewise, with a state."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> Iterator[dict[str, Any]]:
        """As many as anybody wants."""
        return endless(row)


def one_to_many(name: str, function: Any, policy: Any = "fail", key: tuple[str, ...] = ()) -> Operator:
    """An operator that multiplies."""
    return Operator(name, Emits.ONE_TO_MANY, kind=Kind.FLAT_MAP, function=function, on_error=policy, key=key)


def itself(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for a row."""
    yield row | {"child": 0}


def nothing(row: dict[str, Any]) -> None:
    """No row comes out of the chain."""


def rehearsed(*chain: Operator, name: str, function: Any) -> Rehearsed:
    """What the rehearsal of a change of one operator says."""
    bench = Bench(*chain)
    for position in range(len(chain)):
        bench.keep_letters(position)
    bench.arrive(0, data(1))
    bench.run()
    bench.prepare(name, "u1", Update(function))
    [answer] = bench.answers(Rehearsed)
    assert isinstance(answer, Rehearsed)
    return answer


@pytest.mark.parametrize("policy", ["fail", "pause", memory()])
def test_a_function_without_end_is_rehearsed_to_an_end(policy: Any) -> None:
    """Whatever its operator does about failures; its generator is closed."""
    answer = rehearsed(one_to_many("M", itself, policy), name="M", function=endless)
    assert (answer.error, answer.tuples) == ("", 1)
    assert asked == {"rows": MOST_ROWS, "ends": 1}


def test_one_with_a_state_is_no_other() -> None:
    """Its function makes the generator."""
    answer = rehearsed(one_to_many("M", Once(), key=("n",)), name="M", function=Endless())
    assert (answer.error, asked) == ("", {"rows": MOST_ROWS, "ends": 1})


@pytest.mark.parametrize(("last", "compared"), [(nothing, MOST_ROWS), (dict, 0)])
def test_nor_is_it_asked_for_more_where_its_rows_go_nowhere(last: Any, compared: int) -> None:
    """The last operator drops them all, or none. Two that multiply do not multiply each other.

    If nothing is left, the present functions are tried as well.
    """
    counts = Operator("C", function=counted)
    chain = [one_to_many("M", itself), one_to_many("N", hundred), counts, Operator("L", function=last)]
    answer = rehearsed(*chain, name="M", function=endless)
    assert (answer.error, asked) == ("", {"rows": 100 + MOST_ROWS + MOST_ROWS + compared, "ends": 1})


def test_a_list_of_many_elements_becomes_as_few_rows() -> None:
    """Unnested in a trial."""
    unnest = Operator("U", Emits.ONE_TO_MANY, kind=Kind.UNNEST, function="many")
    chain = [Operator("M", function=listed), unnest, Operator("L", function=counted)]
    answer = rehearsed(*chain, name="M", function=listed)
    assert (answer.error, asked["rows"]) == ("", PATIENCE + MOST_ROWS)
