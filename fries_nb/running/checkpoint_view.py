"""A look into a checkpoint: its operators, positions of sources, and states, as DataFrames; without Spark or a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.connectors.source import Position, Split, restored_positions, splits_of
from fries_nb.dataflow.graph import Kind
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.traits import TRAITS
from fries_nb.errors import CheckpointError, KeyTypeError, in_one_line, unknown
from fries_nb.operators.shown_states import plainly_pickled
from fries_nb.protocol.partitioning import bins_of_keys
from fries_nb.running.state_table import StateRow, column_types, rows_of_key, state_table
from fries_nb.storage.durable import secret
from fries_nb.storage.stored_checkpoint import ForkOrigin, StoredCheckpoint, StoredWorker, find_checkpoints
from fries_nb.telemetry.metrics import series

_SAMPLE = 1_000
"""Number of keys whose states tell what states are made of."""
_WRITTEN = 50_000
"""Number of states that are in memory at a time when all are written to a file."""


def checkpoint(path: str | PathLike[str], signing_key: bytes | str | None = None) -> CheckpointView:
    """Look into the newest checkpoint of a run, which may go on meanwhile, or have ended.

    No Spark is needed. Nothing is written, and the directory is not taken over; so a run that goes on may replace the
    checkpoint, which then has to be opened again.

    A checkpoint holds pickled states, and loading a pickle executes code: look only into checkpoints written by you, or
    by a person you trust to execute code as you. With ``signing_key``, files that were not signed with it are refused
    before they are unpickled.

    Args:
        path: directory or URI that is ``checkpoint=`` of the run.
        signing_key: the key of the run, if it has one.

    Returns:
        The checkpoint. If the newest one is damaged it is the one before, with a warning.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged, in another format, or not signed with the key.
    """
    place, key = _place(path), secret(signing_key)
    return CheckpointView(place, key, find_checkpoints(place, key))  # what it warns of is told of the caller's line


def checkpoint_at(place: str, key: bytes) -> CheckpointView:
    """The newest checkpoint in a directory whose files are signed with this key, if any."""
    return CheckpointView(place, key, find_checkpoints(place, key))


class CheckpointView:
    """A checkpoint of a run, for reading; made by ``fn.checkpoint``.

    Args:
        path: its directory.
        key: the key that signs it.
        regions: what there is of it, region by region.

    Attributes:
        path: its directory.
        flow: name of the dataflow.
    """

    def __init__(self, path: str, key: bytes, regions: Sequence[StoredCheckpoint]) -> None:
        self.path = path
        self.flow = regions[0].flow.flow
        self._key = key
        self._regions = tuple(regions)

    @property
    def epochs(self) -> tuple[int, ...]:
        """The number of the checkpoint: of each region, if a blocking operator divides the dataflow."""
        return tuple(region.record.epoch for region in self._regions)

    def operators(self) -> Any:
        """The operators, of which no state is loaded.

        Returns:
            A DataFrame with a row for each operator: its ``name``; its ``kind``, with the columns of its key and the
            target of a sink; the number of its ``workers`` and of those that had ``ended``; the tuples ``processed`` by
            the others; the number of ``keys`` that have a state, and the ``bytes`` of their states; and whether the
            operator has been ``removed`` by a change of the shape.

        Raises:
            CheckpointError: a file is damaged, or was replaced.
        """
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        rows = [_described(region, name) for region in self._regions for name in region.operators()]
        names = ("name", "kind", "workers", "ended", "processed", "keys", "bytes", "removed")
        return DataFrame({name: series([row[place] for row in rows]) for place, name in enumerate(names)})

    def positions(self) -> Any:
        """How far sources have been read.

        Returns:
            A DataFrame with a row for each split: ``source``; ``split``; ``row``, the number of rows before the
            position; ``at``, what the source needs to find it besides, such as a file or an offset; whether the split
            has ``ended``; the ``worker``, if one has begun it; and ``next``, the number of the next row in the order of
            the source, if it has one. ``flow.run(start={"payments": positions})`` begins there, and refuses them for a
            source whose splits have other rows. Of a source that a change has removed only splits that were begun are
            known, and a worker that had ended has a row without a split.

        Raises:
            CheckpointError: a file is damaged, or was replaced.
        """
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        rows = [row for region in self._regions for row in _positions(region)]
        names = ("source", "split", "row", "at", "ended", "worker", "next")
        return DataFrame({name: series([row[place] for row in rows]) for place, name in enumerate(names)})

    def state(self, operator: str, keys: Iterable[Any] | None = None, n: int = 1000) -> Any:
        """The states of an operator, in the form of the last change that it had applied when the checkpoint was taken.

        Of a canary, until it is promoted, they are in the form before it.
        So a change that was decided after the checkpoint is not in what is shown; a run that resumes applies it.

        Args:
            operator: name of the operator.
            keys: the keys; a tuple of values for each if the key has several columns. Only the bins of these keys are
                read. By default any ``n`` keys.
            n: the largest number of keys, if ``keys`` is not given.

        Returns:
            A DataFrame with a row for each key, or for each open window of a key. Its columns are those of the key
            (``key`` if it has none); those of the value (the keys of dicts, the fields of dataclasses and named tuples,
            ``value_0`` and so on for lists of one length, otherwise ``value``); for windows ``_start`` and ``_end``;
            ``_bytes``, the size of the pickled state; ``_bin``; and ``_worker``. A key without state has no row.

        Raises:
            CheckpointError: there is no such operator, it has no state, ``keys`` or ``n`` are malformed, a class of the
                state is not defined here, or a file is damaged, or was replaced.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise CheckpointError(f"n={n!r}; expected the largest number of keys, 1 or more, as in n=1000")
        workers = self._with_state(operator)
        columns = self._key_columns(operator)
        if keys is None:
            return state_table(_sampled(workers, n), columns)
        return state_table(_found(workers, _checked_keys(operator, keys, columns)), columns)

    def write_state(self, operator: str, to: str | PathLike[str]) -> int:
        """Write all states of an operator as one Parquet file; only some of them are in memory at a time.

        Args:
            operator: name of the operator.
            to: path of the file, which is replaced if there is one.

        Returns:
            The number of rows; its columns are those of ``state``.

        Raises:
            CheckpointError: a column has values of several types, the file cannot be written, or see ``state``.
        """
        if not isinstance(to, str | PathLike):
            raise CheckpointError(f"to={to!r}; expected the path of a file, as in to='states.parquet'")
        workers, columns = self._with_state(operator), self._key_columns(operator)

        def tables() -> Iterator[pa.Table]:
            found = _sampled(workers, sys.maxsize)
            while rows := list(islice(found, _WRITTEN)):
                yield pa.Table.from_pandas(state_table(rows, columns), preserve_index=False)

        try:
            schemas = [one.schema for one in tables()] or [pa.Table.from_pandas(state_table([], columns)).schema]
            schema = pa.unify_schemas(schemas, promote_options="permissive")
            with pq.ParquetWriter(fspath(to), schema) as writer:
                written = 0
                for table in tables():
                    lacking = [field for field in schema if field.name not in table.column_names]
                    for field in lacking:
                        table = table.append_column(field, pa.nulls(len(table), field.type))
                    writer.write_table(table.select(schema.names).cast(schema))
                    written += len(table)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
            words = in_one_line(str(error))[0]
            raise CheckpointError(f"the states of {operator} cannot be written to {fspath(to)}: {words}") from error
        return written

    def schema(self, operator: str) -> Any:
        """What the states of an operator are made of.

        Args:
            operator: name of the operator.

        Returns:
            A DataFrame with a row for each ``column`` that ``state`` makes of values, and the names of the types that
            the first 1,000 keys have there (``type``), as in ``float | missing`` where some states have no such part.

        Raises:
            CheckpointError: see ``state``.
        """
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        types = column_types(_sampled(self._with_state(operator), _SAMPLE))
        return DataFrame({"column": series([*types]), "type": series([*types.values()])})

    def compare(self, other: CheckpointView | str | PathLike[str]) -> Any:
        """How the states of another checkpoint of this dataflow differ from those of this one.

        Bins whose pickled states are the same are not loaded.

        Args:
            other: the other checkpoint, which counts as the later one; or its path, if it has the same signing key.

        Returns:
            A DataFrame with a row for each operator that has a state in one of them: its ``name``; the number of keys
            before and after (``keys_before`` is of this checkpoint, ``keys_after`` of the other one); those that were
            ``added``, ``removed`` and ``changed``; ``bytes_before`` and ``bytes_after``. A state counts as changed if
            it is neither equal nor the same when pickled.

        Raises:
            CheckpointError: the other one is no checkpoint, or of another dataflow, or an operator has another kind or
                key there; or see ``state``.
        """
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        if not isinstance(other, CheckpointView):
            place = _place(other)
            other = CheckpointView(place, self._key, find_checkpoints(place, self._key))
        self._check_comparable(other)
        here, there = self._by_operator(), other._by_operator()
        rows = [
            (name, *_difference(here.get(name, []), there.get(name, []), bool(self._key_columns(name))))
            for name in {**here, **there}
        ]
        names = ("name", "keys_before", "keys_after", "added", "removed", "changed", "bytes_before", "bytes_after")
        return DataFrame({name: series([row[place] for row in rows]) for place, name in enumerate(names)})

    @property
    def as_origin(self) -> ForkOrigin:
        """What a fork begins from."""
        return ForkOrigin(self.path, self._key, self._regions[0].name)

    def __repr__(self) -> str:
        return f"<checkpoint {', '.join(map(str, self.epochs))} of flow {self.flow!r} at {self.path}>"

    def _with_state(self, operator: str) -> list[StoredWorker]:
        """The workers of an operator that keeps a state, even if no key has one; otherwise raises a CheckpointError."""
        known = (one for one in self._regions if isinstance(operator, str) and operator in one.flow.operators)
        region = next(known, None)
        if region is None:
            names = [name for one in self._regions for name in one.operators()]
            raise CheckpointError(f"the checkpoint at {self.path} has {unknown('operator', str(operator), names)}")
        workers = self._workers(operator)
        number = f"checkpoint {region.record.epoch} at {self.path}"
        if any(worker.bins for worker in workers):
            return workers
        if operator in region.flow.with_state and operator in region.operators():
            if workers or not region.ended(operator):
                return workers
            words = f"{operator} had ended before {number}, so its state was not kept"
            raise CheckpointError(f"{words}; expected run.state({operator!r}) of its run, for what its hosts have left")
        if operator not in region.operators():
            if operator in region.flow.removed:
                raise CheckpointError(f"{operator} has been removed, and {number} holds no state of it any more")
            raise CheckpointError(f"{operator} was added after {number}; expected one of the run's next checkpoints")
        others, kind = ", ".join(self._by_operator()), region.flow.operators[operator]
        expected = f"expected one of {others}" if others else "no operator has one there"
        raise CheckpointError(f"{operator} ({kind}) has no state in {number}; {expected}")

    def _workers(self, operator: str) -> list[StoredWorker]:
        return [worker for region in self._regions for worker in region.workers(operator)]

    def _by_operator(self) -> dict[str, list[StoredWorker]]:
        """The operators that have a state, in the order of the dataflow."""
        found = {name: self._workers(name) for region in self._regions for name in region.operators()}
        return {name: workers for name, workers in found.items() if any(worker.bins for worker in workers)}

    def _key_columns(self, operator: str) -> tuple[str, ...]:
        return next((one.flow.keys[operator] for one in self._regions if operator in one.flow.keys), ())

    def _kinds(self) -> dict[str, str]:
        return {name: kind for region in self._regions for name, kind in region.flow.operators.items()}

    def _check_comparable(self, other: CheckpointView) -> None:
        if other.flow != self.flow:
            raise CheckpointError(f"{other.path} holds a checkpoint of flow {other.flow!r}; expected {self.flow!r}")
        mine, theirs = self._kinds(), other._kinds()
        for name in mine:
            if theirs.get(name, mine[name]) != mine[name]:
                what = f"operator {name}: {theirs[name]}; expected {mine[name]}, as in {self.path}"
                raise CheckpointError(f"{other.path} holds a checkpoint with {what}")


