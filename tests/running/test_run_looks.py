"""Questions of a run for what its workers hold: answers, limits of time, and what a run that is over has left."""

from __future__ import annotations

import pickle
import threading
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fries_nb.dataflow.constraints import EdgeElement
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.driver.open_questions import Asked, Looked, Withdrawn
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.operators.pickled_states import Pickles
from fries_nb.protocol.messages import LookAtRows, RowsSeen, StateSeen, TapCounts, WorkerId
from fries_nb.protocol.trace import identity_of
from fries_nb.running.key_states import RunLooks, given_states
from fries_nb.running.region_runner import RegionRunner
from fries_nb.running.row_table import seen_rows, tapped
from fries_nb.running.state_table import StateRow, state_table


class Counting:
    """Keeps a state."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Nothing is run here."""


def held(index: int, error: str = "", **states: Any) -> StateSeen:
    """What a worker of K answers."""
    pickles = Pickles()
    for pair in states.items():
        pickles.add(pair)
    worker = WorkerId("K", index)
    return StateSeen(1, worker, len(states), pickles.content, tuple(pickles.ends), is_last=True, error=error)


class AnsweringRun:
    """A run, and its driver, that answers each question with these parts, or not at all; or is over."""

    def __init__(
        self, *parts: StateSeen | RowsSeen, answers: bool = True, left: tuple[StateSeen | RowsSeen, ...] | None = None
    ) -> None:
        self.graph = Graph("g", (Operator("K", key=("k",), function=Counting(), workers=2),), ())
        self.ended, self.hide = threading.Event(), frozenset[str]()
        self.is_closed = left is not None
        self.parts, self.answers = parts, answers
        self.posted: list[Any] = []
        last = {part.worker: [part] for part in left or ()}
        self.core = SimpleNamespace(looks=SimpleNamespace(last=last))
        self.controller = SimpleNamespace(topology=SimpleNamespace(workers={"K": (0, 1)}))
        self.looks = RunLooks(self)  # type: ignore[arg-type]

    state = "recovering"

    def driver_of(self, operator: str) -> Any:
        """Itself."""
        return self

    def operator(self, name: str) -> Operator:
        """The operator."""
        return self.graph.operator(name)

    def shown_time(self, ticks: int) -> Any:
        """As it is."""
        return ticks

    def source_of(self, identity: int, operator: str) -> Any:
        """None."""

    def post(self, asked: Asked | Withdrawn) -> None:
        """Answer from another thread, unless it is closed."""
        self.posted.append(asked)
        if isinstance(asked, Asked) and self.answers and not self.is_closed:
            error = next((part.error for part in self.parts if part.error), "")
            kind = RowsSeen if isinstance(asked.look, LookAtRows) else StateSeen
            parts = tuple(part for part in self.parts if isinstance(part, kind))
            told = Looked(asked.look.number, parts, error)
            threading.Thread(target=self.looks.told, args=[told]).start()


def test_states_of_all_workers_are_told_in_turn_and_what_came_later_counts() -> None:
    """A key that was seen twice, since it has moved, is there once."""
    run = AnsweringRun(held(0, a={"n": 1}, b={"n": 2}), held(1, c={"n": 3}), held(1, a={"n": 4}))
    table = run.looks.table("K", None, None, 10.0)
    assert dict(zip(table["k"], table["n"], strict=True)) == {"a": 4, "b": 2, "c": 3}
    assert list(run.looks.table("K", None, 2, 10.0)["k"]) == ["a", "b"]
    assert list(run.looks.table("K", ["c", "z", "a"], None, 10.0)["n"]) == [3, 4]
    [size] = run.looks.sizes(10.0)
    assert (size.keys, size.largest[0][0] in "abc") == (3, True)


def test_a_worker_that_does_not_answer_is_waited_for_in_vain() -> None:
    """For as long as was said; its answer is dropped if it comes later."""
    run = AnsweringRun(answers=False)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s not all workers of K have answered; the run is recovering"):
        run.looks.states("K", None, None, 0.01)
    run.looks.told(Looked(1, (held(0, a={}),)))
    assert run.looks._answers == {}


