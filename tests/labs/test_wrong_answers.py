"""Wrong answers to the labs: each check says what is likely wrong; and right ones in other forms pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import pytest
from IPython.utils.capture import capture_output
from notebook_shell import ipython
from pandas import concat

import fries_nb as fn
from fries_nb.errors import LabError
from fries_nb.labs import (
    answers,
    coverings,
    interleavings,
    latency_remedies,
    loop_endings,
    progress_board,
    rankings,
    recoveries,
)
from fries_nb.labs.answers import WRONG_ANSWERS, Picture
from fries_nb.labs.coverings import sketch
from fries_nb.labs.interleavings import VersionStamp, interleaved
from fries_nb.protocol.trace import Ran, Updated

FORK = sketch("A -> C -> D -> F -> H", "C -> E -> F", "B -> G -> H")
CARDS = sketch("P -> FC -> J -> SP -> FMX -> U", "SP -> FMY -> U", one_to_many={"J"})
FIGURE_10 = sketch("S -> RE -> C -> SJ -> E", "RE -> D -> SJ", replicate={"RE"}, unique={"SJ"})
EDGE = (sketch("S -> A -> X", "Q -> E -> T"), sketch("S -> A -> X", "Q -> E -> T", "A -> E"), {"T"})
INSERTED = (sketch("S -> A -> B -> Y"), sketch("S -> A -> N -> B -> Y"), ())
CHAIN = sketch("payments -> FC -> FM -> MC -> scored")
S3 = [Ran("t", "FM"), Updated("u", "FM"), Updated("u", "MC"), Ran("t", "MC")]
SCHEDULES = {"S1": [Ran("t", "FC"), Updated("u", "FM"), Ran("t", "FM")], "S3": S3}
BY_COUNTRY = concat({"DE": rankings.arms_table((0.3, 0.1), (0, 0)), "JP": rankings.arms_table((0.3, 0.5), (0, 0))})
IN_FRONT = rankings.QueueLoad({"FM": 60}, {"FM": 20})


def fork(answer: Any) -> object:
    """The check of task 2 in lab 3."""
    return coverings.check_components(FORK, {"C", "F", "G"}, answer)


def board() -> progress_board.ProgressBoard:
    """A small one."""
    made = progress_board.ProgressBoard("S -> A -> W", watched="W")
    made.read("S", 3, then=12)
    made.pass_on("A", 3, keeps=5)
    made.drop("A", 5)
    return made


def flow(kind: str) -> Any:
    """Dataflows that do not refute the printed rule."""
    made = fn.Dataflow(kind)
    source = made.source("S", fn.rate(None), identity="id")
    if kind == "plain":
        stream = source.map("W", dict)
    elif kind == "two":
        left, right = source.replicate("RE")
        stream = left.dedup("D1", on="id").union("U", right.dedup("D2", on="id")).flat_map("M", lambda row: [row])
    else:
        left, right = source.replicate("RE")
        if kind == "joined":
            stream = left.self_join("SJ", right.map("M", dict), on="id")
        else:
            stream = left.union("U", right.dedup("D", on="id"))
    stream.map("X", VersionStamp("X", "old")).sink("out", fn.memory())
    return made


def halving(
    goes_back: bool, below: int = 20, copies: int = 1, exchanged: bool = False, counts: bool = True, ends: bool = True
) -> Any:
    """A loop that lets so many copies of a row out when it is below a number (or is not), or no loop at all."""
    made = fn.Dataflow("halving")
    numbers = made.source("numbers", fn.rate(None))

    def body(rows: Any) -> Any:
        counted = (lambda row: row | {"rounds": row["rounds"] + 1}) if counts else (lambda row: {"value": row["value"]})
        halved = rows.map("H", lambda row: counted(row) | {"value": row["value"] / 2})
        return halved.split("D", lambda row: (row["value"] < below) is not exchanged)

    out = (numbers.iterate("L", body) if goes_back else numbers).flat_map("Copies", lambda row: [row] * copies)
    if ends:
        out.sink("out", fn.memory())
    return made


def all_of(seen: loop_endings.AttemptSeen) -> bool:
    """The right rule."""
    return all(seen.input_ended) and not sum(seen.came_back) and not any(seen.busy)


def is_in_order(rows: Any, count: int) -> bool:
    """A judge that looks at the number of rows and at versions."""
    return len(rows) == count and all(row["FM"] == row["MC"] for row in rows)


def reference(graph: nx.DiGraph, name: str, targets: set[str], unique: set[str]) -> bool:
    """The rule as printed."""
    bare = graph.subgraph(set(graph) - (unique - targets - {name}))
    return not any(nx.has_path(bare, name, target) for target in targets)


WRONG: Mapping[str, tuple[Callable[[], object], str]] = {
    "a target": (lambda: fork([{"C", "D", "E"}, {"G"}]), "F is missing: it changes itself"),
    "on a path": (lambda: fork([{"C", "F"}, {"G"}]), "D is missing: it lies on the path C -> D -> F"),
    "below": (lambda: fork([{"C", "D", "E", "F", "H"}, {"G"}]), "H is one too many: it is below"),
    "above": (lambda: fork([{"A", "C", "D", "E", "F"}, {"G"}]), "A is one too many: it is above"),
    "joined": (lambda: fork([{"C", "D", "E", "F", "G"}]), "belong to two components"),
    "divided": (lambda: fork([{"C", "D", "E"}, {"F"}, {"G"}]), "D and F belong to one component"),
    "no such operator": (lambda: fork([{"X"}]), "no operator 'X'"),
    "a number": (lambda: fork(3), "got 3; expected a list of sets"),
    "multiplies": (lambda: coverings.check_components(CARDS, {"FMX"}, [{"FMX"}]), "J is missing: it is one-to-many"),
    "pruned": (lambda: coverings.check_components(FIGURE_10, {"E"}, [{"E", "RE"}]), "RE is one too many: SJ lets one"),
    "no head": (lambda: coverings.check_heads(FORK, {"C", "F", "G"}, "C"), "G is missing: no edge of its component"),
    "not a head": (lambda: coverings.check_heads(FORK, {"C", "F", "G"}, "C F G"), "F is not a head: the marker"),
    "no return": (lambda: coverings.check_algorithm(lambda graph, members: None), "returns nothing yet"),
    "raises": (lambda: coverings.check_algorithm(lambda graph, members: 1 / 0), "raised ZeroDivisionError"),
    "too plain": (lambda: coverings.check_own(sketch("A -> B"), "B", [{"B"}]), "the graph is too plain"),
    "one component": (lambda: coverings.check_own(FORK, "C F", [{"C"}]), "the change has one component"),
    "all change": (lambda: coverings.check_own(FORK, "C G", [{"C"}, {"G"}]), "only operators that change"),
    "one graph": (lambda: coverings.check_shape(*EDGE, "A, T"), "E is missing: it lies on the path A -> E -> T"),
    "its edges": (lambda: coverings.check_shape(*EDGE, "E, T"), "A is missing: its out-edges change"),
    "order": (lambda: coverings.check_shape(*INSERTED, "A"), "B is missing: rows of A that come directly and by"),
    "added": (lambda: coverings.check_shape(*INSERTED, "A, B, N"), "N is one too many: it is added"),
    "beside": (lambda: coverings.check_shape(*EDGE, "A, E, T, X"), "X is one too many: no path of before and after"),
    "a cycle": (lambda: sketch("A -> B -> A"), "has a cycle"),
    "no path": (lambda: sketch("A -> -> B"), "expected names with arrows"),
    "unsafe": (lambda: coverings.check_naive_safe(CARDS, {"x": {"FMX"}}, "x"), "J may send two tuples"),
    "safe": (lambda: coverings.check_naive_safe(CARDS, {"x": {"FC"}}, {}), "x is safe"),
    "cyclic": (lambda: interleavings.check_serializable(SCHEDULES, "S1, S3"), "S3 is not serializable: t precedes u"),
    "acyclic": (lambda: interleavings.check_serializable(SCHEDULES, set()), "S1 is serializable"),
    "backwards": (lambda: interleavings.check_arrows(S3[:2], {("u", "t")}), "points backwards"),
    "an arrow": (lambda: interleavings.check_arrows(S3, {("t", "u")}), "an arrow from u to t is missing"),
    "no conflict": (lambda: interleavings.check_arrows(S3, {("t", "v")}), "no arrow leads from t to v"),
    "never": (lambda: interleavings.check_counts({"naive": 3}, {"naive": 0}), "naive breaks 3 of the runs"),
    "always": (lambda: interleavings.check_counts({"fries": 0}, {"fries": 2}), "fries breaks no run"),
    "kept": (lambda: coverings.check_pruning(FIGURE_10, {"E"}, {"RE": "kept"}), "RE is not kept: SJ lets one tuple"),
    "no decision": (lambda: coverings.check_pruning(FIGURE_10, {"E"}, {"C": "kept"}), "C needs no decision"),
    "other word": (lambda: coverings.check_pruning(FIGURE_10, {"E"}, {"RE": "yes"}), "got 'yes' for RE"),
    "nothing to prune": (lambda: coverings.check_counterexample(flow("plain"), "X"), "nothing to prune"),
    "both prune": (lambda: coverings.check_counterexample(flow("joined"), "X"), "the corrected rules prune RE as well"),
    "both keep": (lambda: coverings.check_counterexample(flow("half"), "X"), "RE -> U -> X is unique"),
    "as printed": (lambda: coverings.check_rule(reference), "no single one is on all paths"),
    "never prunes": (lambda: coverings.check_rule(lambda *_: False), "it keeps A, although all paths"),
    "too few": (lambda: progress_board.check_frontiers(board(), [0]), "got 1 entries"),
    "frontier": (lambda: progress_board.check_frontiers(board(), [0, 12, 3, 3]), "after step 1 the frontier is not 12"),
    "too early": (lambda: progress_board.check_closed(board(), [(0, 3)], {0: 0}), "after step 0 a row of time 0"),
    "too late": (lambda: progress_board.check_closed(board(), [(0, 3)], {0: 2}), "can be closed earlier"),
    "holds nothing": (lambda: progress_board.check_holders(board(), {"S"}), "S does not hold the frontier"),
    "holder": (lambda: progress_board.check_holders(board(), {}), "A is missing"),
    "no loop": (lambda: loop_endings.check_halving(halving(False), 5), "has no loop"),
    "exchanged": (
        lambda: loop_endings.check_halving(halving(True, below=1, exchanged=True), 5),
        "the loop does not end, since rows go round in it for ever",
    ),
    "no sink": (lambda: loop_endings.check_halving(halving(True, ends=False), 5), "leave the loop go nowhere"),
    "uncounted": (lambda: loop_endings.check_halving(halving(True, 1, counts=False), 5), "a number as 'rounds'"),
    "leaves early": (lambda: loop_endings.check_halving(halving(True), 1), "a row left with the value"),
    "empty": (lambda: loop_endings.check_broken_rule(all_of, 0), "was empty when it ended"),
    "ends early": (lambda: loop_endings.check_ending(lambda seen: seen.quiet > 5), "although it holds rows"),
    "no end": (lambda: loop_endings.check_ending(lambda seen: False), "it never ends the loop"),
    "overlooks": (lambda: loop_endings.check_overlooked({"patient": "rows in hand"}), "patient does not overlook"),
    "latency": (
        lambda: rankings.check_latencies(lambda at, cost: [cost] * len(at)), "arrives at 1 has latency 7, not 4",
    ),
    "behind": (lambda: rankings.check_bottleneck({"A": 1, "B": 4, "C": 2}, 400, "C"), "C gets no more than the 250"),
    "in front": (lambda: rankings.check_bottleneck({"A": 1, "B": 4, "C": 2}, 400, "A"), "A can process 1000"),
    "useless": (lambda: rankings.check_remedies(["larger queue"]), "larger queue does not help: rows then wait"),
    "helps too": (lambda: rankings.check_remedies(["lighter B"]), "second worker for B helps as well"),
    "seconds": (lambda: answers.check_quantities(latency_ms=1.2), "1.2 ms is not right: expected in ms"),
    "no number": (lambda: answers.check_quantities(growth="30"), "got '30' for payments a second"),
    "any other": (lambda: answers.check_quantities(at_fm_fries=7), "7 ms is too much"),
    "not chosen": (lambda: answers.chosen(lines=None), "there is no answer yet; write it in the cell above"),
    "no choice": (lambda: answers.chosen(lines="many"), "got 'many'; expected '600' or 'fewer' or 'more'"),
    "choice": (lambda: answers.check_choices(versions_met=["old", "new"]), "with the change in effect"),
    "not measured": (lambda: rankings.check_measured([], 3), "nothing was measured"),
    "message": (lambda: rankings.check_messages(CHAIN, {"FM", "MC"}, {"fries": "FM, MC"}), "fries: MC gets none"),
    "ranking": (
        lambda: rankings.check_ranking(CHAIN, {"FM", "MC"}, IN_FRONT, ["epoch", "fries", "naive"]),
        "epoch is not quicker than fries",
    ),
    "alike": (
        lambda: rankings.check_ranking(CHAIN, {"FM", "MC"}, IN_FRONT, ["fries", "naive", "epoch"]),
        "fries and naive take alike",
    ),
    "aborted": (lambda: recoveries.check_outcomes({"prepared": "done"}), "prepared: the change is aborted"),
    "letters": (lambda: recoveries.check_order("abc"), "expected each of the letters"),
    "judge": (lambda: recoveries.check_verifier(is_in_order), "one is lost and another came out twice"),
    "strict": (lambda: recoveries.check_verifier(lambda *_: False), "it refuses rows that are right"),
    "keyed": (
        lambda: latency_remedies.check_chains(flow("half").graph(workers=1), [{"RE", "D"}]),
        "RE and D cannot be chained",
    ),
    "no chain": (
        lambda: latency_remedies.check_chains(flow("plain").graph(workers=1), [{"W", "X"}, {"S", "out"}]),
        "S and out are no chain",
    ),
    "no run": (lambda: interleavings.check_broken(3), "got 3; expected a run"),
    "a scheduler": (lambda: interleavings.check_counts({"naive": 3}, {"fries": 0}), "'naive' is missing"),
    "an operator": (lambda: coverings.check_pruning(FIGURE_10, {"E"}, {}), "RE is missing"),
    "one kept": (lambda: coverings.check_counterexample(flow("two"), "X"), "the printed rule keeps M, too"),
    "no row": (lambda: board().use("W", 9), "no row of time 9 is on its way to W"),
    "no step": (lambda: progress_board.check_closed(board(), [(0, 3)], {}), "the window from 0 to 3 has no step"),
    "rounds": (lambda: loop_endings.check_halving(halving(True, below=1), 4), "goes 5 rounds"),
    "twice": (lambda: loop_endings.check_halving(halving(True, below=1, copies=2), 5), "20 rows went in"),
    "none": (lambda: rankings.check_delays({}), "nothing was measured"),
    "no boolean": (lambda: rankings.check_gate(lambda arms: 1), "returns 1 (int); expected True or False"),
    "turned round": (lambda: rankings.check_gate(lambda arms: bool(arms["error mean"].new > 0.3)),
                     "the gate holds it"),
    "failing": (lambda: rankings.check_gate(lambda arms: bool(arms["error mean"].new < arms["error mean"].old)),
                "failures 0 and 3"),
    "the better one": (lambda: rankings.check_cohort(BY_COUNTRY, "DE"), "falls from 0.3 to 0.1"),
    "no country": (lambda: rankings.check_cohort(BY_COUNTRY, "XX"), "expected one of 'DE', 'JP'"),
    "left out": (lambda: rankings.check_ranking(CHAIN, {"FM"}, IN_FRONT, ["fries"]), "epoch is missing"),
    "unchained": (lambda: latency_remedies.check_chains(flow("plain").graph(workers=1), []), "W and X can be chained"),
    "own": (lambda: coverings.check_own(FORK, "C F G", [{"C"}]), "G is missing: it changes itself"),
    "members only": (lambda: coverings.check_algorithm(lambda graph, members: members), "it gives A and C; expected"),
    "a safe run": (
        lambda: interleavings.check_broken(interleaved(flow("plain"), {"X"}, "fries", 0)),
        "no transaction met both configurations",
    ),
    "steps": (lambda: recoveries.check_order("ecbad"), "a comes before b"),
    "no set": (lambda: coverings.check_algorithm(lambda graph, members: 3), "it returns 3; expected a set of names"),
    "sets in a set": (lambda: coverings.check_algorithm(lambda graph, members: [["A"]]), "expected A, B and C"),
    "always buffers": (lambda: latency_remedies.check_policy(lambda case: "buffers"), "expected 'nothing'"),
    "stage": (lambda: latency_remedies.check_stages({"full buffers": False}), "full buffers: the limit is exceeded"),
}  # fmt: skip


AT_ONCE = {
    "no such operator", "a number", "no return", "raises", "too plain", "one component", "all change", "a cycle",
    "no path", "no set", "other word", "too few", "no loop", "no number", "not chosen", "no choice", "not measured",
    "letters", "no run", "a scheduler", "no boolean", "no country", "no row",
    "no step", "none", "left out", "no sink", "uncounted",
}  # fmt: skip
"""Those that are no attempt: an answer that is missing, or has another form than the task asks for."""


def told(check: Callable[[], object]) -> LabError:
    """The error of a check, in one line."""
    with pytest.raises(LabError) as found:
        check()
    assert "\n" not in str(found.value)
    return found.value


def asked() -> set[Any]:
    """The questions that have been answered wrongly, by the first part of what tells them from others."""
    return {question if isinstance(question, str) else question[0] for question in WRONG_ANSWERS}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_answer_gets_a_hint_and_then_a_sentence(case: str) -> None:
    """In one line; with the likely mistake from the second time on, and at once if it is no attempt."""
    check, words = WRONG[case]
    first, second, third = (str(told(check)) for _ in range(3))
    assert words in second
    assert third == second
    if case in AT_ONCE:
        assert first == second
        assert not WRONG_ANSWERS
    else:
        assert re.fullmatch(r"not right yet: .{30,} \(the next wrong answer is explained\)", first)
        assert words not in first


def test_every_question_has_a_hint() -> None:
    """None is left out of the cases above, but that on a cycle, which needs a run (below)."""
    for check, _ in WRONG.values():
        told(check)
    assert asked() - {*answers.QUANTITIES, *answers.CHOICES} == {
        "components", "heads", "own graph", "algorithm", "naive is safe", "serializable", "arrows", "broken", "counts",
        "pruning", "counter-example", "rule", "frontiers", "closed", "holders", "halving", "longest", "broken rule",
        "overlooked", "ending", "latencies", "bottleneck", "remedies", "messages", "ranking", "outcome", "order",
        "verifier", "policy", "chains", "stage", "shape", "gate", "cohort",
    }  # fmt: skip


@pytest.mark.parametrize("name", answers.QUANTITIES)
def test_the_hint_on_a_number_does_not_give_it_away(name: str) -> None:
    """Nor any other number than those of the task."""
    given = 3 * answers.QUANTITIES[name].right + 7
    first, second = (str(told(lambda: answers.check_quantities(**{name: given}))) for _ in range(2))
    assert first.startswith(f"not right yet: {name}: {answers.QUANTITIES[name].hint}")
    assert not re.search(r"\d", answers.QUANTITIES[name].hint)
    assert second.startswith(f"{name}: {given:g} ")


@pytest.mark.parametrize("name", answers.CHOICES)
def test_the_hint_on_a_choice_does_not_give_it_away(name: str) -> None:
    """It asks, and the reason comes with the second wrong choice."""
    question = answers.CHOICES[name]
    other = next(option for option in question.options if option != question.right)
    first, second = (str(told(lambda: answers.check_choices(**{name: other}))) for _ in range(2))
    assert question.hint in first
    assert first.count("?") == 1
    assert repr(question.right) not in first
    assert question.why in second


def test_questions_are_told_apart() -> None:
    """Another question begins with its hint; a right answer, or one that is none, is no attempt."""
    heads = coverings.check_heads
    hint = str(told(lambda: heads(FORK, {"C", "F", "G"}, "C")))
    assert "not right yet" in str(told(lambda: heads(FORK, {"C", "F"}, "F")))
    assert "2 operators are missing; ask" in str(told(lambda: fork([{"C", "D", "E"}])))
    assert "all operators are right; which" in str(told(lambda: coverings.check_components(FORK, {"C", "G"}, ["C G"])))
    told(lambda: heads(FORK, {"C", "F", "G"}, None))
    heads(FORK, {"C", "F", "G"}, "C, G")
    assert not set(re.findall(r"\b[A-H]\b", hint))
    again = sketch("A -> C -> D -> F -> H", "C -> E -> F", "B -> G -> H")  # its cell was run once more
    assert "G is missing" in str(told(lambda: heads(again, {"C", "F", "G"}, "C")))


def states(error: LabError) -> dict[str, str]:
    """The states of the operators in the picture of an answer; those without one are left out."""
    assert isinstance(error.picture, Picture)
    nodes = ElementTree.fromstring(error.picture.svg).iter("{http://www.w3.org/2000/svg}g")
    found = {one.get("data-operator", ""): one.get("data-state", "") for one in nodes}
    return {name: state for name, state in found.items() if name and state}


DRAWN: Mapping[str, tuple[Callable[[], object], Mapping[str, str], Mapping[str, str]]] = {
    "members": (
        lambda: fork([{"C", "E", "F", "H"}, {"A"}]),
        {"C": "target answered", "F": "target answered", "G": "target"} | dict.fromkeys("AEH", "answered"),
        {"A": "wrong", "C": "target answered", "E": "answered", "F": "target answered", "H": "wrong", "D": "missing",
         "G": "target missing"},
    ),
    "none": (lambda: fork([]), dict.fromkeys("CFG", "target"), dict.fromkeys("CFG", "target missing")
             | dict.fromkeys("DE", "missing")),
    "heads": (
        lambda: coverings.check_heads(FORK, {"C", "F", "G"}, "C F"),
        {"C": "target answered", "F": "target answered", "G": "target"},
        {"C": "target answered", "F": "target wrong", "G": "target missing"},
    ),
    "algorithm": (
        lambda: coverings.check_algorithm(lambda graph, members: {"B", "X"}),
        {"A": "target", "B": "answered", "C": "target"},
        {"A": "target missing", "B": "answered", "C": "target missing"},
    ),
    "pruning": (
        lambda: coverings.check_pruning(FIGURE_10, {"E"}, {"RE": "kept", "C": "kept"}),
        {"RE": "answered", "C": "answered", "E": "target"},
        {"RE": "wrong", "C": "wrong", "E": "target"},
    ),
    "no decision": (
        lambda: coverings.check_pruning(FIGURE_10, {"E"}, {}), {"E": "target"}, {"RE": "missing", "E": "target"},
    ),
    "shape": (
        lambda: coverings.check_shape(*EDGE, "A, T, X"),
        {"A": "target answered", "T": "target answered", "X": "answered"},
        {"A": "target answered", "T": "target answered", "X": "wrong", "E": "missing"},
    ),
    "messages": (
        lambda: rankings.check_messages(CHAIN, {"FM", "MC"}, {"fries": "MC"}),
        {"FM": "target", "MC": "target answered"},
        {"FM": "target missing", "MC": "target wrong"},
    ),
    "holders": (
        lambda: progress_board.check_holders(board(), {"S"}), {"S": "answered"}, {"S": "wrong", "A": "missing"},
    ),
    "chains": (
        lambda: latency_remedies.check_chains(flow("plain").graph(workers=1), [{"W", "S"}]),
        {"S": "answered", "W": "answered"},
        {"S": "wrong", "W": "answered", "X": "missing"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DRAWN)
def test_a_set_of_operators_is_drawn(case: str) -> None:
    """With the hint as it was answered; with the explanation also what is wrong in it, and what is missing."""
    check, answer, judged = DRAWN[case]
    assert states(told(check)) == answer
    assert states(told(check)) == judged


def test_edges_inside_of_an_answered_component_are_emphasized() -> None:
    """They show how an answer divides its operators; a legend says what the frames mean."""
    divided = told(lambda: fork([{"C", "D", "E"}, {"F"}, {"G"}]))
    joined = told(lambda: fork([{"C", "D", "E", "F", "G"}]))
    assert isinstance(divided.picture, Picture)
    assert isinstance(joined.picture, Picture)
    assert [one.picture.svg.count('data-state="marked"') for one in (divided, joined)] == [2, 4]
    assert repr(divided.picture) == "Your answer: C, D, E, F and G."
    assert repr(joined.picture) == "Right: C, D, E, F and G."
    wrong = told(lambda: fork([{"A"}])).picture
    assert repr(wrong) == "Not right: A. Missing: C, D, E, F and G."


def test_ipython_shows_the_picture_above_the_sentence(tmp_path: Path) -> None:
    """In a cell of a lab, which need not load the extension."""
    cell = (
        "from fries_nb.labs.coverings import check_heads, sketch\n"
        'check_heads(sketch("A -> B -> C"), {"B", "C"}, "A, B")'
    )
    with ipython(tmp_path) as shell:
        for words in ("not right yet: which operators", "A takes no part in the change"):
            with capture_output() as shown:
                shell.run_cell(cell, store_history=True)  # as a kernel does, which renders the error once more
            assert shown.stdout.startswith(f"LabError: {words}")
            [output] = shown.outputs
            assert "<svg" in output.data["text/html"]
            assert "A" in output.data["text/plain"]


ODD = (
    None, ..., 3, 3.5, True, "x", "", [], {}, [1], {1}, {"a": 1}, [[1]], [[[]]], [("a",)], object(), len, lambda: None,
)  # fmt: skip
ANSWERED: Mapping[str, Callable[[Any], object]] = {
    "a source": lambda answer: coverings.check_own(FORK, {"A"}, answer),
    "components": fork,
    "shape": lambda answer: coverings.check_shape(*EDGE, answer),
    "heads": lambda answer: coverings.check_heads(FORK, {"C"}, answer),
    "algorithm": coverings.check_algorithm,
    "own graph": lambda answer: coverings.check_own(answer, {"C"}, [{"C"}]),
    "own targets": lambda answer: coverings.check_own(FORK, answer, [{"C"}]),
    "safe": lambda answer: coverings.check_naive_safe(CARDS, {"y": {"FC"}}, answer),
    "serializable": lambda answer: interleavings.check_serializable(SCHEDULES, answer),
    "arrows": lambda answer: interleavings.check_arrows(S3, answer),
    "broken": interleavings.check_broken,
    "counts": lambda answer: interleavings.check_counts({"naive": 1}, answer),
    "count": lambda answer: interleavings.check_counts({"naive": 1}, {"naive": answer and "1"}),
    "pruning": lambda answer: coverings.check_pruning(FIGURE_10, {"E"}, answer),
    "counter-example": lambda answer: coverings.check_counterexample(answer, "X"),
    "its target": lambda answer: coverings.check_counterexample(flow("half"), answer),
    "rule": coverings.check_rule,
    "frontiers": lambda answer: progress_board.check_frontiers(board(), answer),
    "closed": lambda answer: progress_board.check_closed(board(), [(0, 3)], answer),
    "one closed": lambda answer: progress_board.check_closed(board(), [(0, 3)], {0: answer and str(answer)}),
    "holders": lambda answer: progress_board.check_holders(board(), answer),
    "halving": lambda answer: loop_endings.check_halving(answer, 5),
    "seed": lambda answer: loop_endings.check_broken_rule(all_of, answer),
    "overlooked": loop_endings.check_overlooked,
    "one overlooked": lambda answer: loop_endings.check_overlooked({"patient": answer}),
    "latencies": rankings.check_latencies,
    "bottleneck": lambda answer: rankings.check_bottleneck({"A": 1, "B": 4}, 400, answer),
    "remedies": rankings.check_remedies,
    "measured": lambda answer: rankings.check_measured(None, answer),
    "quantity": lambda answer: answers.check_quantities(growth=answer),
    "choice": lambda answer: answers.check_choices(lines=answer),
    "pair": lambda answer: answers.check_choices(versions_met=answer),
    "messages": lambda answer: rankings.check_messages(CHAIN, {"FM"}, answer),
    "of one": lambda answer: rankings.check_messages(CHAIN, {"FM"}, {"fries": answer}),
    "ranking": lambda answer: rankings.check_ranking(CHAIN, {"FM"}, IN_FRONT, answer),
    "outcomes": recoveries.check_outcomes,
    "outcome": lambda answer: recoveries.check_outcomes({"prepared": answer}),
    "order": recoveries.check_order,
    "judge": recoveries.check_verifier,
    "policy": latency_remedies.check_policy,
    "chains": lambda answer: latency_remedies.check_chains(flow("plain").graph(workers=1), answer),
    "stages": latency_remedies.check_stages,
}


@pytest.mark.parametrize("check", ANSWERED)
def test_an_odd_answer_gets_a_sentence_as_well(check: str) -> None:
    """Whatever a student writes there: no check stumbles over the form of an answer."""
    for answer in ODD:
        with pytest.raises(LabError) as found:
            ANSWERED[check](answer)
        assert "\n" not in str(found.value), answer


def test_answers_have_many_right_forms() -> None:
    """Sets, lists, tuples and texts; in any order."""
    for answer in ([{"G"}, {"F", "E", "D", "C"}], ["G", "C D E F"], ({"C", "D", "E", "F"}, ["G"])):
        assert "2 components" in repr(fork(answer))
    for arrows in ({("t", "u"), ("u", "t")}, [("u", "t", "MC"), ("t", "u", "FM")], ["t -> u", "u -> t"]):
        assert "t -> u at FM" in repr(interleavings.check_arrows(S3, arrows))
    ranked = rankings.check_ranking(CHAIN, {"FM", "MC"}, IN_FRONT, [["naive", "fries"], {"epoch"}])
    assert repr(ranked) == "Right. fries and naive, then epoch."
    assert "Spark starts" in repr(recoveries.check_order(["e", "c", "a", "b", "d"]))


def test_a_cycle_is_checked_against_the_run() -> None:
    """Arrows that do not hold, or that form no cycle, are refused."""
    made = fn.Dataflow("fraud")
    merchants = made.source("S", fn.rate(None)).map("FM", VersionStamp("FM", "old"))
    merchants.map("MC", VersionStamp("MC", "old")).sink("out", fn.memory())
    runs = (interleaved(made, {"FM", "MC"}, "naive", seed) for seed in range(40))
    broken = next(run for run in runs if run.mixed)
    mixed = broken.verdict.mixed[0].transaction
    assert "<svg" in interleavings.check_cycle(broken, {(mixed, "u"), ("u", mixed)}).svg
    with pytest.raises(LabError, match="which transaction is before u in the list of one operator"):
        interleavings.check_cycle(broken, [(str(mixed), "u")])
    with pytest.raises(LabError, match="the arrows form no cycle"):
        interleavings.check_cycle(broken, [(str(mixed), "u")])
    with pytest.raises(LabError, match="nowhere does t1 come before t2"):
        interleavings.check_cycle(broken, [("t1", "t2")])
    right = interleaved(made, {"FM", "MC"}, "fries", 0)
    assert "print the rows of the run" in str(told(lambda: interleavings.check_broken(right)))
    assert "no transaction met both configurations" in str(told(lambda: interleavings.check_broken(right)))
