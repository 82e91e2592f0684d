"""The check after a rehearsal: what came to the sinks fits what they have taken, and so do types that came nowhere."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from controller_setting import FM_ALONE, FM_AND_MC, FRAUD, MC_ALONE, Desk, flow, plan, told

from fries_nb.controller.schema_checks import readers
from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.endpoints import delta
from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.protocol.messages import Abort, Fcm, Prepared, Rehearsed, Report, WorkerId

BEFORE = {"amount": "double", "p_m5": "double", "flag": "int64"}
TAKEN = {"amount": pa.float64(), "flag": pa.int64(), "at": pa.struct([("x", pa.int64())]), DUE: pa.int64()}


def desk_with_reports(**reads: tuple[str, ...]) -> Desk:
    """FM and MC write BEFORE; other operators have read what is given."""
    desk = Desk()
    for name in ("FM", "MC"):
        desk.answer(Report(WorkerId(name, 0), 1, 0, writes=BEFORE, reads=reads.get(name, ())))
    for name in reads.keys() - {"FM", "MC"}:
        desk.answer(Report(WorkerId(name, 1), 1, 0, reads=reads[name]))
    return desk


def without(column: str) -> dict[str, str]:
    """What a rehearsal that loses a column produces."""
    return {name: kind for name, kind in BEFORE.items() if name != column}


def rehearsed(desk: Desk, change, start: str, **found):
    """The change is prepared and rehearsed, with what is found then; returns what that led to."""
    desk.request(change, rehearse=[start])
    for worker in desk.workers(*sorted(change.targets)):
        desk.answer(Prepared("u1", worker, samples=(b"1",) if worker.operator == start else ()))
    return desk.answer(Rehearsed("u1", WorkerId(start, 0), tuples=1, **found))


@pytest.mark.parametrize("tried", [False, True])
def test_a_column_that_a_neighbour_reads_must_stay_unless_it_was_seen_to_do_without(tried):
    """Where no tuple came to it, the change is aborted with both names; nothing was decided."""
    desk = desk_with_reports(MC=("p_m5",))
    found = {"tried": frozenset({"FM", "MC"})} if tried else {"unreached": frozenset({"MC", "scored"})}
    said = rehearsed(desk, FM_ALONE, "FM", writes={"FM": without("p_m5")}, **found)
    if tried:
        assert told(said, Fcm) == ["FM[0]", "FM[1]"]
        return
    assert told(said, Abort) == ["FM[0]", "FM[1]"]
    assert desk.outcomes["u1"].error == "FM would no longer write 'p_m5', which MC reads"
    assert told(desk.said, Fcm) == []


@pytest.mark.parametrize(
    ("change", "reads", "writes"),
    [
        (FM_ALONE, {"MC": ("amount",)}, without("p_m5")),
        (FM_ALONE, {"MC": ("p_m5",)}, {**BEFORE, "p_m10": "double"}),
        (FM_ALONE, {"MC": ("p_m5",)}, {**BEFORE, "p_m5": "string"}),
        (FM_ALONE, {"MC": ("never_written",)}, without("p_m5")),
        (FM_AND_MC, {"MC": ("p_m5",)}, without("p_m5")),
    ],
    ids=["nobody reads it", "one more", "other type, no sink", "not ours", "reader changes along"],
)
def test_other_changes_of_columns_pass(change, reads, writes):
    """Only a lost column that a lasting neighbour reads is in the way."""
    desk = desk_with_reports(**reads)
    said = rehearsed(desk, change, "FM", writes={"FM": writes}, unreached=frozenset({"MC", "scored"}))
    assert told(said, Fcm) == ["FM[0]", "FM[1]"]


@pytest.mark.parametrize(
    ("column", "kind", "fits"),
    [
        ("flag", pa.float64(), True),
        ("flag", pa.null(), True),
        ("flag", pa.string(), False),
        ("amount", pa.int64(), True),
        ("amount", pa.list_(pa.float64()), False),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.string())]), True),
        ("new", pa.string(), True),
    ],
)
def test_a_sink_takes_what_one_type_can_hold(column, kind, fits):
    """As it unifies types: numbers widen, missing values are of any type, columns come. Each of its workers counts."""
    desk = Desk()
    for index, name in enumerate(("amount", "flag")):
        taken = pa.schema({one: TAKEN[one] for one in (name, "at", DUE)})
        desk.answer(Report(WorkerId("scored", index), 1, 0, columns=taken.serialize().to_pybytes()))
    came = pa.schema({**TAKEN, column: kind}).serialize().to_pybytes()
    said = rehearsed(desk, MC_ALONE, "MC", arriving={"scored": (came,)}, tried=frozenset({"MC"}))
    assert bool(told(said, Fcm)) == fits
    if not fits:
        assert desk.outcomes["u1"].error == (
            f"with the new MC, {column!r} would come to sink scored as {kind}, which has taken it as {TAKEN[column]} "
            f"so far; convert it to {TAKEN[column]} in MC"
        )


def test_a_column_of_a_delta_table_does_not_widen():
    """It takes narrower values, and new columns; a change that would widen one is refused before it is made."""
    table = replace(FRAUD.operator("scored"), function=delta("table"))
    graph = Graph(FRAUD.name, (*FRAUD.operators[:-1], table), FRAUD.edges)
    kinds = {pa.int64(): True, pa.uint32(): True, pa.float64(): False, pa.duration("s"): False}
    for kind, fits in kinds.items():
        desk = Desk(graph)
        taken, came = (pa.schema({"n": one}).serialize().to_pybytes() for one in (pa.int64(), kind))
        desk.answer(Report(WorkerId("scored", 0), 1, 0, columns=taken))
        said = rehearsed(desk, MC_ALONE, "MC", arriving={"scored": (came,)}, tried=frozenset({"MC"}))
        assert bool(told(said, Fcm)) == fits
    error = (
        "with the new MC, sink scored would get 'n' as duration[s], a type that no Delta table has; convert it to a "
        "number of seconds there"
    )
    assert desk.outcomes["u1"].error == error


def test_rows_of_one_rehearsal_must_agree():
    """The first tuple makes it a number, the second one text: no sink takes both."""
    came = tuple(pa.schema({"x": kind}).serialize().to_pybytes() for kind in (pa.int64(), pa.string()))
    desk = Desk()
    rehearsed(desk, MC_ALONE, "MC", arriving={"scored": came}, tried=frozenset({"MC"}))
    assert "'x' would come to sink scored as string, which has taken it as int64" in desk.outcomes["u1"].error


def test_types_alone_are_compared_behind_what_could_not_be_run():
    """The other side of a self-join does not come; its sink has the column as it was written."""
    desk = Desk(flow("s>FM s>other FM>J other>J J>out", J=Kind.SELF_JOIN), hosts=1)
    taken = pa.schema({"amount": pa.float64()}).serialize().to_pybytes()
    desk.answer(Report(WorkerId("out", 0), 1, 0, columns=taken))
    desk.answer(Report(WorkerId("FM", 0), 1, 0, writes=BEFORE))
    change = plan("FM", ({"FM": "FM"}, "FM"))
    found = {"tried": frozenset({"FM", "J"}), "unreached": frozenset({"out"})}
    rehearsed(desk, change, "FM", writes={"FM": BEFORE | {"amount": "string"}}, **found)
    assert "'amount' would come to sink out as string, which has taken it as double" in desk.outcomes["u1"].error


def test_the_walk_goes_through_operators_that_pass_columns_along():
    """Unions, replicates, filters, splits, joins and dedups are passed, a map is not; each reader comes once."""
    graph = flow(
        "s>FM FM>rep rep>fil rep>spl fil>uni spl>uni spl>x uni>J J>D D>MC MC>out x>end",
        rep=Kind.REPLICATE, fil=Kind.FILTER, spl=Kind.SPLIT, uni=Kind.UNION, J=Kind.JOIN, D=Kind.DEDUP,
    )  # fmt: skip
    assert list(readers(graph, "FM")) == ["rep", "fil", "spl", "uni", "x", "J", "D", "MC"]


def test_the_reader_behind_a_union_is_asked():
    """FM's neighbour reads nothing itself; MC behind it does."""
    desk = Desk(flow("s>FM FM>uni s>uni uni>MC MC>out", uni=Kind.UNION), hosts=1)
    desk.answer(Report(WorkerId("FM", 0), 1, 0, writes=BEFORE))
    desk.answer(Report(WorkerId("MC", 0), 1, 0, reads=("flag",)))
    change = plan("FM", ({"FM": "FM"}, "FM"))
    rehearsed(desk, change, "FM", writes={"FM": without("flag")}, unreached=frozenset({"MC", "out"}))
    assert desk.outcomes["u1"].error == "FM would no longer write 'flag', which MC reads"


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ({"at": pa.time64("us")}, "'at' as time64[us], a type that Spark does not read; convert it to text there"),
        ({"u": pa.uuid()}, "'u' as extension<arrow.uuid>, a type that Spark does not read; convert it to text there"),
        ({"FLAG": pa.int64()}, "'flag' beside 'FLAG', which Spark does not tell apart; rename one there"),
        ({}, "rows without a column; return None, not {}, to drop a tuple there"),
    ],
)
def test_a_change_whose_rows_nobody_could_read_is_refused(came, said):
    """The run would finish; its output, also that of before, could not be read."""
    desk = Desk()
    taken = pa.schema({"flag": pa.int64(), DUE: pa.int64()}).serialize().to_pybytes()
    desk.answer(Report(WorkerId("scored", 0), 1, 0, columns=taken))
    arriving = pa.schema({**came, DUE: pa.int64()}).serialize().to_pybytes()
    assert not told(rehearsed(desk, MC_ALONE, "MC", arriving={"scored": (arriving,)}, tried=frozenset({"MC"})), Fcm)
    assert desk.outcomes["u1"].error == f"with the new MC, sink scored would get {said}"
