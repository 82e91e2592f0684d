r"""The files of a directory that grows, listed once for all splits that a host reads.

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     for name in ("a.csv", "_b.csv", "deep/c.csv"):
...         os.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
...         _ = open(f"{path}/{name}", "w").write("n\n1\n")
...     listing = FileListing("S", f"{path}/**/*.csv", "csv", "name", None, quiet_s=1)
...     look = listing.look(now_ns=0)
...     [one.name for one in look.entries], look.final
(['a.csv', 'deep/c.csv'], False)

The files that one split of a directory has read: 18 bytes for each, which a checkpoint keeps.

A file is known by its name. Its identity (a hash of size, time of modification and content) tells a renamed file from a
new one. Of files that have left the directory the last ``KEPT_GONE`` are remembered.

>>> known = KnownFiles()
>>> known.add(hashed("a.csv"), 10, identity=7)
>>> again, name = KnownFiles(known.packed), hashed("a.csv")
>>> name in again, again.has_size(name, 10), again.has_size(name, 11), hashed("b.csv") in again
(True, True, False, False)
"""

from __future__ import annotations

import hashlib
import logging
import re
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from fries_nb.connectors.file_columns import FileColumns
from fries_nb.connectors.file_formats import FileFormat
from fries_nb.connectors.inferred_types import partition_type
from fries_nb.connectors.text_blocks import UnreadableError
from fries_nb.errors import SourceError
from fries_nb.storage.durable import locate

KEPT_GONE = 10_000
"""Number of files that are no longer in the directory and that a split remembers."""

_ENTRY = struct.Struct("<QHQ")


def hashed(text: str | bytes) -> int:
    """A hash of 64 bits, the same in every process."""
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class KnownFiles:
    """The files that a split has read, in the order of reading."""

    def __init__(self, packed: bytes = b"") -> None:
        # those of an earlier reader of the split
        self.packed = packed  # all of them as bytes; never changed, only replaced
        self._entries = {name: (size, identity) for name, size, identity in _ENTRY.iter_unpack(packed)}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: int) -> bool:
        """Whether a file whose name has this hash was read."""
        return name in self._entries

    def has_size(self, name: int, size: int) -> bool:
        """Whether a known file has the size with which it was read (or one that differs by a multiple of 65,536)."""
        then, _ = self._entries[name]
        return bool(then == size & 0xFFFF)

    def identities(self) -> Iterator[tuple[int, int]]:
        """The identity of each file, and the hash of its name."""
        return ((identity, name) for name, (_, identity) in self._entries.items())

    def add(self, name: int, size: int, identity: int) -> None:
        """Note that a file was read to its end."""
        entry = (name, size & 0xFFFF, identity)
        self._entries[entry[0]] = entry[1:]
        self.packed += _ENTRY.pack(*entry)

    def forget_gone(self, present: Collection[int]) -> list[int]:
        """Forget files that are no longer in the directory, but for the last ``KEPT_GONE``."""
        gone = [name for name in self._entries if name not in present]
        forgotten = [self._entries.pop(name)[1] for name in gone[:-KEPT_GONE]]
        if forgotten:
            self.packed = b"".join(_ENTRY.pack(name, *rest) for name, rest in self._entries.items())
        return forgotten


LOOK_NS = 200_000_000
"""Time in nanoseconds after which a directory is listed again; longer, 20 times that of a listing, for many files."""
SAY_NS = 10_000_000_000
"""Time in nanoseconds after which a source that finds nothing to read says so."""
STUCK_NS = 3_000_000_000
"""Time in nanoseconds after which a file that does not grow is broken, if no other comes; longer with ``quiet_s``."""
HIDDEN_PREFIXES = ("_", ".")
_GLOB = re.compile(r"[*?\[]")
_log = logging.getLogger("fries_nb")


