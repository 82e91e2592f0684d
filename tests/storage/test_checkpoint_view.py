"""A look into a checkpoint: what it holds is shown as it is, by reading what is asked for, and writing nothing."""

from __future__ import annotations

import datetime
import itertools
import math
import random
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from counted_reads import count_reads
from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import NAMES, OPERATORS, Counting, declared, held
from place_setting import silence
from stopping_files import watch

import fries_nb as fn
from fries_nb.connectors.source import Split
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.windowing import WindowFunction, tumbling
from fries_nb.errors import CheckpointError
from fries_nb.operators.window_steps import OpenWindow
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Position
from fries_nb.protocol.partitioning import bins_of_keys, routing_table
from fries_nb.running import checkpoint_view
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.flow_shape import flow_of
from fries_nb.storage.snapshot_files import SnapshotStore, read_file_of_snapshots, write_snapshots

FM = {f"c{number}": {"count": number, "last": number / 2} for number in range(40)}
PAIRS = {(number, f"d{number % 3}"): [number, "x"] for number in range(7)}
STATES = {"FM": FM, "Pairs": PAIRS, "All": {0: {"seen": 3}, 1: {"seen": 4}}}
KEYS = st.one_of(
    st.integers(), st.text(max_size=4), st.none(), st.booleans(), st.floats(), st.decimals(), st.binary(max_size=3),
    st.datetimes(), st.datetimes(timezones=st.timezones()), st.dates(), st.timedeltas(), st.uuids(),
    st.integers(0, 5),
)  # fmt: skip


def files(path: Path) -> dict[str, bytes]:
    """All files of a directory."""
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_checkpoint_of_a_run_that_goes_on_is_looked_into_without_a_trace(tmp_path: Path) -> None:
    """No file is written, and the run still holds the place."""
    place = held(str(tmp_path / "c"), STATES)
    before = files(tmp_path)
    view = fn.checkpoint(tmp_path / "c")
    assert repr(view) == f"<checkpoint 1 of flow 'w1' at {tmp_path / 'c'}>"
    for name in ("FM", "Pairs", "All"):
        assert len(view.state(name)) == len(STATES[name])
    assert all(len(frame) for frame in (view.operators(), view.positions(), view.schema("FM"), view.compare(view)))
    assert files(tmp_path) == before
    assert place.is_own
    held(place.path, STATES, epoch=2, place=place)


def test_operators_have_their_kinds_counts_and_sizes(tmp_path: Path) -> None:
    """Of those that had ended, only what the record says."""
    held(str(tmp_path), STATES, ended=("S[1]", "Plain[0]"))
    frame = fn.checkpoint(tmp_path).operators().set_index("name")
    assert tuple(frame.index) == NAMES
    assert frame["kind"].tolist() == ["source", "map by customer", "map by terminal, day", "map", "map", "sink"]
    assert frame["workers"].tolist() == [2, 3, 2, 2, 1, 1]
    assert frame["ended"].tolist() == [1, 0, 0, 0, 1, 0]
    assert frame["processed"].drop("Plain").tolist() == [10, 60, 30, 30, 10]
    assert frame["processed"].isna().tolist() == [name == "Plain" for name in NAMES]
    assert frame["keys"].tolist() == [0, 40, 7, 2, 0, 0]
    assert (frame["bytes"] > 0).tolist() == [name in STATES for name in NAMES]
    assert not frame["removed"].any()


def test_positions_are_those_of_the_splits(tmp_path: Path) -> None:
    """With what a source needs besides; a worker that had ended has read everything."""
    held(str(tmp_path), {}, ended=("S[1]",))
    frame = fn.checkpoint(tmp_path).positions()
    shown = frame.astype(object).where(frame.notna(), None).to_dict("split")["data"]
    assert list(frame) == ["source", "split", "row", "at", "ended", "worker", "next"]
    assert shown == [
        ["S", 0, 5, "a.csv", False, 0, None],
        ["S", 1, None, None, True, 0, None],
        ["S", None, None, None, True, 1, None],
    ]