def _place(path: object) -> str:
    place = os.fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(place, str) or not place:
        raise CheckpointError(f"a checkpoint is kept in a directory; expected its path or URI, got {path!r}")
    return place


def _described(region: StoredCheckpoint, name: str) -> tuple[Any, ...]:
    """The row of an operator."""
    workers = region.workers(name)
    return (
        name,
        region.flow.operators[name],
        region.record.workers.get(name, len(workers)),
        len(region.ended(name)),
        sum(worker.snapshot.processed for worker in workers) if workers else None,
        sum(worker.snapshot.keys for worker in workers),
        sum(worker.bytes for worker in workers),
        name in region.flow.removed,
    )


def _positions(region: StoredCheckpoint) -> Iterator[tuple[Any, ...]]:
    """The rows of the sources of a region."""
    for name in region.operators():
        if not TRAITS[Kind(region.flow.operators[name].partition(" ")[0])].is_source:
            continue
        ended, workers = region.ended(name), region.workers(name)
        known = {split: at for worker in workers for split, at in worker.snapshot.positions.items()}
        owners = {split: worker.index for worker in workers for split in worker.snapshot.positions}
        splits = region.splits(name, tuple[Split, ...])
        if splits is not None:
            then = region.record.readers.get(name, region.record.workers[name])
            owners = {split.number: index for index in ended for split in splits_of(splits, index, then)} | owners
            begun = restored_positions(splits, 0, 1, known, ended, then)
            known = {split.number: begun.get(split.number, Position()) for split in splits}
        places = {split.number: split.place for split in splits or () if split.step}
        for split, position in sorted(known.items()):
            at = (None, None, True) if position is None else (position.row, position.at, False)
            following = places[split](position.row) if position is not None and split in places else None
            yield name, split, *at, owners.get(split), following
        yield from ((name, None, None, None, True, index, None) for index in ended if splits is None)


