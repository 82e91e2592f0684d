"""Workers that write a column in two types: their operator is told the first one, or the run fails by its name."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from controller_setting import FRAUD, Desk, only

from fries_nb.controller.events import (
    CheckpointKept,
    ColumnRefused,
    HostLost,
    Instruction,
    KeepCheckpoint,
    Recover,
    RunEnded,
    Tick,
)
from fries_nb.controller.schema_checks import Agreement
from fries_nb.dataflow.columns import fixed
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.protocol.messages import Failed, Report, WorkerId

TEXT, NUMBER = (pa.schema({"x": kind}).serialize().to_pybytes() for kind in (pa.string(), pa.int64()))
CLASH = "column 'x' was int64 and is now string; a column keeps its type, so convert it in the operator"
BY_NAME = "FM[0] writes column 'x' as int64 and FM[1] as string; a column keeps its type, so convert it in FM"


def guarded(*names: str) -> Graph:
    """The fraud flow, where these operators pause on a tuple that they fail on."""
    operators = [replace(one, on_error="pause") if one.name in names else one for one in FRAUD.operators]
    return Graph(FRAUD.name, tuple(operators), FRAUD.edges)


def desk_of(*names: str, checkpoints: bool = True) -> Desk:
    """FM's workers have said that they differ; FC's and MC's have not."""
    desk = Desk(guarded(*names), commit_ms=100, checkpoints=checkpoints, run="r7", chaining=False)
    for name, kinds in {"FC": ("int64", "double"), "FM": ("int64", "string"), "MC": ("string", "string")}.items():
        for index, kind in enumerate(kinds):
            desk.answer(Report(WorkerId(name, index), 1, 0, writes={"x": kind}))
    return desk


def written(desk: Desk, index: int, columns: bytes) -> list[Instruction]:
    """A sink's worker reports what it has written."""
    return desk.answer(Report(WorkerId("scored", index), 1, 0, columns=columns))


@pytest.mark.parametrize("seen", ["by reports", "by a sink", "in front of the record"])
def test_the_operator_is_told_the_type_that_came_first(seen: str) -> None:
    """Wherever the two types meet, the run goes back to its checkpoint; and if that does not mend it, it fails."""
    desk = desk_of("FM")
    assert written(desk, 0, NUMBER) == []
    if seen == "by reports":
        said = written(desk, 1, TEXT)
    elif seen == "by a sink":
        said = desk.answer(Failed(WorkerId("scored", 0), CLASH, column="x", columns=NUMBER))
    else:
        desk.hear(Tick(), after_ms=100)
        desk.done(1, "payments", "FC", "FM", "MC", "scored")
        [keep] = only(desk.saved(1, "payments", "FC", "FM", "MC", "scored"), KeepCheckpoint)
        assert only(desk.hear(ColumnRefused("scored", "x", NUMBER, "refused")), Recover) == [], "it may be on disk"
        said = desk.hear(CheckpointKept(keep.record.epoch, "refused"))
    [recover] = only(said, Recover)
    assert recover.reason == BY_NAME
    assert recover.restoration.columns == {"FM": NUMBER}
    desk.join(4)
    [ended] = only(desk.answer(Failed(WorkerId("scored", 0), CLASH, column="x", columns=NUMBER)), RunEnded)
    assert (ended.state, ended.error) == ("failed", BY_NAME)


@pytest.mark.parametrize("lost", [False, True])
def test_what_the_last_record_would_make_output_may_be_refused(lost: bool) -> None:
    """All had ended, and all run again; so does the last record come again. A host lost meanwhile is lost with all."""
    desk = desk_of("FM")
    everyone = ("payments", "FC", "FM", "MC", "scored")
    desk.ended(*everyone, files=("part",))
    desk.hear(ColumnRefused("scored", "x", NUMBER, "refused"))
    if lost:
        assert desk.hear(HostLost(0, "gone")) == []
    [recover] = only(desk.hear(CheckpointKept(1, "refused")), Recover)
    assert (recover.incarnation, recover.restoration.columns) == (4, {"FM": NUMBER})
    desk.join(4)
    [keep] = only(desk.ended(*everyone, files=("again",)), KeepCheckpoint)
    assert only(desk.hear(CheckpointKept(keep.record.epoch)), RunEnded) == [RunEnded("finished")]


