"""Commits of sinks: all part files of a commit become output, or none, whatever failure occurs in between.

A target directory holds committed parts as plain ``part-*.parquet``, readable by Spark and every other reader. Once a
column has widened, earlier parts keep the narrower type: ``output`` unites both, while Spark by itself cannot read
integers among floats, and pyarrow must be given the schema.

Its subdirectory ``_fries`` holds ``flow.json`` (the owner of the target), ``pending/`` (uncommitted parts) and
``commits/`` (one manifest for each commit). A commit first writes its manifest, durably, and then moves the files that
it lists. The manifest decides: once it exists, the commit is complete, and the next reader finishes the moves.

Runs of one dataflow append to a target, each under its own run name. A target that holds anything else is refused.

For a Delta table the moved files are added to its log (see ``delta``), and committed files that the log lacks are added
by the next reader.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from pyarrow import fs

from fries_nb.errors import SinkError
from fries_nb.storage import delta
from fries_nb.storage.durable import SHARED, entries, join, locate, name_at, read_file, see_durable, write_file
from fries_nb.storage.part_files import PartName, pending, word

_T = TypeVar("_T")


class Manifest(msgspec.Struct, frozen=True):
    """One commit of a run; ``files`` are names within the target directory."""

    run: str
    epoch: int
    incarnation: int
    files: tuple[str, ...]


class _Owner(msgspec.Struct, frozen=True):
    flow: str
    delta: bool = False
    partition_by: tuple[str, ...] = ()


def claim(
    path: str, flow: str, *, table: bool = False, partition_by: tuple[str, ...] = (), beside_others: bool = False
) -> None:
    """Make a directory the target of a dataflow, and finish commits that an earlier run left incomplete."""
    if table:
        delta.check_usable(path, partition_by)
    filesystem, root = _locate(path)
    try:
        owner = _owner(filesystem, root)
        if owner is not None:
            _check_owner(path, owner, flow, table)
            recover(path)
            if owner.partition_by != partition_by:
                delta.check_usable(path, partition_by)  # recovery may have made the table
                _note_owner(filesystem, root, _Owner(flow, table, partition_by))
            return
        found = filesystem.get_file_info(root)
        if found.type == fs.FileType.File:
            raise SinkError(f"{path} is a file; expected a directory, or a path where none is yet")
        is_ours = beside_others or (table and delta.is_table(path))
        there = entries(filesystem, root)
        if not is_ours and any(entry.base_name != "_fries" for entry in there):  # an interrupted claim leaves _fries
            raise SinkError(f"{path} holds files that no flow wrote; use an empty directory or a new path")
        _note_owner(filesystem, root, _Owner(flow, table, partition_by))
    except OSError as error:
        raise SinkError(f"cannot use {path} as a target: {str(error).splitlines()[0]}") from error


def commit(path: str, epoch: int, files: Iterable[str]) -> None:
    """Commit closed parts as one commit of the run that they name; idempotent."""
    names = tuple(sorted({name_at(file) for file in files}))
    if not names:
        return
    parts = [PartName.read(name) for name in names]
    if len({part.run for part in parts}) > 1:
        raise SinkError(f"epoch {epoch} of {path} has parts of several runs; a commit is of one run")
    newest = max(part.incarnation for part in parts)
    manifest = Manifest(parts[0].run, epoch, newest, names)
    filesystem, root = _locate(path)
    try:
        is_table = _is_table(filesystem, root)
        if not _is_committed(path, manifest, parts):
            prepare(path, names)
            note = f"{root}/_fries/commits/{_file_of(manifest.run, epoch)}"
            write_file(filesystem, note, msgspec.json.encode(manifest), SHARED)
        if is_table:
            _publish(path, manifest.run)
        else:
            _move(path, names)
    except OSError as error:
        raise SinkError(f"cannot commit epoch {epoch} to {path}: {str(error).splitlines()[0]}") from error


def prepare(path: str, files: Iterable[str]) -> None:
    """Check that closed parts can be committed and are durable; called before the record that lists them is written."""
    names = sorted({name_at(file) for file in files})
    filesystem, root = _locate(path)
    there = [name for name in names if filesystem.get_file_info(f"{root}/{name}").type != fs.FileType.File]
    try:
        owner = _owner(filesystem, root) if there else None
        if owner is not None and owner.delta:
            delta.check_fits(path, [join(pending(path), name) for name in there], owner.partition_by)
        for name in there:
            see_durable(filesystem, f"{root}/_fries/pending/{name}")
        if there:
            see_durable(filesystem, f"{root}/_fries/pending")
    except OSError as error:
        raise SinkError(f"cannot commit to {path}: {str(error).splitlines()[0]}") from error


def recover(path: str) -> None:
    """Finish commits that were interrupted between their manifest and their last move."""
    filesystem, root = _locate(path)
    if _is_table(filesystem, root):
        for run in sorted({run for run, _ in _epochs(filesystem, root)}):
            _publish(path, run)
        return
    there = {entry.base_name for entry in entries(filesystem, root)}
    _move(path, [name for manifest in _manifests(filesystem, root) for name in manifest.files if name not in there])


def take_back(path: str, run: str, epoch: int) -> None:
    """Remove from the target the output of a run after this commit; the run computes it again."""
    # This is needed if a run resumes from an older checkpoint because its newest one is damaged.
    filesystem, root = _locate(path)
    later = [found for found in _epochs(filesystem, root, word(run)) if found[1] > epoch]
    if not later:
        return
    logged = delta.names(path) if _is_table(filesystem, root) else set()
    for one in later:
        if not logged.isdisjoint(_manifest(filesystem, root, *one).files):
            raise SinkError(
                f"the Delta table {path} has rows of epoch {one[1]} of run {run}, whose checkpoint is damaged; going "
                f"on from epoch {epoch} would add them again: restore the table to a version before them, then resume"
            )
    try:
        for one in reversed(later):
            for name in _manifest(filesystem, root, *one).files:
                if filesystem.get_file_info(f"{root}/{name}").type == fs.FileType.File:
                    filesystem.move(f"{root}/{name}", f"{root}/_fries/pending/{name}")
            filesystem.delete_file(f"{root}/_fries/commits/{_file_of(*one)}")
    except OSError as error:
        raise SinkError(f"cannot take epoch {epoch + 1} out of {path}: {str(error).splitlines()[0]}") from error


def sweep(path: str, run: str, incarnation: int, spared: frozenset[str] = frozenset()) -> None:
    """Delete the parts of a run that were never committed."""
    filesystem, directory = _locate(pending(path))
    kept = {name for manifest in _manifests(*_locate(path), word(run)) for name in manifest.files}
    kept |= {name_at(file) for file in spared}
    for entry in entries(filesystem, directory):
        if not entry.base_name.startswith(f"part-{word(run)}-") or entry.base_name in kept:
            continue
        if PartName.read(entry.base_name).incarnation <= incarnation:
            filesystem.delete_file(entry.path)


def committed(path: str, run: str | None = None) -> list[str]:
    """The committed files of a target, or of one run, by run and commit number; empty if there is no such target."""
    filesystem, root = _locate(path)
    manifests = _manifests(filesystem, root, word(run) if run is not None else None)
    names = [name for manifest in manifests for name in manifest.files]
    if _is_table(filesystem, root):
        logged = delta.names(path)  # maintenance of the table may have rewritten or deleted some
        names = [name for name in names if name in logged]
    return [join(path, name) for name in names]


def see_unchanged(path: str, run: str | None = None) -> None:
    """Check that the committed files of a target, or of one run, were not rewritten."""
    filesystem, root = _locate(path)
    if not _is_table(filesystem, root):
        return
    manifests = _manifests(filesystem, root, word(run) if run is not None else None)
    last = {run: delta.last_epoch(path, run) for run in {manifest.run for manifest in manifests}}
    logged = delta.names(path)
    names = [name for manifest in manifests if manifest.epoch <= last[manifest.run] for name in manifest.files]
    if gone := [name for name in names if name not in logged]:
        raise SinkError(
            f"the Delta table {path} has been rewritten since (as by OPTIMIZE, an overwrite or a delete): "
            f"{len(gone)} of the {len(names)} files that were committed are no longer in it, and what became of their "
            f"rows is in the table alone; read that: spark.read.format('delta').load({path!r})"
        )


def _is_committed(path: str, manifest: Manifest, parts: list[PartName]) -> bool:
    """Whether this commit has a manifest; refuses parts of an older incarnation, and other files for the commit."""
    filesystem, root = _locate(path)
    epochs = _epochs(filesystem, root, manifest.run)
    latest = [_manifest(filesystem, root, *epochs[-1])] if epochs else []  # incarnations grow with epochs
    granted = max([manifest.incarnation, *(one.incarnation for one in latest)])
    for part in parts:
        if part.incarnation < granted:
            raise SinkError(
                f"{part} is of incarnation {part.incarnation}, and {path} is at {granted}: "
                "a host of an attempt that is over handed it in"
            )
    if (manifest.run, manifest.epoch) not in epochs:
        return False
    if _manifest(filesystem, root, manifest.run, manifest.epoch).files != manifest.files:
        raise SinkError(f"epoch {manifest.epoch} of run {manifest.run} is committed in {path} with other files")
    return True


def _check_owner(path: str, owner: _Owner, flow: str, table: bool) -> None:
    if owner.flow != flow:
        raise SinkError(f"{path} holds output of the flow {owner.flow!r}, not of {flow!r}; use another path")
    if owner.delta is not table:
        kinds = ("Parquet files", "a Delta table")
        raise SinkError(f"{path} holds {kinds[owner.delta]}, not {kinds[table]}; use another path")


def _owner(filesystem: fs.FileSystem, root: str) -> _Owner | None:
    note = f"{root}/_fries/flow.json"
    is_there = filesystem.get_file_info(note).type == fs.FileType.File
    return _read(filesystem, note, _Owner) if is_there else None


def _note_owner(filesystem: fs.FileSystem, root: str, owner: _Owner) -> None:
    write_file(filesystem, f"{root}/_fries/flow.json", msgspec.json.encode(owner), SHARED)


def _is_table(filesystem: fs.FileSystem, root: str) -> bool:
    owner = _owner(filesystem, root)
    return owner is not None and owner.delta


def _publish(path: str, run: str) -> None:
    """Add the committed files of a run to the Delta table's log, as far as it lacks them."""
    filesystem, root = _locate(path)
    last, owner = delta.last_epoch(path, run), _owner(filesystem, root)
    assert owner is not None, "a table has an owner"
    for _, epoch in _epochs(filesystem, root, run):
        if epoch > last:
            names = _manifest(filesystem, root, run, epoch).files
            _move(path, names)
            delta.add(path, run, epoch, names, owner.partition_by)