def test_all_splits_have_positions_if_they_are_known(tmp_path: Path) -> None:
    """Those that were not begun, and those of a worker that had ended."""
    place = held(str(tmp_path), {}, ended=("S[1]",))
    place.keep_source("S", [Split(0), Split(1), Split(2, first=20, step=30, start=Position(3)), Split(3), Split(4)])
    frame = fn.checkpoint(tmp_path).positions()
    shown = frame.astype(object).where(frame.notna(), None).to_dict("split")["data"]
    assert shown == [
        ["S", 0, 5, "a.csv", False, 0, None],
        ["S", 1, None, None, True, 0, None],
        ["S", 2, 3, None, False, None, 110],
        ["S", 3, None, None, True, 1, None],
        ["S", 4, 0, None, False, None, None],
    ]


def test_states_have_columns_of_key_and_value(tmp_path: Path) -> None:
    """One row for each key, with its bin, its worker and its size."""
    held(str(tmp_path), STATES)
    view = fn.checkpoint(str(tmp_path))
    frame = view.state("FM")
    assert list(frame) == ["customer", "count", "last", "_bytes", "_bin", "_worker"]
    assert {row.customer: {"count": row.count_, "last": row.last} for row in frame.rename(columns={"count": "count_"})
            .itertuples()} == FM  # fmt: skip
    assert frame["_bin"].tolist() == bins_of_keys(frame["customer"].tolist()).tolist()
    assert frame["_worker"].tolist() == routing_table(3)[frame["_bin"]].tolist()
    assert frame["_bytes"].between(20, 60).all()
    pairs = view.state("Pairs")
    assert list(pairs) == ["terminal", "day", "value_0", "value_1", "_bytes", "_bin", "_worker"]
    assert {(row.terminal, row.day): [row.value_0, row.value_1] for row in pairs.itertuples()} == PAIRS
    alone = view.state("All")
    assert alone[["key", "seen", "_worker"]].astype(object).values.tolist() == [[None, 3, 0], [None, 4, 1]]


def test_no_more_keys_than_asked_for(tmp_path: Path) -> None:
    """Without keys; of those that are asked for each is there once, in their order, and the others are absent."""
    held(str(tmp_path), STATES)
    view = fn.checkpoint(tmp_path)
    assert [len(view.state("FM", n=n)) for n in (1, 7, 40, 41)] == [1, 7, 40, 40]
    asked = view.state("FM", keys=["c9", "nobody", "c3", "c9"], n=1)
    assert asked["customer"].tolist() == ["c9", "c3"]
    assert view.state("FM", keys=pd.Series(["c1"]))["count"].tolist() == [1]
    for none in ([], ["nobody"]):
        assert list(view.state("FM", keys=none)) == ["customer", "_bytes", "_bin", "_worker"]
    assert view.state("Pairs", keys=[(3, "d0"), [4, "d1"], (3, "d1")])["terminal"].tolist() == [3, 4]