def test_a_record_that_is_refused_when_hosts_are_lost_starts_the_run_again_once() -> None:
    """They are given up already; the operator is told all the same."""
    desk = desk_of("FM")
    desk.hear(Tick(), after_ms=100)
    desk.done(1, "payments", "FC", "FM", "MC", "scored")
    desk.saved(1, "payments", "FC", "FM", "MC", "scored")
    desk.hear(HostLost(0, "gone"))
    assert desk.hear(ColumnRefused("scored", "x", NUMBER, "refused")) == []
    [recover] = only(desk.hear(CheckpointKept(1, "refused")), Recover)
    assert (recover.incarnation, recover.restoration.columns) == (4, {"FM": NUMBER})


def test_what_the_target_has_counts_more_than_what_came_first() -> None:
    """A table's column keeps its type."""
    desk = desk_of("FM")
    written(desk, 0, NUMBER)
    [recover] = only(desk.hear(ColumnRefused("scored", "x", TEXT, "refused")), Recover)
    assert recover.restoration.columns == {"FM": TEXT}


@pytest.mark.parametrize("heard", ["by a sink", "in front of the record"])
@pytest.mark.parametrize("column", ["x", "X"])
def test_the_operator_is_told_what_is_fixed_by_a_table(column: str, heard: str) -> None:
    """Whatever came first, and what it was told before; by the table's name, though the one refused differs in case."""
    table = fixed(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    serialized, words = table.serialize().to_pybytes(), f"column {column!r} is wrong; mend it in the operator"
    refused = {
        "by a sink": Failed(WorkerId("scored", 0), words, column=column, columns=serialized),
        "in front of the record": ColumnRefused("scored", column, serialized, words),
    }[heard]
    desk = Desk(guarded("MC"), commit_ms=100, checkpoints=True, run="r7", chaining=False)
    written(desk, 0, pa.schema({"x": pa.float64()}).serialize().to_pybytes())
    desk.controller._life.recovery.columns["MC"] = TEXT
    tell = desk.answer if heard == "by a sink" else desk.hear
    [recover] = only(tell(refused), Recover)
    assert recover.reason == "column 'x' is wrong; mend it in MC".replace("'x'", repr(column))
    [told] = pa.ipc.read_schema(pa.py_buffer(recover.restoration.columns["MC"]))
    assert told.equals(table.field("x"), check_metadata=True)
    desk.join(4)
    [ended] = only(tell(refused), RunEnded)
    assert ended.error == recover.reason


@pytest.mark.parametrize(("names", "checkpoints"), [((), True), (("FC", "MC"), True), (("FM",), False)])
def test_else_the_run_fails_by_the_operators_name(names: tuple[str, ...], checkpoints: bool) -> None:
    """By default; where others pause; and where there is no checkpoint to go back to."""
    desk = desk_of(*names, checkpoints=checkpoints)
    written(desk, 0, NUMBER)
    [ended] = only(written(desk, 1, TEXT), RunEnded)
    assert (ended.state, ended.error) == ("failed", BY_NAME)


def test_numbers_widen_and_hidden_columns_do_not_count() -> None:
    """An integer and a float are no clash."""
    desk = desk_of()
    for index, kind in enumerate((pa.int64(), pa.float64())):
        schema = pa.schema({"x": kind, "__due__": kind})
        assert written(desk, index, schema.serialize().to_pybytes()) == []


def test_a_change_of_the_operator_forgets_what_it_was_told() -> None:
    """Its new function may write other types; a run that goes back further is told no more."""
    desk = desk_of("FM")
    written(desk, 0, NUMBER)
    written(desk, 1, TEXT)
    recovery = desk.controller._life.recovery
    assert recovery.columns == {"FM": NUMBER}
    recovery.decide("u1", "fries", (("FM",),), {"FM": b"code"})
    assert recovery.again("again", hosts=2).restoration.columns == {}
    decided = CommittedChange("u1", "fries", (("FM",),), {"FM": b"code"}, recovery.incarnation, number=1)
    assert recovery.decided == [decided]


def test_a_source_cannot_convert_what_it_reads() -> None:
    """Two splits may have learned a column apart; what is behind the source can do something about it."""
    flow = Graph("plain", (Operator("S", kind=Kind.SOURCE, workers=2), Operator("out", kind=Kind.SINK)),
                 (Edge("S", "out"),))  # fmt: skip
    agreement = Agreement(flow, chaining=True, agreed={})
    assert [agreement.written("out", columns) for columns in (NUMBER, TEXT)] == [None, "x"]
    words, _ = agreement.settle("out", "x", CLASH, {}, may_impose=True)
    assert words == CLASH.replace("in the operator", "in an operator behind S")