def test_what_a_worker_refuses_is_told_with_advice() -> None:
    """If there is one."""
    run = AnsweringRun(held(0, error="9 keys of K[0] have about 900 MB, at most 134"))
    with pytest.raises(RunError, match=r"at most 134; expected fewer: n=1_000, or keys="):
        run.looks.states("K", None, None, 10.0)


def test_a_run_that_is_over_tells_what_is_missing() -> None:
    """A host that was gone has left nothing; what was too large is refused."""
    run = AnsweringRun(left=(held(0, a={"n": 1}), held(1, b={"n": 2})))
    assert sorted(one.key for one in run.looks.states("K", None, None, 10.0)[0]) == ["a", "b"]
    run = AnsweringRun(left=(held(0, a={"n": 1}),))
    with pytest.warns(UserWarning, match=r"K\[1\] left nothing behind: its host was gone"):
        assert [one.key for one in run.looks.states("K", None, None, 10.0)[0]] == ["a"]
    run = AnsweringRun(left=())
    for call in (lambda: run.looks.rows("K", 5, None, 10.0), lambda: run.looks.rows("K", 5, bool, 10.0),
                 lambda: run.looks.sizes(10.0), lambda: run.looks.states("K", None, None, 10.0)):  # fmt: skip
        with pytest.warns(UserWarning, match="left nothing"), pytest.raises(RunError, match="no worker of K is there"):
            call()
    run = AnsweringRun(left=(held(0, a={"n": 1}), held(1, error="7 keys of K[1] have about 70 MB, at most 17")))
    with pytest.raises(RunError, match=r"the run is over, and has left nothing of K: 7 keys of K\[1\]"):
        run.looks.states("K", None, None, 10.0)


def found(*rows: dict[str, Any], seen: int = 10, error: str = "", **more: Any) -> RowsSeen:
    """What a tap at a worker of K answers."""
    counts = TapCounts(0, len(rows), seen, seen - len(rows), len(rows))
    return RowsSeen(1, WorkerId("K", 0), b"", pickle.dumps(list(rows)), error=error, counts=counts, **more)


def test_a_tap_gives_the_rows_that_were_found_and_says_what_it_has_seen() -> None:
    """It is closed with the call; the condition goes to the workers, and is not called here."""
    run = AnsweringRun(found({"k": 1}), found({"k": 2}, {"k": 3}), found(columns=("k", "late")))
    table = run.looks.rows("K", 2, lambda row: 1 / 0, 10.0)
    assert table["k"].tolist() == [1, 2]
    assert table.attrs == {"rows_seen": 30, "rows_dropped": 27}
    note = "30 rows have passed, of which 27 were not tried: the time of taps is limited, and chains keep few rows"
    assert repr(table).endswith(note)
    asked, withdrawn = run.posted
    assert (asked.look.most, asked.look.lasts_ns, withdrawn) == (2, 10**10, Withdrawn(1))
    with pytest.raises(ZeroDivisionError):
        pickle.loads(asked.look.where)({})
    none = AnsweringRun(found(columns=("k", "late"))).looks.rows("K", 2, bool, 10.0)
    assert (len(none), list(none)[:2]) == (0, ["k", "late"])


def test_along_an_edge_rows_of_its_output_pass() -> None:
    """Also those that a run which is over has left; what came into the operator is none of them."""
    taken, batches = pickle.dumps([{"k": 0}]), pickle.dumps([{"k": 1}, {"k": 2}, {"k": 3}])
    run = AnsweringRun(left=(RowsSeen(0, WorkerId("K", 0), taken, batches, branches=(0, 1, 1)),
                             RowsSeen(0, WorkerId("K", 1))))  # fmt: skip
    operators = (*run.graph.operators, *(Operator(name, kind=Kind.SINK) for name in ("few", "rest")))
    run.graph = Graph("g", operators, (Edge("K", "few", branch=1), Edge("K", "rest")))
    assert run.looks.rows(EdgeElement("K", "few"), 5, None, 10.0)["k"].tolist() == [2, 3]
    assert run.looks.rows(EdgeElement("K", "rest"), 5, None, 10.0)["k"].tolist() == [1]
    assert run.looks.rows(EdgeElement("K", "few"), 5, lambda row: row["k"] != 2, 10.0)["k"].tolist() == [3]
    with pytest.raises(DataflowError, match="no edge 'few -> K'; expected one of K -> few, K -> rest"):
        run.looks.rows(EdgeElement("few", "K"), 5, None, 10.0)
    run = AnsweringRun(found({"k": 1}))
    run.graph = Graph("g", operators, (Edge("K", "few", branch=1), Edge("K", "rest")))
    run.looks.rows(EdgeElement("K", "few"), 5, bool, 10.0)
    assert run.posted[0].look.branch == 1