def _file_of(run: str, epoch: int) -> str:
    return f"{run}-{epoch:06d}.json"


def _epochs(filesystem: fs.FileSystem, root: str, run: str | None = None) -> list[tuple[str, int]]:
    """The commits in a target as (run, commit number), sorted."""
    found = []
    for entry in entries(filesystem, f"{root}/_fries/commits"):
        of, _, epoch = entry.base_name.removesuffix(".json").rpartition("-")
        if entry.base_name.endswith(".json") and epoch.isdigit() and run in (None, of):
            found.append((of, int(epoch)))
    return sorted(found)


def _manifest(filesystem: fs.FileSystem, root: str, run: str, epoch: int) -> Manifest:
    file = f"{root}/_fries/commits/{_file_of(run, epoch)}"
    manifest = _read(filesystem, file, Manifest)
    for name in manifest.files:
        PartName.read(name)
        if posixpath.basename(name) != name:  # a path that leads out of the directory
            raise SinkError(f"{file} is damaged: it names {name!r}, which is no part file")
    return manifest


def _read(filesystem: fs.FileSystem, file: str, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(read_file(filesystem, file), type=kind)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise SinkError(f"{file} is damaged: {str(error).splitlines()[0]}") from error


def _manifests(filesystem: fs.FileSystem, root: str, run: str | None = None) -> list[Manifest]:
    return [_manifest(filesystem, root, *key) for key in _epochs(filesystem, root, run)]


def _move(path: str, names: Iterable[str]) -> None:
    """Move parts from ``pending`` into place; parts that are there already are skipped."""
    filesystem, root = _locate(path)
    for name in names:
        try:
            filesystem.move(f"{root}/_fries/pending/{name}", f"{root}/{name}")
        except OSError as error:  # moved before, by an attempt that stopped or by another reader of the manifest
            if filesystem.get_file_info(f"{root}/{name}").type != fs.FileType.File:
                raise SinkError(f"the committed file {name} of {path} has gone: {error}") from error


def _locate(path: str) -> tuple[fs.FileSystem, str]:
    try:
        filesystem, root = locate(path)
    except (OSError, ValueError) as error:
        raise SinkError(str(error)) from error
    return filesystem, root.rstrip("/")
