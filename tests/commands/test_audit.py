"""Traces as files, and the audit command: what it prints, how it exits, how it refuses."""

from __future__ import annotations

import json

import pytest

from fries_nb.__main__ import main
from fries_nb.audit import read_trace
from fries_nb.errors import TraceError
from fries_nb.protocol.trace import Ran, RanMany, Updated, to_line

GOOD = [Ran("t", "FC"), Updated("u", "FM"), Ran("t", "FM"), Updated("u", "MC"), Ran("t", "MC")]
BAD = [Ran("t", "FC"), Ran("t", "FM"), Updated("u", "FM"), Updated("u", "MC"), Ran("t", "MC")]
UNCLAIMED = "completeness is not claimed: the trace does not say how many records there were"
LINE = b'{"kind":"data","transaction":"t","operator":"FM"}'


@pytest.fixture
def command(tmp_path):
    """Runs the command on a file of these bytes; answers with the exit code."""

    def start(content: bytes | None, *options: str) -> int:
        path = tmp_path / "trace.jsonl"
        if content is not None:
            path.write_bytes(content)
        return main(["audit", str(path), *options])

    return start


def lines(records) -> bytes:
    """The records as a trace file."""
    return "".join(to_line(record) + "\n" for record in records).encode()


def test_a_trace_is_read_back_as_written(tmp_path):
    """Every kind of record, blank lines and a missing last newline included."""
    records = [Ran("t1", "FM"), RanMany((1, 2), "FM", 3), Updated(7, "FM", 1)]
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n" + b"\n  \n".join(to_line(record).encode() for record in records))
    assert list(read_trace(path)) == records


def test_a_serializable_trace_exits_with_0(command, capsys):
    """One line says so, with the numbers, and one that a schedule by hand claims nothing more."""
    assert command(lines(GOOD)) == 0
    assert capsys.readouterr().out == f"serializable (1 transaction, 1 update)\n{UNCLAIMED}\n"


def test_an_empty_trace_is_no_proof(command, capsys):
    """One sentence, and the exit code of what is no trace."""
    assert command(b"") == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.endswith("the trace is empty: it holds no operation, so it proves nothing\n")


def test_a_mixed_trace_exits_with_1_and_names_the_offenders(command, capsys):
    """The transaction, what it met where, and the cycle with the operator of each step."""
    assert command(lines(BAD)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "not serializable (1 transaction, 1 update)",
        "t mixed update u: old at FM, new at MC",
        "cycle: t -[FM]-> u -[MC]-> t",
        UNCLAIMED,
    ]


def test_many_offenders_are_cut_short_in_words_only(command, capsys):
    """Ten are shown and the rest counted; --json has all of them."""
    many = lines(
        [RanMany(tuple(range(25)), "FM"), Updated("u", "FM"), Updated("u", "MC"), RanMany(tuple(range(25)), "MC")]
    )
    assert command(many) == 1
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 14
    assert shown[11] == "... and 15 more (all of them: --json)"
    assert command(many, "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["mixed"]) == 25


@pytest.mark.parametrize(("records", "code"), [(GOOD, 0), (BAD, 1)])
def test_json(command, capsys, records, code):
    """With --json the verdict is one object on one line, and the exit code is the same."""
    assert command(lines(records), "--json") == code
    verdict = json.loads(capsys.readouterr().out)
    assert set(verdict) == {
        "serializable", "mixed", "cycle", "cycle_at", "transactions", "updates", "stale", "lost", "doubled", "claim",
        "cycle_met",
    }  # fmt: skip
    assert (verdict["claim"], verdict["lost"], verdict["doubled"], verdict["stale"]) == ("not claimed", [], [], [])
    assert verdict["serializable"] == (code == 0)
    if code:
        assert verdict["mixed"] == [{"transaction": "t", "update": "u", "old": ["FM"], "new": ["MC"]}]
        assert verdict["cycle"] == ["t", "u"]


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"[]",
        b"null",
        b'{"kind":"date","transaction":"t","operator":"FM"}',
        b'{"kind":"data","operator":"FM"}',
        b'{"kind":"update","operator":"FM"}',
        b'{"kind":"data","transaction":1.5,"operator":"FM"}',
        b'{"kind":"data","transaction":"t","operator":3}',
        b'{"kind":"data","transaction":"t","operator":"FM","worker":"0"}',
        LINE + b" " + LINE,
        LINE[:-1],
        b"\xff\xfe\x00",
        b'{"kind":"data","transaction":"\xff","operator":"FM"}',
        b'{"kind":"data","x":' + b"[" * 100_000,
    ],
)
def test_a_malformed_line_is_refused_with_its_number(command, capsys, bad):
    """Exit code 2 and one line that names the file and the line; no stack of frames."""
    assert command(LINE + b"\n\n" + bad + b"\n" + LINE) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert "trace.jsonl, line 3: not a trace record" in refused.err
    assert refused.err.count("\n") == 1
    assert len(refused.err) < 600


def test_a_file_that_cannot_be_read_is_refused(command, capsys, tmp_path):
    """No such file, a directory: one line each."""
    assert command(None) == 2
    assert "cannot read trace" in capsys.readouterr().err
    with pytest.raises(TraceError, match="directory"):
        list(read_trace(tmp_path))


def test_an_impossible_trace_is_refused(command, capsys):
    """One worker cannot apply one update twice."""
    assert command(lines([Updated("u", "FM"), Updated("u", "FM")])) == 2
    assert "applied twice at FM[0]" in capsys.readouterr().err
