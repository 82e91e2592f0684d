"""Declaring loops: the head, scopes, what comes back and what leaves, and what is refused where it is declared."""

from __future__ import annotations

import pytest

from fries_nb.dataflow import DataflowBuilder, Emits, Kind, Update, check_runnable, check_updates, memory, rate
from fries_nb.dataflow.graph import ROOT
from fries_nb.errors import DataflowError, PlanError
from fries_nb.protocol.progress_locations import progress_graph


def same(row):
    """A function of a row."""
    return row


@pytest.fixture
def flow() -> DataflowBuilder:
    """A dataflow."""
    return DataflowBuilder("loops")


@pytest.fixture
def rows(flow):
    """Its source's stream."""
    return flow.source("S", rate(10), identity="ID")


def once(stream, name="B"):
    """A body of one split, back and out."""
    return stream.split(name, same)


def edges(flow: DataflowBuilder) -> list[str]:
    """Edges as text; ``=>`` feeds back."""
    return [f"{edge.source} {'=>' if edge.feedback else '->'} {edge.to}" for edge in flow.graph().edges]


def scopes(flow: DataflowBuilder) -> dict[str, str]:
    """Operator to its loops."""
    return {operator.name: "/".join(operator.within.loops) for operator in flow.graph().operators}


def test_a_loop_adds_one_operator(flow, rows):
    """The head: inside of its own scope, with forward edges from outside and a feedback edge from inside."""
    out = rows.iterate("L", once, workers=3)
    out.sink("out", memory())
    graph = flow.graph()
    head = graph.operator("L")
    assert (head.kind, head.workers, head.branches, head.emits) == (Kind.LOOP, 3, 1, Emits.ONE_TO_MANY)
    assert edges(flow) == ["S -> L", "B => L", "L -> B", "B -> out"]
    assert scopes(flow) == {"S": "", "L": "L", "B": "L", "out": ""}
    assert [edge.branch for edge in graph.edges] == [0, 0, 0, 1]
    assert out.within == ROOT
    assert flow.stream("L").operator == "B"
    check_runnable(graph)


def test_rows_that_come_back_can_be_told_apart(flow, rows):
    """With feedback, the head has two branches: those that enter, and those that come back."""

    def body(entering, back):
        assert (entering.name, back.name) == ("L[0]", "L[1]")
        merged = entering.map("A", same).union("U", back.map("B", same))
        return merged.split("C", same)

    rows.iterate_with_feedback("L", body).sink("out", memory())
    graph = flow.graph()
    assert graph.operator("L").branches == 2
    assert {edge.to: edge.branch for edge in graph.out_edges("L")} == {"A": 0, "B": 1}
    check_runnable(graph)


def test_a_branch_that_the_body_leaves_out_is_named(flow, rows):
    """Its rows would be lost."""
    rows.iterate_with_feedback("L", lambda entering, back: once(entering)).sink("out", memory())
    with pytest.raises(DataflowError, match=r"nothing consumes 'L\[1\]'.*expected loop 'L' to use it"):
        check_runnable(flow.graph())


def test_loops_in_loops_and_in_sequence(flow, rows):
    """FLIP-15's own example: the output of the inner loop is both what the outer one feeds back and its output."""

    def outer(stream):
        nested = stream.map("A", same).iterate("M", once)
        return nested, nested

    rows.iterate("L", outer).iterate("N", lambda stream: once(stream, "C")).sink("out", memory())
    assert scopes(flow) == {
        "S": "", "L": "L", "A": "L", "M": "L/M", "B": "L/M", "Replicate(B[1])": "L/M", "N": "N", "C": "N", "out": "",
    }  # fmt: skip
    assert edges(flow) == [
        "S -> L", "Replicate(B[1]) => L", "L -> A", "A -> M", "B => M", "M -> B", "B -> Replicate(B[1])",
        "Replicate(B[1]) -> N", "C => N", "N -> C", "C -> out",
    ]  # fmt: skip
    progress = progress_graph(flow.graph())
    around = [edge for edge in progress.edges if edge.feedback]
    assert [progress.summary(edge.location).apply((0, 7, 4, 9)[: progress.length(edge.source)]) for edge in around] == [
        (0, 7, 5), (0, 7, 4, 10), (0, 7, 5),
    ]  # fmt: skip


def test_copies_are_inside_of_the_loop(flow, rows):
    """A stream inside with two consumers is copied inside, whichever of them is the feedback or outside."""

    def body(stream):
        result = stream.map("A", same)
        return result, result

    out = rows.iterate("L", body)
    out.sink("one", memory())
    out.sink("two", memory())
    assert scopes(flow)["Replicate(A)"] == "L"
    assert {f"Replicate(A) {arrow}" for arrow in ("=> L", "-> one", "-> two")} <= set(edges(flow))


