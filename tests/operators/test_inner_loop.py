"""The inner loop has the effects of the common path, whatever style a function is written in; and mutants do not."""

from __future__ import annotations

import copy
import gc
import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from operator_setting import batch
from row_functions import STYLES, Keyed, adds, mapped, on_key, scores

from fries_nb.errors import OperatorError
from fries_nb.operators import executors, inner_loop, kinds, rows
from fries_nb.operators.column_types import SettledColumns
from fries_nb.operators.executors import InterruptFlag, executor_of
from fries_nb.operators.inner_loop import InnerLoop, ReturnedResult
from fries_nb.operators.rows import UNKNOWN, Columns, ItemUse, LaidRow, Reads, Row
from fries_nb.operators.steps import Captured

QUOTAS = (1, 9, 20, 64)
FRAMES = (12, 40, 40)
"""Sizes of the frames; the columns that are written have settled after the first."""
NEVER = {
    "a split with a column of two types",
    "aliases in place", "aliases its state", "beside a flat map", "copies", "derives a row", "fails, and pauses",
    "is audited", "keeps rows", "keyed, and reads its key", "renames", "returns a new dict",
    "returns all and one more", "returns its state", "returns nothing", "shows_all", "yields",
    "uses_other_methods",
}  # fmt: skip
"""Styles of which all rows take the common path; of the others the inner loop captures some."""
SELDOM = {"a filter that fails", "a split into a branch that has no rows yet", "a split that fails",
          "the second adds sometimes"}  # fmt: skip
"""Styles of which the inner loop may capture some."""


def frames() -> list[pa.RecordBatch]:
    """The input: numbers, text, nulls, keys, and a type that is not laid."""
    found, start = [], 0
    for size in FRAMES:
        numbers = range(start, start + size)
        data = batch(
            n=list(numbers), x=[n * 3 % 17 for n in numbers], s=[f"s{n}" if n % 6 else None for n in numbers],
            t=[f"t{n}" for n in numbers], k=[f"k{n % 4}" for n in numbers], b=[n % 3 == 0 for n in numbers],
            d=[float("nan") if n % 5 == 0 else n % 3 / 2 for n in numbers],
        )  # fmt: skip
        found.append(data.append_column("f", pa.array([n / 4 for n in numbers], pa.float32())))
        start += size
    return found


def observed(style: str, quota: int) -> dict[str, Any]:
    """All that can be seen of a chain: its batches, failures, states, counts and records."""
    flag, kept = InterruptFlag(), list[Any]()
    chain = STYLES[style](flag, kept)
    running = executor_of(chain, flag, chain[-1].operator.branches, "L")
    seen: list[Any] = []
    try:
        for data in frames():
            running.load("L", data)
            while running.remaining:
                flag.clear()
                _advance(running, quota, seen)
                seen += [(branch, str(out.schema), repr(out.to_pydict())) for branch, out in running.results()]
                seen.append(repr([(one.batch.to_pydict(), one.written) for one in running.samples(len(chain) - 1)]))
    except OperatorError as error:
        seen.append((type(error), _plain(str(error)), error.operator))
    states = [repr(copy.deepcopy(list(one.state.live.items()))) for one in chain]
    counts = [one.processed for one in chain]
    records = [one.records() for one in chain]
    return {"seen": seen, "states": states, "counts": counts, "records": records, "reads": set(running.reads),
            "kept": repr(kept), "alive": [_keeps_batch(one) for one in kept]}  # fmt: skip


def _advance(running: Any, quota: int, seen: list[Any]) -> None:
    try:
        seen.append(running.advance(quota))
    except OperatorError as error:
        seen.append((_plain(str(error)), error.operator, error.details, running.remaining))
        seen += [(branch, str(out.schema), repr(out.to_pydict())) for branch, out in running.results()]
        raise


def _plain(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "", text)


def _keeps_batch(kept: Any) -> bool:
    return isinstance(kept, Row) and kept.columns.batch.num_rows > 0