@pytest.mark.parametrize(("more", "words"), [
    ({"n": 10**30}, ""), ({"timeout": 1e30}, "timeout=1e[+]30; expected a number above 0, of seconds"),
    ({"timeout": float("inf")}, "timeout=inf"), ({"timeout": None}, "timeout=None"), ({"n": True}, "n=True"),
])  # fmt: skip
def test_what_no_message_holds_is_not_asked(more: dict[str, Any], words: str) -> None:
    """A number that cannot be sent would end the driver, and with it the run."""
    run, asked = AnsweringRun(held(0), found({"k": 1})), {"n": 2, "timeout": 10.0} | more
    for call in (lambda: run.looks.rows("K", asked["n"], None, asked["timeout"]),
                 lambda: run.looks.rows("K", asked["n"], bool, asked["timeout"]),
                 lambda: run.looks.table("K", None, asked["n"], asked["timeout"])):  # fmt: skip
        if words:
            with pytest.raises(PlanError, match=words):
                call()
        else:
            call()
    assert all(msgspec.msgpack.encode(one.look) for one in run.posted if isinstance(one, Asked))


@pytest.mark.parametrize(("keys", "words"), [
    ([(1,)], r"\(1,\) is no key of K; expected a value of k"), ({"a": 1}, "expected keys in a list"),
    ([{1}], r"keys of K: \{1\} \(set\) cannot be a key"),
])  # fmt: skip
def test_what_is_no_key_is_refused(keys: Any, words: str) -> None:
    """By name."""
    with pytest.raises(DataflowError, match=words):
        AnsweringRun().looks.table("K", keys, None, 10.0)


def test_an_operator_that_remembers_without_a_function_is_looked_at_and_not_edited() -> None:
    """As one that passes on each row once."""
    run = AnsweringRun(held(0, a=True), held(1))
    run.graph = Graph("g", (Operator("K", key=("k",), kind=Kind.DEDUP, workers=2),), ())
    assert run.looks.table("K", None, None, 10.0)["k"].tolist() == ["a"]
    assert run.looks.size_table(10.0)["keys"].tolist() == [1]
    with pytest.raises(PlanError, match="K is a dedup, and runs no function of yours; its states are not edited"):
        run.looks.edited("K", {"a": [1]}, 10.0)