def test_a_head_with_two_consumers(flow, rows):
    """The copy of the head's stream is inside, that of the stream that enters outside."""

    def body(stream):
        return stream.map("A", same), stream.map("B", same)

    rows.iterate("L", body).sink("out", memory())
    rows.sink("all", memory())
    assert scopes(flow)["Replicate(L)"] == "L"
    assert scopes(flow)["Replicate(S)"] == ""
    assert "Replicate(S) -> L" in edges(flow)


def test_one_to_one_is_a_fact_about_the_loop(flow, rows):
    """The head carries it for the planner; rows keep their identity."""
    out = rows.iterate("L", once, one_to_one=True)
    assert flow.graph().operator("L").emits is Emits.ONE_TO_ONE
    assert out.identity == rows.identity
    assert rows.iterate("M", lambda stream: once(stream, "C")).identity is None


def test_identity_is_not_known_inside(flow, rows):
    """A source tuple comes round several times, so a self-join inside is not unique for it."""

    def body(stream):
        left, right = stream.split("A", same)
        joined = left.map("B", same).self_join("J", right.map("C", same), on="ID")
        return joined.split("D", same)

    rows.iterate("L", body)
    assert not flow.graph().operator("J").unique_per_transaction


def test_scopes_of_loops(flow, rows):
    """Equal in one loop, nested as the loops are; loops in sequence have one level and different scopes."""

    def outer(stream):
        return stream.map("A", same).iterate("M", once).split("C", same)

    rows.iterate("L", outer).iterate("N", lambda stream: once(stream, "D"))
    within = {operator.name: operator.within for operator in flow.graph().operators}
    assert within["L"] == within["A"] == within["C"]
    assert within["M"] == within["B"] == within["L"].nest("M")
    assert within["B"].is_inner_of(within["A"])
    assert within["A"].is_outer_of(within["B"])
    assert within["B"].unnest().unnest() == within["S"] == ROOT
    assert within["N"].level == within["L"].level
    assert not within["N"].is_inner_of(within["L"])


def test_a_head_cannot_be_changed(flow, rows):
    """It runs no function; the operators of the body can."""
    rows.iterate("L", lambda stream: once(stream.map("A", same))).sink("out", memory())
    check_updates(flow.graph(), {"A": Update(same)})
    with pytest.raises(PlanError, match=r"operator 'L' \(loop\) runs no function that could be changed"):
        check_updates(flow.graph(), {"L": Update(same)})