def by_common_path(style: str, quota: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is seen without an inner loop."""
    with monkeypatch.context() as patched:
        patched.setattr(executors, "can_loop", lambda *_: False)
        return observed(style, quota)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that each call of the inner loop has captured."""
    numbers: list[int] = []
    capture = executors.Output.capture

    def counting(output: executors.Output, part: Captured) -> None:
        numbers.append(len(part.indices))
        capture(output, part)

    monkeypatch.setattr(executors.Output, "capture", counting)
    return numbers


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("style", STYLES)
def test_both_paths_have_equal_effects(
    style: str, quota: int, monkeypatch: pytest.MonkeyPatch, captured: list[int]
) -> None:
    """Rows, order, schema, types, state, counts, records, samples, failures and what was kept."""
    expected = by_common_path(style, quota, monkeypatch)
    assert captured == []
    assert observed(style, quota) == expected
    if style in NEVER or quota == 1:
        assert sum(captured) == 0
    elif quota > 9 and style not in SELDOM:
        assert sum(captured) > 0


@pytest.mark.parametrize("style", ["adds", "keyed", "map filter map"])
def test_most_rows_of_expected_styles_are_captured(style: str, captured: list[int]) -> None:
    """All but the first of each slice, after the first frame; of a filter, those that pass it."""
    observed(style, 64)
    assert sum(captured) == (77 if style != "map filter map" else 38)


@pytest.mark.parametrize("style", ["derives a row", "shows_all", "keeps rows", "copies"])
def test_the_loop_gives_up_where_much_is_unexpected(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two slices; what it costs until then is bounded."""
    times: list[int] = []
    run_once = InnerLoop._run_once

    def counting(*given: Any) -> int:
        times.append(1)
        return run_once(*given)

    monkeypatch.setattr(InnerLoop, "_run_once", counting)
    observed(style, 20)
    assert len(times) <= 2 * 4


# ---- mutants: each is caught by a style


def _mutated(before: str, after: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A mutant of the source that is generated, by a regular expression."""

    def mutate(monkeypatch: pytest.MonkeyPatch) -> None:
        source_of = inner_loop.source_of

        def mutated(shape: inner_loop.LoopShape) -> str:
            return re.sub(before, after, source_of(shape))

        inner_loop._code_of.cache_clear()
        monkeypatch.setattr(inner_loop, "source_of", mutated)

    return mutate


def _patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """A mutant of a function."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def _forgets_the_row(loop: InnerLoop, row: Row, *_: Any) -> None:
    """The tuple in hand is not completed."""


def _completes_undetached(complete: Any) -> Any:
    return lambda loop, row, at, is_kept: complete(loop, row, at, False)


def _holds_the_result(call: Any) -> Any:
    held: list[Any] = []

    def holding(returned: ReturnedResult, row: Row) -> Any:
        held.append(call(returned, row))
        return held[-1]

    return holding


def _looks_at_no_flag(run: Any) -> Any:
    def without_flag(loop: InnerLoop, *given: Any) -> Any:
        loop._interrupt = InterruptFlag()
        return run(loop, *given)

    return without_flag


def _does_nothing(_: Any) -> Any:
    return lambda *given: None


def _names_only(function: Any) -> ItemUse:
    return ItemUse(frozenset(), frozenset(), are_all=False)


def _stores_nothing(item_use: Any) -> Any:
    def use_of(function: Any) -> ItemUse | None:
        use = item_use(function)
        return use and replace(use, stores=frozenset(), are_all=True)

    return use_of


def _lists_all_keys(listed: Any) -> Any:
    return lambda loop, columns: [one.operator.key for one in loop._instances]


def _captures_too_much(capture: Any) -> Any:
    def more(output: Any, part: Captured) -> None:
        if isinstance(part.indices, range) and part.indices:
            values = {name: [*column, column[-1]] for name, column in part.values.items() if column}
            part = Captured(part.columns, range(part.indices.start, part.indices.stop + 1), values)
        capture(output, part)

    return more


def _registers_nothing(common: Any) -> Any:
    def unregistered(row: LaidRow) -> Row:
        before = dict(row.columns.written)
        common(row)
        row.columns.written.clear()
        row.columns.written.update(before)
        return row

    return unregistered


def _resumed_anew(instances: Any, outputs: Any, call: Any) -> Any:
    return kinds.resumed_steps(instances, outputs, None)


def _settles_anywhere(learn: Any) -> Any:
    def union(columns: SettledColumns, *given: Any) -> None:
        learn(columns, *given)
        columns.names = frozenset.union(*columns.of_output.values())

    return union


MUTANTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "the interrupt is not looked at": ("interrupts", _patched(InterruptFlag, "watch", _does_nothing)),
    "nor after a row that is dropped in mid chain": (
        "interrupts a row that is dropped", _patched(InterruptFlag, "watch", _does_nothing)),
    "nor after one that is dropped at the end": (
        "interrupts a row that is dropped at the end", _patched(InterruptFlag, "watch", _does_nothing)),
    "nor after one that is unexpected": (
        "interrupts and is unexpected", _patched(InnerLoop, "run", _looks_at_no_flag)),
    "a row kept is used again": ("keeps some rows at the end", _mutated(r"refs\(row\) != back", "False")),
    "one kept by a filter is used again": ("a filter keeps some rows", _mutated(r"refs\(row\) != held", "False")),
    "a row kept is not detached": (
        "keeps some rows at the end", _patched(InnerLoop, "_complete", _completes_undetached)),
    "another result is ignored": ("keeps some rows and returns others", _mutated("out is not row or ", "")),
    "a common row is taken for a laid one": (
        "removes_as_many_as_it_holds", _mutated(r" or type\(row\) is not kind", "")),
    "a column overwritten is not seen": ("overwrites_sometimes", _mutated(r"\S+ is not came_\d", "False")),
    "a column overwritten in mid chain is not seen": (
        "changes a key that it reads", _mutated(r"row\['k'\] is not came_\d", "False")),
    "a column missing is not seen": ("writes_nothing_sometimes", _mutated("value_0 is ABSENT", "False")),
    "a column more is not seen": ("adds_sometimes", _mutated(r"len\(entries\) != ", "0 > ")),
    "a list passes between operators": ("passes its list on late", _mutated("not in PLAIN", "is None")),
    "a row dropped leaves its values": ("doubles, by update, before a filter", _mutated(r"wipe\(\)", "None")),
    "rows between operators are not counted": ("map filter map", _mutated(r"processed \+= 1", "processed += 0")),
    "an index is not kept": ("map filter map", _mutated(r"keep\(index\)", "keep(index - 1)")),
    "the row's index is another": ("keyed", _mutated("row.index = index", "row.index = index - index % 2")),
    "a failure loses its operator": ("the second fails", _mutated(r"failure\(instance_1", "failure(instance_0")),
    "the row in hand is forgotten": ("keeps some rows", _patched(InnerLoop, "_complete", lambda _: _forgets_the_row)),
    "the row in hand is captured, too": ("adds_sometimes", _patched(
        executors.Output, "capture", _captures_too_much)),
    "what was written is not recorded": ("fails_late", _patched(LaidRow, "common", _registers_nothing)),
    "a key is taken from its column though it was written": (
        "keyed by an overwritten column", _patched(InnerLoop, "_keys_listed", _lists_all_keys)),
    "every function is taken to use names only": (
        "deletes_late", _patched(inner_loop, "item_use", lambda _: _names_only)),
    "what a function stores is not known": (
        "overwrites_sometimes", _patched(inner_loop, "item_use", _stores_nothing)),
    "nor that it stores what others do not": (
        "writes_sometimes_a_column_it_does_not_read", _patched(inner_loop, "item_use", _stores_nothing)),
    "a column that is looked up is of another row": (
        "reads_more_from_some_row_on", _patched(InnerLoop, "_looks_up", lambda _: lambda *given: False)),
    "columns of other types are laid": ("writes_a_narrow_value_there_is", _patched(
        rows, "_LAID", lambda laid: laid | {pa.float32().id})),
    "the loop begins before columns have settled": ("aliases in place", _patched(
        inner_loop, "SETTLED", lambda _: UNKNOWN)),
    "a column that has settled in one branch has settled": (
        "a split with a column of two types", _patched(SettledColumns, "learn", _settles_anywhere)),
    "the first rows of a branch are not checked": (
        "a split with lists in a branch that has no rows yet", _patched(
            kinds, "emits_of", lambda _: lambda outputs, last: [output.append for output in outputs])),
    "a branch is counted from the end": (
        "a split into the last branch from the end", _mutated(" or out not in known", "")),
    "rows go to another branch": ("a split", _mutated(r"keep\[out\]", "keep[0]")),
    "values go to another branch": ("a split that writes", _mutated(r"put_0\[out\]", "put_0[0]")),
    "a row kept by a split is used again": ("a split that keeps some rows", _mutated(r"refs\(row\) != held", "False")),
    "a split is called twice": ("a split that writes and keeps", _patched(
        inner_loop, "resumed_steps", lambda _: _resumed_anew)),
    "a result is referenced once more": ("derives a row", _patched(
        ReturnedResult, "__call__", _holds_the_result)),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is not empty: some slice size tells each of these from the common path."""
    style, mutate = MUTANTS[mutant]
    expected = {quota: by_common_path(style, quota, monkeypatch) for quota in QUOTAS}
    mutate(monkeypatch)
    assert any(_effects(style, quota) != expected[quota] for quota in QUOTAS)


def _effects(style: str, quota: int) -> Any:
    try:
        return observed(style, quota)
    except Exception as error:  # noqa: BLE001 (a mutant may do anything)
        return error


@pytest.fixture(autouse=True)
def _setting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Short slices are worth it, too, and no test finds the code that a mutant has generated."""
    monkeypatch.setattr(executors, "LEAST", 8)
    monkeypatch.setattr(inner_loop, "LEAST", 8)
    inner_loop._code_of.cache_clear()
    yield
    inner_loop._code_of.cache_clear()


def test_a_chain_that_is_rebuilt_runs_the_new_function(captured: list[int]) -> None:
    """In mid frame, and its loop learns anew."""
    target = mapped(adds)
    running = executor_of([target], InterruptFlag(), 1, "")
    for number, data in enumerate(frames()):
        running.load("L", data)
        running.advance(20)
        if number == 1:
            target.function = lambda row: row | {"y": -1}
            running.rebuild()
        running.advance(100)
        ys = [y for _, out in running.results() for y in out.column("y").to_pylist()]
        assert number < 1 or ys[20:] == [-1] * 20
    assert captured[0] == 18
    assert not any(captured[1:])


def test_a_state_that_is_transformed_late_is_found(captured: list[int]) -> None:
    """A key that the live states lack is looked up among the waiting ones, as on the common path."""
    target = on_key(Keyed(scores, list))
    running = executor_of([target], InterruptFlag(), 1, "")
    for data in frames():
        running.load("L", data)
        while running.remaining:
            running.advance(100)
        running.results()
        target.state.transform(lambda state: [*state, 1000][-3:])
        running.rebuild()
    assert sum(captured) == 0  # each function begins anew
    running.load("L", frames()[1])
    running.advance(100)
    running.results()
    running.load("L", frames()[2])
    running.advance(100)
    assert sum(captured) == 38
    assert all(isinstance(state, list) for state in target.state.live.values())


def test_a_replaced_function_is_released(captured: list[int]) -> None:
    """At once, since it may hold a model: no reference cycle keeps it."""

    class Model:
        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return adds(row)

    target = mapped(Model())
    running = executor_of([target], InterruptFlag(), 1, "")
    released = weakref.ref(target.function)
    gc.disable()
    try:
        for data in frames():
            running.load("L", data)
            running.advance(100)
            running.results()
        target.run_function(adds, "u1")
        target.run_function(adds, "u2")
        running.rebuild()
        target.operator = mapped(adds).operator
        assert sum(captured) > 0
        assert released() is None
    finally:
        gc.enable()


def test_captured_rows_are_those_objects() -> None:
    """As rows for a message, and as columns that were not written."""
    columns = Columns(frames()[0], Reads())
    columns.write(["y", "x", "z"])
    part = Captured(columns, [2, 5], {"y": [1, 2], "x": [7, 8]})
    assert [(row["n"], row["x"], row["y"]) for row in part.rows()] == [(2, 7, 1), (5, 8, 2)]
    assert (part.column("n"), part.column("x"), part.column("z")) == ([2, 5], [7, 8], [None, None])