class Entry(NamedTuple):
    """A file of the directory."""

    name: str  # path relative to the directory
    path: str  # path in the file system
    size: int  # number of bytes
    mtime_ns: int  # time of the last modification in nanoseconds since the Unix epoch
    key: int  # hash of its name

    @property
    def partition(self) -> dict[str, str]:
        """The columns that its directories have in their names, as those of Hive and Spark, and their values.

        >>> Entry("day=2024-01-02/town=K%C3%B6ln/a.csv", "", 0, 0, 0).partition
        {'day': '2024-01-02', 'town': 'Köln'}
        """
        if "=" not in self.name:
            return {}
        steps = [step.partition("=") for step in self.name.split("/")[:-1]]
        return {unquote(name): unquote(value) for name, mark, value in steps if mark and name}


@dataclass(frozen=True, eq=False)
class DirectoryContents:
    """What was in the directory at one time."""

    entries: tuple[Entry, ...] = ()  # the files, in the order in which they are to be read
    final: bool = False  # whether no file comes any more, since the marker of the end was there before
    dealt: dict[int, tuple[tuple[Entry, ...], ...]] = field(default_factory=dict)

    @cached_property
    def present(self) -> frozenset[int]:
        """The hashes of the names of all files."""
        return frozenset(entry.key for entry in self.entries)

    def of_split(self, number: int, count: int) -> tuple[Entry, ...]:
        """The files of one of so many splits: a file belongs to a split by its name."""
        if count not in self.dealt:
            splits: list[list[Entry]] = [[] for _ in range(count)]
            for entry in self.entries:
                splits[entry.key % count].append(entry)
            self.dealt[count] = tuple(map(tuple, splits))
        return self.dealt[count][number]