def _rows(worker: StoredWorker, bin: int, key: Any, value: Any) -> Iterator[StateRow]:
    return rows_of_key(key, value, bin, worker.index, lambda state: len(plainly_pickled(state)), worker.shown)


def _sampled(workers: Iterable[StoredWorker], n: int) -> Iterator[StateRow]:
    """The states of at most so many keys, by worker and bin."""
    found = (
        (worker, bin, key, value)
        for worker in workers
        for bin, states in worker.states(sorted(worker.bins))
        for key, value in states.items()
    )
    for one in islice(found, n):
        yield from _rows(*one)


def _found(workers: Iterable[StoredWorker], keys: Sequence[Any]) -> list[StateRow]:
    """The states of these keys, in their order, of which only the bins are read."""
    wanted: dict[int, list[Any]] = {}
    for key, bin in zip(keys, bins_of_keys(keys).tolist() if keys else [], strict=True):
        wanted.setdefault(bin, []).append(key)
    rows: dict[Any, list[StateRow]] = {key: [] for key in keys}
    for worker in workers:
        for bin, states in worker.states(wanted):
            for key in wanted[bin]:
                if key in states:
                    rows[key] += _rows(worker, bin, key, states[key])
    return [row for key in keys for row in rows[key]]


def _checked_keys(operator: str, keys: object, columns: Sequence[str]) -> list[Any]:
    """The keys as states have them, each once; raises a CheckpointError if they cannot be keys of the operator."""
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise CheckpointError(f"keys={keys!r}; expected a list of keys, as in keys={[keys]!r}")
    if not columns:
        raise CheckpointError(f"{operator} has no key: each of its workers has one state; expected no keys=")
    try:
        return list(dict.fromkeys(_checked_key(operator, key, columns) for key in keys))
    except KeyTypeError as error:
        raise CheckpointError(f"keys of {operator}: {error}") from error