@given(st.dictionaries(KEYS.map(canonical_key), st.integers(), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_every_key_is_found_in_its_bin_which_alone_is_read(
    tmp_path_factory: pytest.TempPathFactory, states: dict[Any, int]
) -> None:
    """Whatever keys there are: by the key as it is, in any of the forms that are equal."""
    path = tmp_path_factory.mktemp("place")
    held(str(path), {"FM": {key: {"n": value, "pad": "x" * 2_000} for key, value in states.items()}})
    silence()
    with pytest.MonkeyPatch.context() as patch:
        read = count_reads(patch)
        view = fn.checkpoint(path)
        list(view.operators())
        for key, value in states.items():
            before = read.total()
            frame = view.state("FM", keys=[key])
            assert frame["n"].tolist() == [value]
            assert frame["_bin"].tolist() == bins_of_keys([key]).tolist()
            (shown,) = frame["customer"]
            assert shown == key or shown is None or math.isnan(shown) or pd.isna(shown)
            in_bin = sum(bins_of_keys([other])[0] == frame["_bin"][0] for other in states)
            snapshots = 3 * 2_000  # the rest of a snapshot is small, and read once for each view
            assert read.total() - before < 2_300 * in_bin + snapshots
    assert len(fn.checkpoint(path).state("FM")) == len(states)


def test_one_key_of_a_large_checkpoint_costs_one_bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 MB of states in 1,000 bins a few kilobytes."""
    chance = random.Random(2)
    held(str(tmp_path), {"FM": {f"c{number}": {"blob": chance.randbytes(16 << 10)} for number in range(2_000)}})
    read = count_reads(monkeypatch)
    frame = fn.checkpoint(tmp_path).state("FM", keys=["c777"])
    assert len(frame) == 1
    assert sum(count for path, count in read.items() if "/states/" in path) < 400 << 10
    assert frame["_bytes"].tolist()[0] >= 16 << 10


def test_open_windows_are_shown(tmp_path: Path) -> None:
    """One row for each window of a key, with its bounds as users see times."""
    minute = 60_000_000_000
    windows = {(minute, minute, minute): OpenWindow({"sum": 1}), (3 * minute, minute, minute): OpenWindow({"sum": 2})}
    function = WindowFunction(Counting(), tumbling(60))
    graph = declared(
        "w1", OPERATORS[0], Operator("W", function=function, kind=Kind.WINDOW, key=("customer",)), OPERATORS[-1]
    )
    held(str(tmp_path), {"W": {"c1": windows}}, graph=graph)
    view = fn.checkpoint(tmp_path)
    frame = view.state("W", keys=["c1"])
    assert list(frame) == ["customer", "sum", "_start", "_end", "_bytes", "_bin", "_worker"]
    assert frame["sum"].tolist() == [1, 2]
    epoch = datetime.datetime(1970, 1, 1)
    assert [(start - epoch).seconds for start in frame["_start"]] == [0, 120]
    assert [(end - epoch).seconds for end in frame["_end"]] == [60, 180]
    assert view.schema("W").to_dict("list") == {"column": ["sum"], "type": ["int"]}


class Timed:
    """A function by the time of rows, which holds tokens in its state."""

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> dict[str, Any]:
        return row


def test_states_that_hold_tokens_are_shown(tmp_path: Path) -> None:
    """A token is its handle, which has a time but no use."""
    graph = declared("w1", OPERATORS[0], Operator("T", function=Timed(), key=("customer",)), OPERATORS[-1])
    bin = int(bins_of_keys(["c1"])[0])
    held(str(tmp_path), {"T": {"c1": lambda made: {"n": 1, "token": made.tokens.keep(bin, (0, 41))}}}, graph=graph)
    frame = fn.checkpoint(tmp_path).state("T")
    assert frame["n"].tolist() == [1]
    assert repr(frame["token"][0]) == "<token of T, time 41>"


def test_a_schema_names_the_types_of_values(tmp_path: Path) -> None:
    """Of dicts by column."""
    held(str(tmp_path), STATES | {"FM": {**FM, "c99": {"count": None}}})
    view = fn.checkpoint(tmp_path)
    assert view.schema("FM").to_dict("list") == {
        "column": ["count", "last"], "type": ["int | NoneType", "float | missing"]
    }  # fmt: skip
    assert view.schema("Pairs")["column"].tolist() == ["value_0", "value_1"]


# ---- comparing


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 2)), st.dictionaries(st.integers(0, 30), st.integers(0, 2)))
@settings(max_examples=30, deadline=None)
def test_a_comparison_counts_what_a_reference_counts(
    tmp_path_factory: pytest.TempPathFactory, before: dict[int, int], after: dict[int, int]
) -> None:
    """Keys that came, that went, and whose state is another one."""
    paths = [tmp_path_factory.mktemp("place") for _ in range(2)]
    for path, states in zip(paths, (before, after), strict=True):
        held(str(path), {"FM": {key: {"n": value} for key, value in states.items()}})
        silence()
    frame = fn.checkpoint(paths[0]).compare(paths[1])
    if not before and not after:
        assert len(frame) == 0
        return
    (row,) = frame.to_dict("records")
    sizes = [int(fn.checkpoint(path).operators().set_index("name")["bytes"]["FM"]) for path in paths]
    assert row == {
        "name": "FM", "keys_before": len(before), "keys_after": len(after),
        "added": len(after.keys() - before.keys()), "removed": len(before.keys() - after.keys()),
        "changed": sum(before[key] != after[key] for key in before.keys() & after.keys()),
        "bytes_before": sizes[0], "bytes_after": sizes[1],
    }  # fmt: skip


class Opaque:
    """A state that is never equal to another one."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


def test_states_are_compared_by_value(tmp_path: Path) -> None:
    """Sets in another order, objects that cannot be compared, states without a key, other numbers of workers."""
    many = [f"n{number}" for number in range(50)]
    same = many[::-1]
    before = {"FM": {"a": {"set": set(many)}, "b": Opaque(1), "c": Opaque(1)}, "All": {0: {"seen": 1}, 1: {"seen": 2}}}
    after = {"FM": {"a": {"set": set(same)}, "b": Opaque(1), "c": Opaque(2)}, "All": {0: {"seen": 1}}}
    held(str(tmp_path / "a"), before)
    fewer = declared("w1", *(replace(one, workers=1) if one.key else one for one in OPERATORS))
    held(str(tmp_path / "b"), after, graph=fewer)
    frame = fn.checkpoint(tmp_path / "a").compare(fn.checkpoint(tmp_path / "b")).set_index("name")
    assert frame[["added", "removed", "changed"]].T.to_dict("list") == {"FM": [0, 0, 1], "All": [0, 1, 0]}


# ---- what cannot be shown


def damaged(path: Path, at: int = -3) -> None:
    """Change a byte of the file of FM's first worker."""
    file = path / "states" / "1-1" / "FM-0.msgpack"
    content = bytearray(file.read_bytes())
    content[at] ^= 0x41
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda view: view.state("FN"), "has no operator 'FN'; expected one of S, FM, Pairs, All, Plain, out; did "),
        (lambda view: view.state(["FM"]), r"has no operator \"\['FM'\]\"; expected one of S, FM"),
        (lambda view: view.state("Plain"), r"Plain \(map\) has no state in checkpoint 1 at .*; expected one of FM"),
        (lambda view: view.schema("out"), r"out \(sink\) has no state in checkpoint 1"),
        (lambda view: view.state("FM", n=0), r"n=0; expected the largest number of keys, 1 or more, as in n=1000"),
        (lambda view: view.state("FM", n=True), "n=True; expected"),
        (lambda view: view.state("FM", n=1.0), "n=1.0; expected"),
        (lambda view: view.state("FM", keys="c1"), r"keys='c1'; expected a list of keys, as in keys=\['c1'\]"),
        (lambda view: view.state("FM", keys=7), r"keys=7; expected a list of keys, as in keys=\[7\]"),
        (lambda view: view.state("FM", keys=[("c1", 2)]), r"keys= has \('c1', 2\), and the key of FM is the column c"),
        (lambda view: view.state("FM", keys=[{"a": 1}]), r"\{'a': 1\} \(dict\) cannot be a key; expected numbers"),
        (lambda view: view.state("Pairs", keys=[3]), "the columns terminal, day; expected tuples of 2 values"),
        (lambda view: view.state("Pairs", keys=[(3, "d0", 1)]), "the columns terminal, day; expected tuples of 2"),
        (lambda view: view.state("All", keys=[None]), "All has no key: each of its workers has one state; expected "),
        (lambda view: view.compare(7), "a checkpoint is kept in a directory; expected its path or URI, got 7"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(tmp_path: Path, ask: Any, said: str) -> None:
    """It says what was given and what was expected."""
    held(str(tmp_path), STATES)
    with pytest.raises(fn.FriesError, match=said) as raised:
        ask(fn.checkpoint(tmp_path))
    assert "\n" not in str(raised.value)


def test_a_place_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """No directory, an empty one, one whose run has not completed a checkpoint, one of another version."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(fn.FriesError, match=r"holds no checkpoint; expected what flow.run\(checkpoint=...\) wrote"):
            fn.checkpoint(path)
    CheckpointStore.claim(str(tmp_path / "c"), declared(), "r1")
    with pytest.raises(
        fn.FriesError, match="holds a run of flow 'w1' that has not completed a checkpoint yet; expected"
    ):
        fn.checkpoint(tmp_path / "c")
    for path in ("", None, 7):
        with pytest.raises(fn.FriesError, match="a checkpoint is kept in a directory; expected its path or URI"):
            fn.checkpoint(path)  # type: ignore[arg-type]
    with pytest.raises(fn.FriesError, match="cannot hold checkpoints"):
        fn.checkpoint("nosuch://place")


def test_a_wrong_key_is_told(tmp_path: Path) -> None:
    """None, another one, one where there is none; the right one opens it."""
    held(str(tmp_path / "signed"), STATES, key=b"a phrase")
    held(str(tmp_path / "plain"), STATES)
    assert len(fn.checkpoint(tmp_path / "signed", signing_key="a phrase").state("FM")) == len(FM)
    for name, key, said in (
        ("signed", None, "it is signed; give the signing_key="),
        ("signed", b"another", "it is not signed with the given key"),
        ("signed", "", "signing_key= is empty"),
        ("plain", "a phrase", "it is not signed, and signing_key= was given"),
    ):
        with pytest.raises(fn.FriesError, match=said):
            fn.checkpoint(tmp_path / name, signing_key=key)
    with pytest.raises(fn.FriesError, match="it is signed; give the signing_key="):
        fn.checkpoint(tmp_path / "plain").compare(tmp_path / "signed")


def test_damage_is_told_by_what_reads_it(tmp_path: Path) -> None:
    """A bin when it is read, an index at once; a damaged record with a warning, since there is one before it."""
    held(str(tmp_path), STATES)
    damaged(tmp_path)
    view = fn.checkpoint(tmp_path)
    assert view.operators()["keys"].tolist()[1] == len(FM)
    with pytest.raises(
        fn.FriesError, match=r"is damaged: states/1-1/FM-0.msgpack: it is cut off or has been overwritten"
    ):
        view.state("FM")
    damaged(tmp_path, 75)
    with pytest.raises(fn.FriesError, match=r"is damaged: states/1-1/FM-0.msgpack"):
        fn.checkpoint(tmp_path).operators()
    place = held(str(tmp_path / "two"), {"FM": {"c1": {"n": 1}}})
    held(place.path, {"FM": {"c1": {"n": 2}}}, epoch=2, place=place)
    (tmp_path / "two" / "complete" / "000002-0001.json").write_text("{}")
    with pytest.warns(RuntimeWarning, match="000002-0001.json: .*; this is the checkpoint before it") as warned:
        view = fn.checkpoint(place.path)
    assert warned[0].filename == __file__
    assert (view.epochs, view.state("FM")["n"].tolist()) == ((1,), [1])


def test_a_checkpoint_that_was_replaced_is_told(tmp_path: Path) -> None:
    """By two newer ones of the run that goes on; what has been read already is shown."""
    place = held(str(tmp_path), STATES)
    view, late = fn.checkpoint(tmp_path), fn.checkpoint(tmp_path)
    assert len(view.state("FM", n=1)) == 1
    held(place.path, STATES, epoch=2, place=place)
    assert len(view.state("FM")) == len(FM)
    held(place.path, STATES, epoch=3, place=place)
    for one in (view, late):
        with pytest.raises(
            fn.FriesError, match=r"checkpoint 1 at .* is not there any more, .* newer ones; expected fn"
        ):
            one.state("FM")
    assert fn.checkpoint(tmp_path).epochs == (3,)


def test_a_run_may_go_on_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In front of each operation on a file it completes two checkpoints: no look mixes them, or calls it damage."""
    place, epochs, seen = held(str(tmp_path), {"FM": FM}), itertools.count(2), set()
    left = 0

    def goes_on(operation: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            for epoch in itertools.islice(epochs, 2):
                held(place.path, {"FM": {key: {"epoch": epoch} for key in FM}}, epoch, place=place)

    watch(monkeypatch, goes_on)
    for number in itertools.count(1):
        left = number
        try:
            frame = fn.checkpoint(tmp_path).state("FM")
            assert len(frame) == len(FM)
            assert "epoch" not in frame or frame["epoch"].nunique() == 1
            seen.add("")
        except fn.FriesError as error:
            seen.add(re.sub(r"checkpoint \d+ at \S+ | newer ones; .*", "", str(error)))
        if left > 0:
            break
    assert seen == {"", "is not there any more, since its run has completed"}
    assert number > 10


def test_an_operator_that_ended_or_has_no_rows_yet(tmp_path: Path) -> None:
    """The state of one that ended was not kept; one that keeps states, and has none, is an empty table."""
    held(str(tmp_path / "ended"), {}, ended=("FM[0]", "FM[1]", "FM[2]"))
    with pytest.raises(fn.FriesError, match=r"FM had ended before checkpoint 1 at .*, so its state was not kept"):
        fn.checkpoint(tmp_path / "ended").state("FM")
    held(str(tmp_path / "empty"), {})
    view = fn.checkpoint(tmp_path / "empty")
    assert list(view.state("FM")) == ["customer", "_bytes", "_bin", "_worker"]
    assert len(view.schema("FM")) == len(view.compare(view)) == 0


def test_a_comparison_with_another_dataflow_is_refused(tmp_path: Path) -> None:
    """By its name, or since keys are others."""
    held(str(tmp_path / "a"), STATES)
    held(str(tmp_path / "b"), {}, graph=declared("fraud"))
    by_shop = [replace(one, key=("shop",)) if one.name == "FM" else one for one in OPERATORS]
    held(str(tmp_path / "c"), {}, graph=declared("w1", *by_shop))
    view = fn.checkpoint(tmp_path / "a")
    with pytest.raises(fn.FriesError, match=r"b holds a checkpoint of flow 'fraud'; expected 'w1'"):
        view.compare(tmp_path / "b")
    with pytest.raises(fn.FriesError, match="with operator FM: map by shop; expected map by customer, as in"):
        view.compare(tmp_path / "c")


# ---- changes of the shape


def test_operators_that_were_removed_or_added(tmp_path: Path) -> None:
    """What the checkpoint still holds of a removed one is shown; what it cannot hold is told."""
    place = held(str(tmp_path), STATES)
    later = declared("w1", *(one for one in OPERATORS if one.name != "Pairs"), Operator("New", function=Counting()))
    shape = msgspec.msgpack.encode(flow_of(later, "r1"))
    place.decide(CommittedChange("u1", "fries", (), {}, shape=shape))
    view = fn.checkpoint(tmp_path)
    assert len(view.state("Pairs")) == len(PAIRS)
    assert view.operators().set_index("name")["removed"].to_dict() == {name: name == "Pairs" for name in NAMES}
    with pytest.raises(fn.FriesError, match=r"New was added after checkpoint 1 at .*; expected one of the run's next"):
        view.state("New")
    store = SnapshotStore(place.path, "r1")
    was = [read_file_of_snapshots(store, f"1-1/Pairs-{index}.msgpack") for index in range(2)]
    parked = [write_snapshots(store, "parked-2", 1, snapshots)[0] for snapshots in was]
    workers = {operator.name: operator.workers for operator in later.operators}
    place.keep(Checkpoint("r1", 2, 1, {}, workers=workers, parked=tuple(parked)))
    view = fn.checkpoint(tmp_path)
    assert (view.epochs, len(view.state("Pairs"))) == ((2,), len(PAIRS))
    assert view.operators().set_index("name")["keys"].to_dict()["Pairs"] == len(PAIRS)
    place.keep(Checkpoint("r1", 3, 1, {}, workers=workers))
    with pytest.raises(fn.FriesError, match=r"Pairs has been removed, and checkpoint 3 at .* holds no state of it"):
        fn.checkpoint(tmp_path).state("Pairs")


# ---- regions


def test_all_regions_are_one_checkpoint(tmp_path: Path) -> None:
    """Of those that have begun; a directory between them counts for nothing."""
    CheckpointStore.claim(str(tmp_path), declared("whole"), "r0")
    with pytest.raises(fn.FriesError, match="has not completed a checkpoint yet"):
        fn.checkpoint(tmp_path)
    for number, name in ((1, "FM"), (2, "GM")):
        operators = (Operator(f"S{number}", kind=Kind.SOURCE), replace(OPERATORS[1], name=name))
        held(str(tmp_path / f"region-{number}"), {name: {"c1": {"n": number}}}, number, declared("whole", *operators))
    (tmp_path / "region-3").mkdir()
    view = fn.checkpoint(tmp_path)
    assert (view.flow, view.epochs) == ("whole", (1, 2))
    assert view.operators()["name"].tolist() == ["S1", "FM", "S2", "GM"]
    assert [view.state(name)["n"].tolist() for name in ("FM", "GM")] == [[1], [2]]
    assert view.positions()["source"].unique().tolist() == ["S1", "S2"]


# ---- classes of states


OTHER_PROCESS = """
    import sys
    import fries_nb as fn
    {definition}
    try:
        print(fn.checkpoint({path!r}).state("FM").to_dict("list"))
    except fn.FriesError as error:
        print(error)
"""


def seen_by_another_process(path: Path, definition: str) -> str:
    """What a process that has these definitions is shown."""
    code = textwrap.dedent(OTHER_PROCESS).format(path=str(path), definition=definition)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=path, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_class_that_is_not_defined_here_is_named(tmp_path: Path) -> None:
    """Of a module that is gone, of one that lacks it, and of another script's ``__main__``; no stack trace."""
    (tmp_path / "shop.py").write_text("class Total:\n    def __init__(self, n):\n        self.n = n\n")
    made = textwrap.dedent(
        f"""
        import sys
        sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parent.parent / "support")!r}]
        import shop, looked_at
        from dataclasses import dataclass
        from fries_nb.operators import pickled_states
        @dataclass
        class Mine:
            n: int
        pickled_states.note({{("__main__", "Mine"): Mine}}, [])
        looked_at.held("by_module", {{"FM": {{"c1": shop.Total(3)}}}})
        looked_at.held("by_script", {{"FM": {{"c1": Mine(3)}}}})
        """
    )
    subprocess.run([sys.executable, "-c", made], cwd=tmp_path, check=True)
    found = "sys.path.append('..'); import shop"
    assert "shop.Total object at" in seen_by_another_process(tmp_path / "by_module", found)
    assert seen_by_another_process(tmp_path / "by_module", "") == (
        "the state of FM cannot be shown: it holds Total of shop, which is not defined there any more; define it under "
        "this name (its methods may be corrected)"
    )
    lacking = "import types; sys.modules['shop'] = types.ModuleType('shop')"
    assert "it holds Total of shop, which is not defined" in seen_by_another_process(tmp_path / "by_module", lacking)
    mine = "import dataclasses; Mine = dataclasses.make_dataclass('Mine', ['n']); Mine.__module__ = '__main__'"
    assert "'n': [3]" in seen_by_another_process(tmp_path / "by_script", mine)
    assert "it holds Mine of __main__, which is not defined" in seen_by_another_process(tmp_path / "by_script", "")


def test_all_states_are_written_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some at a time; a part that some states lack is null, and one of two types is named."""
    monkeypatch.setattr(checkpoint_view, "_WRITTEN", 7)
    states = {
        "FM": {number: {"count": number} | ({"note": f"n{number}"} if number > 30 else {}) for number in range(40)},
        "Pairs": {(1, "d"): [1, "x"], (2, "d"): [2, "y"]},
    }
    held(str(tmp_path / "c"), states)
    view, file = fn.checkpoint(tmp_path / "c"), tmp_path / "states.parquet"
    for name in ("Pairs", "FM"):  # the second one replaces the first
        assert view.write_state(name, file) == len(states[name])
        written = pd.read_parquet(file)
        shown = view.state(name)
        assert list(written) == list(shown)
        assert len(written) == len(states[name])
    counts = {row["count"]: row["note"] for row in written.to_dict("records")}
    assert counts == {number: f"n{number}" if number > 30 else None for number in range(40)}
    for odd in ("text", 0.5):
        other = {number: {"count": odd if number == 39 else 2**60 + number} for number in range(40)}
        held(str(tmp_path / str(odd)), {"FM": other})
        with pytest.raises(CheckpointError, match="the states of FM cannot be written to"):
            fn.checkpoint(tmp_path / str(odd)).write_state("FM", file)
    with pytest.raises(CheckpointError, match="cannot be written to"):
        view.write_state("FM", tmp_path / "missing" / "states.parquet")