REFUSED = {
    "a union across scopes": (
        lambda rows, s: s.union("U", rows),
        r"union 'U' combines 'L' of loop 'L' with 'S' of the root scope; expected streams of one scope",
    ),
    "a self-join across scopes": (
        lambda rows, s: rows.self_join("J", s, on="ID"),
        r"self join 'J' combines 'S' of the root scope with 'L' of loop 'L'; expected",
    ),
    "an outer stream": (
        lambda rows, s: rows.map("X", same),
        r"operator 'X' of loop 'L' uses stream 'S' of the root scope, from outside.*enter the loop with the input",
    ),
    "a source": (lambda rows, s: rows.flow.source("T", rate(1)), r"source 'T' is inside of loop 'L'.*source outside"),
    "a sink": (lambda rows, s: s.sink("T", memory()), r"sink 'T' is inside of loop 'L'.*by its output only"),
    "an aggregate": (
        lambda rows, s: s.aggregate("T", None, {"n": "count(*)"}), r"aggregate 'T' is inside of.*behind the loop",
    ),
    "a sort": (lambda rows, s: s.sort("T", "ID"), r"sort 'T' is inside of loop 'L'.*behind the loop"),
    "a pause on errors": (
        lambda rows, s: s.map("T", same, on_error="pause"), r"operator 'T' with on_error='pause' is inside of loop 'L'",
    ),
    "no pair": (lambda rows, s: s.map("A", same), r"body of loop 'L' returned Stream\('A'\); expected two streams"),
    "three streams": (lambda rows, s: s.split("A", same, into=3), r"returned \(Stream.*expected two streams"),
    "nothing": (lambda rows, s: None, r"body of loop 'L' returned None; expected two streams, \(feedback, out\)"),
    "no streams": (lambda rows, s: (s, 3), r"expected two streams"),
    "an outer stream as feedback": (
        lambda rows, s: (rows, s.map("A", same)), r"as feedback the stream 'S', which is in the root scope; expected",
    ),
    "an outer stream as output": (
        lambda rows, s: (s.map("A", same), rows), r"as out the stream 'S', which is in the root scope; expected",
    ),
    "the head's own stream as feedback": (
        lambda rows, s: (s, s.map("A", same)), r"feeds back the head's own stream 'L'.*expected an operator in between",
    ),
    "a stream of another dataflow": (
        lambda rows, s: (DataflowBuilder("other").source("S", rate(1)), s), r"of another dataflow, 'other'",
    ),
    "the name of the loop again": (lambda rows, s: s.map("L", same), r"two operators are named 'L'"),
    "an inner stream as output": (
        lambda rows, s: (s.map("A", same), [s.iterate("M", once), rows.flow.stream("B[0]")][1]),
        r"as out the stream 'B\[0\]', which is in loop 'L/M'; expected a stream of its own scope, loop 'L'",
    ),
    "an inner stream outside of its loop": (
        lambda rows, s: [s.iterate("M", once), rows.flow.stream("B[0]").map("X", same)],
        r"operator 'X' of loop 'L' uses stream 'B\[0\]' of loop 'L/M'; rows leave.*expected flow.stream\('M'\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name_and_taken_back(flow, rows, case):
    """Each is one sentence with both scopes and operators, and the loop can be declared again, correctly."""
    body, words = REFUSED[case]
    before = flow.graph()
    with pytest.raises(DataflowError, match=words) as refused:
        rows.iterate("L", lambda stream: body(rows, stream))
    assert "\n" not in str(refused.value)
    assert flow.graph() == before
    rows.iterate("L", once).sink("out", memory())
    check_runnable(flow.graph())


@pytest.mark.parametrize(
    ("declare", "body", "words"),
    [
        ("iterate", lambda: None, r"body of loop 'L' has the parameters \(\); expected it to take 1 stream"),
        ("iterate", lambda one, two: None, r"takes two streams; expected iterate_with_feedback\('L', ...\)"),
        ("iterate_with_feedback", lambda one: None, r"takes a stream; expected iterate\('L', ...\)"),
        ("iterate_with_feedback", lambda a, b, c: None, r"has the parameters \(a, b, c\); expected it to take 2"),
    ],
)
def test_a_body_takes_the_streams_that_it_is_given(flow, rows, declare, body, words):
    """A body for the other kind of loop is told which one."""
    with pytest.raises(DataflowError, match=words):
        getattr(rows, declare)("L", body)
    assert [operator.name for operator in flow.graph().operators] == ["S"]
    rows.iterate("L", lambda *streams: once(*streams))
    rows.iterate_with_feedback("M", lambda *streams: once(streams[1], "C"))


def test_a_loop_is_left_by_its_output_only(flow, rows):
    """What the body kept for itself cannot be used outside, nor in another loop, nor in the loop once it is closed."""
    kept = []

    def body(stream):
        kept.extend(once(stream))
        return kept[0], kept[1]

    rows.iterate("L", body)
    words = r"operator 'X' of the root scope uses stream 'B\[0\]' of loop 'L'; rows leave.*expected flow.stream\('L'\)"
    with pytest.raises(DataflowError, match=words):
        kept[0].map("X", same)
    with pytest.raises(DataflowError, match=r"of loop 'M' uses stream 'B\[0\]' of loop 'L'; rows leave"):
        rows.iterate("M", lambda stream: once(kept[0].map("X", same)))


def test_no_function_as_a_body(flow, rows):
    """The body is what declares the loop."""
    with pytest.raises(DataflowError, match=r"loop 'L' got 3 as its body; expected a function of a stream to \(feed"):
        rows.iterate("L", 3)
    with pytest.raises(DataflowError, match=r"function of the streams input and feedback"):
        rows.iterate_with_feedback("L", None)
    with pytest.raises(DataflowError, match="one_to_one='yes'; expected True or False"):
        rows.iterate("L", once, one_to_one="yes")


def test_an_error_of_the_body_passes_through(flow, rows):
    """And what it declared is taken back, that of inner loops and constraints as well; streams of it are refused."""
    kept = []

    def body(stream):
        kept.append(stream.map("A", same))
        kept[0].iterate("M", once)
        raise ZeroDivisionError

    before = flow.graph()
    with pytest.raises(ZeroDivisionError):
        rows.iterate("L", body)
    assert flow.graph() == before
    with pytest.raises(DataflowError, match="no stream 'A'"):
        flow.stream("A")
    with pytest.raises(DataflowError, match="'A' was taken back, since the body of its loop failed"):
        rows.iterate("N", lambda stream: once(kept[0]))
    rows.iterate("L", lambda stream: once(stream.map("A", same))).sink("out", memory())
    check_runnable(flow.graph())


def test_dead_letters_of_a_body(flow, rows):
    """They are not rows that leave the loop, so a sink for them is allowed."""

    def body(stream):
        return once(stream.map("A", same, on_error=memory()))

    rows.iterate("L", body).sink("out", memory())
    check_runnable(flow.graph())
