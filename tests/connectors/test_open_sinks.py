"""What a worker says of its sink is done in order; a sink that fails hands in nothing more, and its worker fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from worker_bench import Bench, Port, data, version

from fries_nb.connectors.sink import OpenSinks
from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.errors import ColumnError, SinkError
from fries_nb.protocol.messages import Commit, Done, Ended, Failed, Fcm, Marker, Report, WorkerId
from fries_nb.simulation.store import ListSink
from fries_nb.worker.events import ClosePart, SinkFailed, SinkWidened, TellController, WorkerTick, Write

OUT = WorkerId("out", 0)
ROW = pa.RecordBatch.from_pylist([{"n": 1}])


class Failing(Port):
    """Takes nothing, or closes nothing."""

    def __init__(self, at: str, error: SinkError) -> None:
        super().__init__()
        self._at, self._error = at, error

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        if self._at == "write":
            raise self._error
        super().write(batch)

    def close_part(self) -> tuple[str, ...]:
        """Close them."""
        if self._at == "close":
            raise self._error
        return super().close_part()


def test_rows_are_in_the_part_that_is_closed_behind_them() -> None:
    """An operator that writes nothing has no parts; new columns are told once."""
    sink = ListSink()
    sinks = OpenSinks({OUT: sink.open(OUT, 1)})
    said: list[Any] = []
    for instruction in (Write(OUT, ROW), Write(OUT, ROW), ClosePart(Done(1, OUT)), ClosePart(Ended(WorkerId("M", 0)))):
        said += sinks.carry_out(instruction)
    assert [type(one) for one in said] == [SinkWidened, TellController, TellController]
    assert said[0] == SinkWidened(OUT, ROW.schema)
    assert said[1].answer.files == ("out[0].1-0",)
    assert sink.rows_of(said[1].answer.files) == [{"n": 1}, {"n": 1}]
    assert said[2].answer == Ended(WorkerId("M", 0))


@pytest.mark.parametrize("at", ["write", "close"])
def test_behind_a_failure_nothing_is_handed_in(at: str) -> None:
    """Else a commit could be without the rows that are missing."""
    error = SinkError("the disk is full")
    sinks = OpenSinks({OUT: Failing(at, error)})
    said = [effect for one in (Write(OUT, ROW), ClosePart(Done(1, OUT))) for effect in sinks.carry_out(one)]
    assert said == [SinkFailed(error)]
    assert list(sinks.carry_out(ClosePart(Ended(OUT)))) == []


@pytest.mark.parametrize("at", ["write", "close"])
@pytest.mark.parametrize("letters", [False, True])
def test_a_worker_whose_sink_fails_fails(at: str, letters: bool) -> None:
    """It says so once, with the column if it was one, and neither acknowledges the commit nor ends."""
    error = ColumnError("column 'n' was int64", "n", b"before")
    if letters:
        bench = Bench(Operator("M", function=lambda row: 1 / 0, on_error=memory()))
        bench.keep_letters(0, Failing(at, error))
    else:
        bench = Bench(Operator("M", kind=Kind.SINK))
        bench.ports[WorkerId("M", 0)] = Failing(at, error)
        bench.sinks = OpenSinks(bench.ports)
    bench.arrive(0, data(1, 2))
    bench.run()
    bench.direct("M", Fcm(Marker(1, frozenset("M"), Commit(1))))
    bench.run()
    assert bench.answers(Failed) == [Failed(WorkerId("M", 0), str(error), "", "n", b"before")]
    assert bench.answers(Done) == bench.answers(Ended) == []


def test_a_worker_reports_the_columns_of_its_sink_and_not_those_of_dead_letters() -> None:
    """The controller compares what sinks have."""
    bench = Bench(Operator("M", function=version(1), on_error=memory()))
    bench.worker.handle(SinkWidened(WorkerId("M", 0), ROW.schema))
    bench.worker.handle(WorkerTick())
    assert [report.columns for report in bench.answers(Report)] == [b""]
    sink = Bench(Operator("M", kind=Kind.SINK))
    sink.worker.handle(SinkWidened(WorkerId("M", 0), ROW.schema))
    sink.worker.handle(WorkerTick())
    assert [pa.ipc.read_schema(pa.py_buffer(report.columns)) for report in sink.answers(Report)] == [ROW.schema]
    assert sink.worker.reports.columns == ROW.schema
