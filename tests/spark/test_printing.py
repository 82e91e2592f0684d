"""What functions print on a host: whole lines, from any thread, not too many, and through loggers of earlier runs."""

from __future__ import annotations

import io
import logging
import pickle
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S

from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.host.host_telemetry import LONGEST, Printer, printing
from fries_nb.operators.dry_run import DryRun, prepare
from fries_nb.operators.instance import Instance
from fries_nb.operators.kinds import compile_chain
from fries_nb.operators.rows import Columns, Reads
from fries_nb.protocol.messages import WorkerId
from fries_nb.transport.envelopes import Line


def test_lines_of_threads_do_not_mix() -> None:
    """A line that is begun in one thread is ended there, and bears the name of its worker."""
    printer = Printer()
    begun, ended = threading.Event(), threading.Event()

    def slow() -> None:
        printer.write("a")
        begun.set()
        ended.wait(PATIENCE_S)
        printer.write("b\n")

    thread = threading.Thread(target=slow, name="fries-FM[1]")
    thread.start()
    begun.wait(PATIENCE_S)
    printer.write("c\n")
    ended.set()
    thread.join()
    assert [line.text for line in printer.take(1.0)] == ["c", "ab"]
    printer.write("d\n")
    assert printer.take(1.0) == (Line("MainThread", "d"),)


def test_a_flood_is_counted_and_not_kept() -> None:
    """No more than a second's lines are kept at once; the notice comes in its place; later lines come again."""
    printer = Printer(allowed=10)
    for number in range(1_000):
        printer.write(f"{number}\n")
    *kept, notice = printer.take(0.5)
    assert [line.text for line in kept] == [str(number) for number in range(10)]
    assert notice.text == "... and 990 lines more: above 10 a second they are not kept"
    for number in range(6):
        printer.write(f"{number}\n")
    assert len(printer.take(0.5)) == 6  # five that half a second allows, and the notice


def test_a_line_without_end_is_cut() -> None:
    """A progress bar or a dump holds no more than one line of memory."""
    printer = Printer()
    printer.write("x" * (2 * LONGEST + 1))
    assert [len(line.text) for line in printer.take(1.0)] == [LONGEST, LONGEST]


def test_a_last_line_without_end_is_told() -> None:
    """When nobody prints any more; once, with the thread that began it, even if that has ended."""
    printer = Printer()
    thread = threading.Thread(target=printer.write, args=["x = 1\ny ="], name="fries-FM[1]")
    thread.start()
    thread.join()
    assert printer.take(1.0) == (Line("FM[1]", "x = 1"),)
    printer.end_lines()
    assert printer.take(1.0) == (Line("FM[1]", "y ="),)
    printer.end_lines()
    assert printer.take(1.0) == ()


@pytest.mark.parametrize("texts", [("\r10%", "\r20%", "\r30%\n"), ("10%\r", "20%\r", "30%\r\n")])
def test_a_progress_bar_is_its_last_state(texts: tuple[str, ...]) -> None:
    """What is written over is not kept, however often that happens."""
    printer = Printer()
    for text in texts:
        printer.write(text)
    assert printer.take(1.0) == (Line("MainThread", "30%"),)
    for _ in range(LONGEST):
        printer.write(texts[0])
    printer.end_lines()
    assert len(printer.take(1.0)) <= 2


class Talking:
    """Says its name when opened and called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self) -> None:
        sys.stdout.write(f"{self.name} opens\n")

    def process(self, row: Any) -> Any:
        sys.stdout.write(f"{self.name} runs\n")
        return row


def test_each_operator_of_a_chain_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they share a thread; a new function that is prepared speaks for the worker that will run it."""
    printer = Printer()
    monkeypatch.setattr(sys, "stdout", printer)
    operators = [Operator("FM", Kind.MAP), Operator("MC", Kind.FILTER)]
    instances = [Instance(WorkerId(one.name, 1), one, Talking(one.name), audit=False) for one in operators]
    columns = Columns(pa.RecordBatch.from_pydict({"value": [1]}), Reads())
    compile_chain(instances, [[]], lambda: "left")(next(columns.rows()))
    assert printer.take(1.0) == (Line("FM[1]", "FM runs"), Line("MC[1]", "MC runs"))
    payload = pickle.dumps(Update(Talking("new")))
    prepare(DryRun("u1", WorkerId("MC", 0), payload, operators[1], instances[1].function, (), ()))
    assert printer.take(1.0) == (Line("MC[0]", "new opens"),)


def test_it_stands_in_for_both_streams_and_leaves() -> None:
    """Afterwards the streams are what they were; a logger made in one run is heard in the next."""
    streams = sys.stdout, sys.stderr
    with printing() as first:
        handler = logging.StreamHandler()
        sys.stdout.write("out\n")
        sys.stderr.write("err\n")
        assert [line.text for line in first.take(1.0)] == ["out", "err"]
    assert (sys.stdout, sys.stderr) == streams
    handler.emit(logging.makeLogRecord({"msg": "between runs"}))
    with printing() as second:
        handler.emit(logging.makeLogRecord({"msg": "logged"}))
        assert [line.text for line in second.take(1.0)] == ["logged"]
    assert isinstance(second, io.TextIOBase)