def _checked_key(operator: str, key: Any, columns: Sequence[str]) -> Any:
    if len(columns) == 1:
        if not isinstance(key, tuple | list):
            return canonical_key(key)
        expected = f"the key of {operator} is the column {columns[0]}; expected single values"
    else:
        if isinstance(key, tuple | list) and len(key) == len(columns):
            return canonical_key(tuple(key))
        names, count = ", ".join(columns), len(columns)
        expected = f"the key of {operator} is the columns {names}; expected tuples of {count} values"
    raise CheckpointError(f"keys= has {key!r}, and {expected}")


def _difference(before: Sequence[StoredWorker], after: Sequence[StoredWorker], keyed: bool) -> tuple[int, ...]:
    """What differs between the states of an operator in two checkpoints: the numbers in ``CheckpointView.compare``."""
    added = removed = changed = 0
    for bin in sorted({bin for worker in (*before, *after) for bin in worker.bins}):
        if _digests(before, bin, keyed) == _digests(after, bin, keyed):
            continue
        old, new = _states(before, bin, keyed), _states(after, bin, keyed)
        added += len(new.keys() - old.keys())
        removed += len(old.keys() - new.keys())
        changed += sum(not _is_same(old[key], new[key]) for key in old.keys() & new.keys())
    counts = [sum(worker.snapshot.keys for worker in workers) for workers in (before, after)]
    sizes = [sum(worker.bytes for worker in workers) for workers in (before, after)]
    return (*counts, added, removed, changed, *sizes)


def _digests(workers: Iterable[StoredWorker], bin: int, keyed: bool) -> list[tuple[int, tuple[bytes, ...]]]:
    """The digests of a bin's parts; a key has one owner, and without a key each worker has a state."""
    held = ((0 if keyed else worker.index, worker.bins[bin]) for worker in workers if bin in worker.bins)
    return [(index, tuple([place.blob.digest for place in places])) for index, places in held]


def _states(workers: Iterable[StoredWorker], bin: int, keyed: bool) -> dict[Any, Any]:
    return {
        key if keyed else (worker.index, key): state
        for worker in workers
        for _, states in worker.states([bin])
        for key, state in states.items()
    }


def _is_same(before: Any, after: Any) -> bool:
    if plainly_pickled(before) == plainly_pickled(after):
        return True
    try:
        return bool(before == after)
    except Exception:  # noqa: BLE001 - the user's code, or an array: they differ as far as is known
        return False
