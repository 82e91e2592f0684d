"""The check at prepare: what the new functions write still fits those who read it."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FM_AND_MC, MC_ALONE, Desk, flow, plan, told

from fries_nb.controller.schemas import readers
from fries_nb.dataflow.graph import Kind
from fries_nb.messages import Abort, Fcm, Prepared, Report, WorkerId

BEFORE = {"amount": "double", "p_m5": "double", "flag": "int64"}


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


def test_a_column_that_a_neighbour_reads_must_stay():
    """The change is aborted with both names; nothing was decided."""
    desk = desk_with_reports(MC=("p_m5",))
    desk.request(FM_ALONE, rehearse=["FM"])
    desk.answer(Prepared("u1", WorkerId("FM", 0), writes=without("p_m5")))
    said = desk.answer(Prepared("u1", WorkerId("FM", 1)))
    assert told(said, Abort) == ["FM[0]", "FM[1]"]
    assert desk.outcomes["u1"].error == "FM would no longer write 'p_m5', which MC reads"
    assert told(desk.said, Fcm) == []


@pytest.mark.parametrize(
    ("change", "reads", "writes"),
    [
        (FM_ALONE, {"MC": ("amount",)}, without("p_m5")),
        (FM_ALONE, {"MC": ("p_m5",)}, {**BEFORE, "p_m10": "double"}),
        (FM_ALONE, {"MC": ("p_m5",)}, {**BEFORE, "p_m5": "string"}),
        (FM_ALONE, {"MC": ("p_m5",)}, {}),
        (FM_ALONE, {"MC": ("never_written",)}, without("p_m5")),
        (FM_AND_MC, {"MC": ("p_m5",)}, without("p_m5")),
    ],
    ids=["nobody reads it", "one more", "other type, no sink", "no rehearsal", "not ours", "reader changes along"],
)
def test_other_changes_of_columns_pass(change, reads, writes):
    """Only a lost column that a lasting neighbour reads is in the way."""
    desk = desk_with_reports(**reads)
    desk.request(change, rehearse=["FM"])
    for worker in desk.workers(*sorted(change.targets)):
        said = desk.answer(Prepared("u1", worker, writes=writes if worker == WorkerId("FM", 0) else {}))
    assert told(said, Fcm) == ["FM[0]", "FM[1]"]


@pytest.mark.parametrize(
    ("column", "kind", "fits"),
    [
        ("flag", "double", True),
        ("flag", "null", True),
        ("flag", "string", False),
        ("amount", "int64", False),
        ("amount", "list<item: double>", False),
    ],
)
def test_a_sink_takes_a_wider_type_and_no_other(column, kind, fits):
    """Files of one output have one schema; integers may become doubles, and missing values are of any type."""
    desk = desk_with_reports(scored=tuple(BEFORE))
    desk.request(MC_ALONE, rehearse=["MC"])
    said = desk.prepared("MC", writes={**BEFORE, column: kind})
    assert bool(told(said, Fcm)) == fits
    if not fits:
        error = desk.outcomes["u1"].error
        assert error.startswith(f"MC would write {column!r} as {kind}, which sink scored has taken as {BEFORE[column]}")


def test_a_column_first_seen_empty_has_the_type_it_got_later():
    """Of two workers one has seen only missing values so far."""
    desk = Desk()
    desk.answer(Report(WorkerId("MC", 0), 1, 0, writes={"amount": "null"}))
    desk.answer(Report(WorkerId("MC", 1), 1, 0, writes={"amount": "double"}))
    desk.request(MC_ALONE)
    desk.prepared("MC", writes={"amount": "string"})
    assert "has taken as double" in desk.outcomes["u1"].error


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
    desk.request(plan("FM", ({"FM": "FM"}, "FM")))
    desk.prepared("FM", writes=without("flag"))
    assert desk.outcomes["u1"].error == "FM would no longer write 'flag', which MC reads"