def test_a_tap_whose_workers_do_not_answer_gives_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is withdrawn twice, so that the driver does not wait for them."""
    monkeypatch.setattr("fries_nb.running.key_states.LAST_WORDS_S", 0.01)
    run = AnsweringRun(answers=False)
    assert len(run.looks.rows("K", 2, bool, 0.01)) == 0
    assert run.posted[1:] == [Withdrawn(1), Withdrawn(1)]


@pytest.mark.parametrize(("part", "error", "words"), [
    (found(error="where raised ValueError: no on a row that is in", row=pickle.dumps({"k": 7})), RunError,
     'where raised ValueError: no on a row that is in: {"k": 7}'),
    (found(lacked="it has the columns k"), PlanError, "it has the columns k"),
    (found(error="the rows of K cannot be copied"), RunError, "the rows of K cannot be copied"),
])  # fmt: skip
def test_what_ends_a_tap_is_raised(part: RowsSeen, error: type[Exception], words: str) -> None:
    """With the row, or with the columns that are there."""
    with pytest.raises(error) as raised:
        AnsweringRun(part).looks.rows("K", 2, bool, 10.0)
    assert str(raised.value) == words


def test_a_condition_that_cannot_be_sent_is_refused() -> None:
    """Before anything is asked."""
    run, large, lock = AnsweringRun(), b"x" * 300_000, threading.Lock()
    with pytest.raises(PlanError, match=r"where= is 3.* bytes long with all that it uses; expected at most 262,144"):
        run.looks.rows("K", 2, lambda row: large, 10.0)
    with pytest.raises(DataflowError, match=r"the where= of K cannot be pickled: TypeError"):
        run.looks.rows("K", 2, lambda row: lock, 10.0)
    assert run.posted == []


def test_a_condition_is_tried_on_what_a_run_that_is_over_has_left() -> None:
    """A column that no row has is named with those that are there."""
    left = RowsSeen(0, WorkerId("K", 0), pickle.dumps([{"k": 1}, {"k": 2}])), RowsSeen(0, WorkerId("K", 1))
    run = AnsweringRun(left=left)
    table = run.looks.rows("K", 5, lambda row: row["k"] > 1, 10.0)
    assert (table["k"].tolist(), table.attrs) == ([2], {"rows_seen": 2, "rows_dropped": 0})
    seen = tapped([], 5, [found(seen=1), found(seen=9)], left=[*seen_rows(left, int, lambda _: None)])
    assert seen.attrs == {"rows_seen": 10, "rows_dropped": 8}, "those that are left are among those that have passed"
    with pytest.raises(PlanError, match=r"where raised KeyError: 'price' on a row that is in; it has the columns k"):
        run.looks.rows("K", 5, lambda row: row["price"] > 1, 10.0)
    with pytest.raises(RunError, match=r'ZeroDivisionError: division by zero on a row that is in: {"k": 1}'):
        run.looks.rows("K", 5, lambda row: 1 / 0, 10.0)


def test_a_tap_ends_when_its_asker_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no worker tries rows in vain."""
    run = AnsweringRun(answers=False)

    def interrupted(timeout: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(run.looks._told, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.looks.rows("K", 2, bool, 10.0)
    assert run.posted[1:] == [Withdrawn(1)]
    assert run.looks._awaited == set()


def test_a_region_that_never_began_is_no_reason_to_wait() -> None:
    """If the run is over."""
    run: Any = AnsweringRun()
    run.driver_of = lambda operator: None
    run.refuse_if_over = lambda why: None
    with pytest.raises(RunError, match="K has not begun: its region of the dataflow begins when"):
        run.looks.rows("K", 5, None, 10.0)

    def refuse(why: str) -> None:
        raise RunError(f"run 'g' has failed; {why}")

    run.refuse_if_over = refuse
    with pytest.raises(RunError, match="run 'g' has failed; K had not begun"):
        run.looks.rows("K", 5, None, 10.0)


def test_what_derives_from_no_source_tuple_has_no_source() -> None:
    """As the result of a window, whose identity is negative; nor is there a tuple that no message holds."""
    driver = SimpleNamespace(core=SimpleNamespace(region=SimpleNamespace(graph={"T": None, "K": None})))
    launched = SimpleNamespace(driver=driver, sources=[("S", None), ("T", None)])
    runner: Any = SimpleNamespace(
        launched=[launched], graph=SimpleNamespace(name="g", sources=("T", "U")),
        options=SimpleNamespace(identities=True), _region_of=lambda operator: 0,
    )  # fmt: skip
    assert RegionRunner.identity(runner, ("T", 2, 3)) == (identity_of(1, 2, 3), {"T", "K"})
    with pytest.raises(RunError, match="U has not begun"):
        RegionRunner.identity(runner, ("U", 2, 3))
    for beyond in (("S", 1 << 10, 0), ("S", 0, 1 << 40)):
        with pytest.raises(PlanError, match=r"expected fewer than 1,024 splits and 2\*\*40 rows"):
            RegionRunner.identity(runner, beyond)
    assert RegionRunner.source_of(runner, identity_of(1, 2, 3), "K") == ("T", 2, 3)
    assert RegionRunner.source_of(runner, identity_of(2, 0, 0), "K") is None
    assert RegionRunner.source_of(runner, -1, "K") is None


class Timed:
    """Works by time."""

    def process(self, row: dict[str, Any], state: dict[str, int], at: Any) -> None:
        """Nothing is run here."""


BEFORE = Graph("g", (Operator("Old", key=("k",), function=Counting()),), ())
AFTER = Graph(
    "g",
    (
        *BEFORE.operators, Operator("New", key=("k",), function=Counting()), Operator("Plain", function=dict),
        Operator("Two", key=("a", "b"), function=Counting()), Operator("Late", key=("k",), function=Timed()),
        Operator("Once", kind=Kind.DEDUP, key=("k",)),
    ),
    (),
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        ([1], PlanError, r"state=\[1\]; expected added operators with their states by key, as in state={"),
        ({"Nwe": {}}, DataflowError, "state=: no operator 'Nwe'; expected one of Old, New"),
        ({"Old": {}}, PlanError, r"state= of Old: it runs already, .*expected run.set_state\('Old', ...\)"),
        ({"Plain": {}}, DataflowError, "state= of Plain: its function keeps no state"),
        ({"Once": {}}, DataflowError, "state= of Once: its function keeps no state"),
        ({"Late": {}}, PlanError, "state= of Late: an operator that works by time"),
        ({"New": [{}]}, PlanError, "state= of New is a list; expected a mapping from keys to states"),
        ({"New": {(1, 2): {}}}, DataflowError, r"\(1, 2\) is no key of New; expected a value of k"),
        ({"Two": {1: {}}}, DataflowError, "1 is no key of Two; expected a tuple of a, b"),
        ({"New": {object: {}}}, DataflowError, "keys of New: .*cannot be a key"),
        ({"New": {1: 5}}, PlanError, r"state= of New: 1: 5 \(int\), which cannot change in place"),
        ({"New": {1: None}}, PlanError, "state= of New: 1: None is no state"),
    ],
)
def test_states_that_cannot_be_given_are_refused(state: Any, error: type[Exception], words: str) -> None:
    """Each in a sentence that names the operator."""
    with pytest.raises(error, match=words):
        given_states(BEFORE, AFTER, state)


def test_states_are_given_by_key_or_as_a_table() -> None:
    """A table gives dicts of its columns, or what its column ``value`` has; what is not whole there is refused."""
    assert given_states(BEFORE, AFTER, None) == {}
    states = {"New": {Decimal(7): {"n": 1}, "x": {}}, "Two": {(1, "a"): {"n": 2}}}
    assert given_states(BEFORE, AFTER, states) == states
    rows = [StateRow((1, "a"), {"n": 2}, 9, 3, 0), StateRow((2, "b"), {"n": 3}, 9, 3, 0)]
    assert given_states(BEFORE, AFTER, {"Two": state_table(rows, ("a", "b"))}) == {
        "Two": {(1, "a"): {"n": 2}, (2, "b"): {"n": 3}}
    }
    for one in ({"_x": 1, "y": 2}, {"value": 5}, {"value": {"a": 1}}, {1: 2}):
        table = state_table([StateRow(None, one, 9, 3, 0), StateRow(2.5, one, 9, 3, 0)], ("k",))
        assert given_states(BEFORE, AFTER, {"New": table}) == {"New": {None: one, 2.5: one}}
    held = {1: {"x": 1}, 2: [3]}
    whole = state_table([StateRow(key, value, 9, 3, 0) for key, value in held.items()], ("k",))
    assert given_states(BEFORE, AFTER, {"New": whole}) == {"New": held}
    for value, words in (
        ({"k": 3}, "since value_k is a part of something else"), ([1, 2], "since value_0 is a part of something else"),
        ({"n": None}, "since a row lacks a part"),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=f"state= of New: states cannot be made of the table, {words}"):
            given_states(BEFORE, AFTER, {"New": state_table([StateRow(1, value, 9, 3, 0)], ("k",))})
    with pytest.raises(PlanError, match="state= of Two: the table has no column a, which is of its key"):
        given_states(BEFORE, AFTER, {"Two": whole})
