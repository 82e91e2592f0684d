"""What functions print on a host: whole lines, from any thread, not too many, and through loggers of earlier runs."""

from __future__ import annotations

import io
import logging
import sys
import threading

from fries_nb.spark.envelopes import Line
from fries_nb.spark.printing import LONGEST, Printer, printing


def test_lines_of_threads_do_not_mix() -> None:
    """A line that is begun in one thread is ended there, and bears the name of its worker."""
    printer = Printer()
    begun, ended = threading.Event(), threading.Event()

    def slow() -> None:
        printer.write("a")
        begun.set()
        ended.wait(60)
        printer.write("b\n")

    thread = threading.Thread(target=slow, name="fries-FM[1]")
    thread.start()
    begun.wait(60)
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