class FileListing:
    """A directory, as the readers of one host look at it. Pickled without what it has seen."""

    def __init__(
        self, source: str, place: str, format: FileFormat, order: str, until: str | None, quiet_s: float
    ) -> None:
        self.format = format
        self.place = place  # the directory, or a glob below one; a path or URI
        # ``quiet_s``: seconds for which a file of text must not have changed before it counts as complete
        self._given = (source, place, format, order, until, quiet_s)
        # ``until``: name of the file in the directory that says that no other comes any more; ``None`` for none
        # ``order``: ``name``, or ``time`` for that of the last modification
        self._source, self._order, self._until, self._quiet_ns = source, order, until, int(quiet_s * 1e9)
        self._root, self._pattern = _divided(place)
        self._lock = threading.RLock()
        self._look = DirectoryContents()
        self._due_ns: int | None = None
        self._looked_ns = 0
        self._since: dict[Entry, int] = {}
        self._incomplete: dict[Entry, tuple[DirectoryContents, str]] = {}
        self._read: dict[int, int] = {}
        self._columns: FileColumns | None = None
        self._active_ns: int | None = None
        self._told_ns: int | None = None

    def __reduce__(self) -> tuple[type[FileListing], tuple[Any, ...]]:
        return FileListing, self._given

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """The file system of the directory."""
        return locate(self._root)[0]

    def check(self) -> None:
        """Check that there is such a directory."""
        try:
            filesystem, root = locate(self._root)
            kind = filesystem.get_file_info(root).type
        except (OSError, ValueError) as error:
            raise SourceError(f"cannot look at {self.place}: {error}") from error
        if kind == fs.FileType.File:
            raise SourceError(
                f"{self._root} is a file; expected a directory that grows, or a glob as dir/*.csv "
                "(fn.replay reads a finished Parquet file)"
            )
        if kind == fs.FileType.NotFound and isinstance(filesystem, fs.LocalFileSystem):
            raise SourceError(f"there is no directory {self._root}; expected one, maybe empty, or a glob below it")

    def look(self, now_ns: int) -> DirectoryContents:
        """The directory as of now, or a moment ago."""
        with self._lock:
            if self._due_ns is None or now_ns >= self._due_ns:
                began = time.perf_counter_ns()
                self._look, self._looked_ns = self._listed(), now_ns
                there = set(self._look.entries)
                self._since = {name: since for name, since in self._since.items() if name in there}
                self._incomplete = {name: why for name, why in self._incomplete.items() if name in there}
                self._due_ns = now_ns + max(LOOK_NS, 20 * (time.perf_counter_ns() - began))
            return self._look

    def _listed(self) -> DirectoryContents:
        try:
            entries, marked = self._all()
            if marked:  # what came before the marker may have been missed by the listing that found it
                entries, _ = self._all()
        except OSError as error:
            raise SourceError(f"cannot list {self.place}: {error}") from error
        key = (lambda one: one.name) if self._order == "name" else (lambda one: (one.mtime_ns, one.name))
        return DirectoryContents(tuple(sorted(entries, key=key)), marked)

    def _all(self) -> tuple[list[Entry], bool]:
        _, root = locate(self._root)
        found, marked = [], False
        selector = fs.FileSelector(root, recursive=True, allow_not_found=not self.is_local)
        for info in self.filesystem.get_file_info(selector):
            name = info.path.removeprefix(root).strip("/")
            marked = marked or name == self._until
            steps = name.split("/")
            if info.type != fs.FileType.File or any(step.startswith(HIDDEN_PREFIXES) for step in steps):
                continue
            if name == self._until or (self._pattern is not None and not self._pattern.fullmatch(name)):
                continue
            found.append(Entry(name, info.path, info.size, info.mtime_ns, hashed(name)))
        return found, marked

    @property
    def is_local(self) -> bool:
        """Whether the directory is on the disk of each machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def content(self, entry: Entry) -> bytes:
        """A fingerprint of a file's content; empty as long as it is not complete, or if it has gone."""
        # A file counts as quiet by the times of listings: one that has not changed in the last listing may have changed
        # since.
        with self._lock:
            if entry in self._incomplete and self._incomplete[entry][0] is self._look:
                return b""
            since = self._since.setdefault(entry, self._looked_ns)
            quiet = self._looked_ns - min(since, entry.mtime_ns)
            content, why = b"", "it may still grow"
            if self.format.tells_its_end or quiet >= self._quiet_ns:
                try:
                    content = self.format.content(self.filesystem, entry.path, entry.size)
                    why = "it is empty" if not entry.size else "its end is missing"
                except OSError as error:  # if it has gone, the next listing shows that
                    why = first_line(error)
            if not content:
                self._incomplete[entry] = self._look, why
            return content

    def why_incomplete(self, entry: Entry) -> str:
        """Why a file of the last listing counts as not complete; empty if it does not."""
        with self._lock:
            look, why = self._incomplete.get(entry, (None, ""))
            return why if look is self._look else ""

    def is_stuck(self, entry: Entry) -> bool:
        """Whether a file is not complete and never will be: no file comes any more, and it has not grown for long."""
        with self._lock:
            waited = self._looked_ns - self._since.get(entry, self._looked_ns)
            return self._look.final and bool(self.why_incomplete(entry)) and waited >= max(STUCK_NS, self._quiet_ns)

    def note(self, identity: int, name: int) -> None:
        """Note that a split reads a file, or has read it."""
        with self._lock:
            self._read[identity] = name

    def forget(self, identities: Iterable[int]) -> None:
        """Note that files are known no more."""
        with self._lock:
            for identity in identities:
                self._read.pop(identity, None)

    def is_renamed(self, identity: int, entry: Entry, look: DirectoryContents) -> bool:
        """Whether a file was read under another name, which is no longer there."""
        with self._lock:
            name = self._read.get(identity)
            return name is not None and name != entry.key and name not in look.present

    def columns(self, now_ns: int) -> FileColumns | None:
        """The columns of all files; ``None`` if there is no complete file yet, or none with a column."""
        # They are those of the complete ones when they were first asked for.
        with self._lock:
            if self._columns is None:
                entries, used = self.look(now_ns).entries, list[str]()
                schema = self._schema(self._complete(entries, used))
                partitions = self._partitions(entries, schema)
                if schema.names:
                    more = f", and {len(used) - 1:,} more" if len(used) > 1 else ""
                    columns = pa.schema([*schema, *partitions])
                    self._columns = FileColumns(columns, f"the first file, {used[0]}{more}")
            return self._columns

    def _complete(self, entries: Iterable[Entry], used: list[str]) -> Iterator[tuple[str, str]]:
        """Names and paths of complete files, noted when they are taken."""
        for entry in entries:
            if self.content(entry):
                used.append(entry.name)
                yield entry.name, entry.path

    def _schema(self, complete: Iterator[tuple[str, str]]) -> pa.Schema:
        first = next(complete, None)
        if first is None:
            return pa.schema([])
        try:
            return self.format.schema(self.filesystem, chain([first], complete))
        except SourceError:
            raise
        except (OSError, pa.ArrowException, UnreadableError) as error:
            raise SourceError(f"cannot read {first[0]} of {self.place}: {first_line(error)}") from error

    def _partitions(self, entries: Iterable[Entry], schema: pa.Schema) -> list[pa.Field]:
        """The columns that are only in the names of directories."""
        values: dict[str, list[str]] = {}
        for entry in entries:
            for name, value in entry.partition.items():
                values.setdefault(name, []).append(value)
        return [pa.field(name, partition_type(some)) for name, some in values.items() if name not in schema.names]

    def wait(self, now_ns: int, look: DirectoryContents) -> None:
        """Note that a split has nothing to read; after a while that is said, once until something is read again."""
        with self._lock:
            if self._active_ns is None:
                self._active_ns = now_ns
            if self._told_ns is None and now_ns - self._active_ns >= SAY_NS:
                self._told_ns = now_ns
                _log.warning("source %r waits for files in %s: %s", self._source, self.place, self._why(look))

    def active(self, now_ns: int) -> None:
        """Note that a split reads a file."""
        with self._lock:
            self._active_ns, self._told_ns = now_ns, None

    def _why(self, look: DirectoryContents) -> str:
        waiting = [entry for entry in look.entries if self.why_incomplete(entry)]
        if waiting:
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            return f"{waiting[0].name}{more} not complete yet ({self.why_incomplete(waiting[0])})"
        return f"all {len(look.entries):,} files are read" if look.entries else "there is none yet"


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type if there is none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _divided(place: str) -> tuple[str, re.Pattern[str] | None]:
    """The directory of a glob, and the pattern of names below it; ``None`` for a directory, of which all files count.

    >>> _divided("s3://bucket/in/**/*.json")[0], bool(_divided("/in/*.json")[1].fullmatch("deep/a.json"))
    ('s3://bucket/in', False)
    >>> _divided("s3://bucket/in/*.json?region=eu-west-1")[0], _divided("s3://bucket/in?region=eu-west-1")[1]
    ('s3://bucket/in?region=eu-west-1', None)
    """
    path, mark, query = place.partition("?") if "://" in place else (place, "", "")
    steps = path.rstrip("/").split("/")
    first = next((number for number, step in enumerate(steps) if _GLOB.search(step)), None)
    if first is None:
        return place, None
    pattern = "/".join(map(_translated, steps[first:])).replace("**/", "(?:[^/]+/)*")
    root = "/".join(steps[:first]) or ("/" if path.startswith("/") else ".")
    return root + mark + query, re.compile(pattern)


def _translated(step: str) -> str:
    return step if step == "**" else "".join(_pieces(step))


def _pieces(step: str) -> Iterator[str]:
    """The parts of a regular expression for one step of a glob."""
    for found in re.finditer(r"\[!?[^\]]+\]|.", step):
        piece = found[0]
        if piece.startswith("[") and len(piece) > 1:
            yield piece.replace("[!", "[^", 1)
        else:
            yield {"*": "[^/]*", "?": "[^/]"}.get(piece) or re.escape(piece)
