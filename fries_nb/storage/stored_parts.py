"""What is stored of a worker's states, and what of that is written again with its next snapshot.

The first snapshot of a worker has all of its states. A later one has what has come since the one before: of each bin
that was touched a part more, with the keys that were touched (see ``operators.pickled_states``). Files are never
changed, so a snapshot names the parts that earlier files have, and its own.

Without more, the parts of a bin, the files, and the entries that later ones have replaced would grow without bound. So
with each snapshot a little is written again, in the file that is written anyway. A *run* of parts of a bin, one behind
the other, becomes one part, in which each key is once; one that has all of the bin loses the keys that have gone, too.

    the last parts of a bin    from ``PARTS / 2`` on, those of most parts first; none has more than ``PARTS``
    a whole bin                once ``LEAST`` of what its first part has has come since, the largest share first
    whole files                when more than ``FILES`` are named: all that the smallest ones have, so that half as many
                               are left

The first two are paid from a credit: with each byte that has come, ``SHARE`` may be written again. So the price of a
snapshot follows what was touched, also where all bins are touched at once, since not all of them are written again at
once. What is not used up is kept, up to ``MOST`` of all states. Where likely more than half of what is stored counts no
more, as after most keys have gone, ``MOST`` of it may be written again even if little came. So may it when files are
too many.

Each snapshot of a worker names only files that the one before it has named, and its own. So which files can be deleted
is seen from the records of checkpoints (``forgotten_files``).

No state is unpickled here, and nothing is read or written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import msgspec

from fries_nb.operators.pickled_states import entry_count, merged_parts
from fries_nb.protocol.checkpoints import PARKED, Checkpoint, Snapshot
from fries_nb.storage.blob_files import Blob

PARTS = 32
"""Maximum number of parts of a bin."""
FILES = 64
"""Maximum number of files that a snapshot names, except for some time after it was put together from several ones."""
LEAST = 0.5
"""How much has to have come since the first part of a bin, as a share of that, before all is written again."""
SHARE = 3
"""Number of bytes that may be written again for each byte that has come."""
MOST = 1 / 25
"""Share of all states that may be written again for other reasons."""


class IndexedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of snapshots, as later ones name it.

    Attributes:
        name: its name.
        digest: the SHA-256 digest of its index.
    """

    name: str
    digest: bytes


class StoredBlob(NamedTuple):
    """Where a blob is stored: a part of a bin's states, or the agenda of a bin."""

    file: IndexedFile
    number: int  # its number among the blobs of the file
    offset: int  # from the beginning of the file, in bytes
    blob: Blob

    @property
    def length(self) -> int:
        """Its length in bytes."""
        return self.blob.length

    @property
    def entries(self) -> int:
        """The number of its entries."""
        return self.blob.entries


class NewPart(NamedTuple):
    """A part that is not stored yet."""

    content: bytes
    entries: int

    @property
    def length(self) -> int:
        """Its length in bytes."""
        return len(self.content)


class PartsRun(NamedTuple):
    """Parts of a bin, the oldest first, that will be one part of the file."""

    pieces: tuple[StoredBlob | NewPart, ...]
    is_whole: bool  # whether they are all that the bin has

    def joined(self, contents: Mapping[StoredBlob, bytes]) -> NewPart | None:
        """The part, from the contents of those that are stored; ``None`` if no key is left in the bin."""
        parts = [contents[piece] if isinstance(piece, StoredBlob) else piece.content for piece in self.pieces]
        if len(parts) == 1:
            return NewPart(parts[0], self.pieces[0].entries)
        joined, entries = merged_parts(parts, not self.is_whole)
        return NewPart(joined, entries) if entries else None


_Row = list[StoredBlob | NewPart]


@dataclass(frozen=True)
class StoredParts:
    """What is stored of a worker's states.

    Attributes:
        number: number of the last snapshot.
        bins: bin to the parts of its states, the oldest first.
        agenda: bin to its agenda.
        needs: the user's definitions that the states need.
        credit: number of bytes that may be written again with the next snapshot.
    """

    number: int
    bins: Mapping[int, tuple[StoredBlob, ...]]
    agenda: Mapping[int, StoredBlob]
    needs: frozenset[tuple[str, str]] = frozenset()
    credit: int = 0

    @property
    def blobs(self) -> Iterator[StoredBlob]:
        """All parts and agendas."""
        for parts in self.bins.values():
            yield from parts
        yield from self.agenda.values()

    @property
    def files(self) -> list[str]:
        """The files that have them."""
        return sorted({one.file.name for one in self.blobs})


@dataclass(frozen=True)
class SnapshotLayout:
    """What a snapshot's file names, and what it will have itself.

    Attributes:
        bins: bin to its parts, the oldest first: stored ones, which are named, and runs, which are to be written.
        agenda: bin to its agenda: stored, or the content that is to be written.
        needs: the user's definitions that the states need.
        came: number of bytes of new parts.
        credit: number of bytes that may be written again with this snapshot.
    """

    bins: Mapping[int, tuple[StoredBlob | PartsRun, ...]]
    agenda: Mapping[int, StoredBlob | bytes]
    needs: frozenset[tuple[str, str]]
    came: int = 0
    credit: int = 0

    @property
    def to_read(self) -> list[StoredBlob]:
        """The stored parts that are to be written again."""
        runs = (part for row in self.bins.values() for part in row if isinstance(part, PartsRun))
        return [piece for run in runs for piece in run.pieces if isinstance(piece, StoredBlob)]

    def credit_after(self, written: int) -> int:
        """What is left when so many bytes of parts were written."""
        return max(0, self.credit - max(0, written - self.came))


def laid_out(snapshot: Snapshot, stored: StoredParts | None) -> SnapshotLayout:
    """How a snapshot is to be stored behind what is stored of its worker; alone if it has all states."""
    new = {bin: [NewPart(part, entry_count(part)) for part in parts] for bin, parts in snapshot.bins.items()}
    needs = frozenset(snapshot.needs)
    if stored is None or not snapshot.since:
        runs = {bin: (PartsRun(tuple(parts), True),) for bin, parts in new.items() if parts}
        return SnapshotLayout(runs, dict(snapshot.agenda), needs)
    rows: dict[int, _Row] = {bin: [*row] for bin, row in stored.bins.items() if bin not in snapshot.gone}
    for bin, parts in new.items():
        rows.setdefault(bin, []).extend(parts)
    same = {
        bin: held
        for bin, held in stored.agenda.items()
        if bin in snapshot.agenda and held.blob == Blob.of(snapshot.agenda[bin])
    }
    choice = _Choice(rows, same, stored.credit)
    if choice.came or len(same) < len(snapshot.agenda):
        choice.make()
    return SnapshotLayout(
        {bin: tuple(_divided(row, choice.again[bin])) for bin, row in rows.items() if row},
        {bin: choice.same.get(bin, content) for bin, content in snapshot.agenda.items()},
        needs | stored.needs,
        choice.came,
        choice.credit,
    )


def _divided(row: _Row, again: set[int]) -> Iterator[StoredBlob | PartsRun]:
    """The parts of a bin, of which those at some places are written again, as new ones are."""
    numbered = [(isinstance(piece, NewPart) or at in again, piece) for at, piece in enumerate(row)]
    for is_written, some in groupby(numbered, lambda one: one[0]):
        pieces = tuple(piece for _, piece in some)
        if is_written:
            yield PartsRun(pieces, len(pieces) == len(row))
        else:
            yield from (piece for piece in pieces if isinstance(piece, StoredBlob))


class _Choice:
    """Chooses what is written again.

    Args:
        rows: bin to its parts.
        same: bin to its agenda, of those that have not changed.
        credit: see ``StoredParts``.

    Attributes:
        again: bin to the places of the stored parts that are written again.
        same: the agendas that are named.
        came: number of bytes of new parts.
        credit: number of bytes that may be written again.
    """

    def __init__(self, rows: Mapping[int, _Row], same: Mapping[int, StoredBlob], credit: int) -> None:
        self.again = defaultdict[int, set[int]](set)
        self.same = dict(same)
        self._rows = rows
        self.came = sum(piece.length for row in rows.values() for piece in row if isinstance(piece, NewPart))
        total = sum(piece.length for row in rows.values() for piece in row)
        self._most = int(MOST * total)
        self._highest = max(SHARE * self.came, self._most)
        self.credit = min(credit + SHARE * self.came, self._highest)
        if 2 * sum(map(_dead, rows.values())) >= total:
            self.credit = max(self.credit, self._most)
        self._left = self.credit

    def make(self) -> None:
        """Choose."""
        for bin, row in sorted(self._rows.items(), key=lambda one: -len(one[1])):
            if len(row) <= PARTS // 2 + 1:
                break
            self._take(bin, _tail(row), len(row) > PARTS)
        shares = {bin: _share(row) for bin, row in self._rows.items() if len(row) > 1}
        for bin, share in sorted(shares.items(), key=lambda one: -one[1]):
            if share < LEAST:
                break
            # One that no credit will ever suffice for is due when twice as much has come.
            self._take(bin, 0, share >= 2 * LEAST and sum(piece.length for piece in self._rows[bin]) > self._highest)
        self._leave_files()

    def _take(self, bin: int, start: int, is_due: bool) -> None:
        """Write the parts of a bin again from there on, if that is due or within the credit."""
        row, again = self._rows[bin], self.again[bin]
        places = [at for at in range(start, len(row)) if isinstance(row[at], StoredBlob) and at not in again]
        price = sum(row[at].length for at in places)
        if is_due or price <= self._left:
            again.update(places)
            self._left -= price

    def _leave_files(self) -> None:
        """Write again what the smallest files have, if too many are named."""
        named = Counter[str]()
        for at in self._named():
            named[at.file.name] += at.length
        most_left, left, price, gone = FILES // 2 - 1, len(named), 0, set[str]()
        most = max(self._left, self._most - self.credit + self._left)
        if left < FILES:  # with the one that is written
            return
        for file, length in sorted(named.items(), key=lambda one: (one[1], one[0])):
            # Two at least, so that they become fewer, though this one is added.
            if left <= most_left or (len(gone) > 1 and price + length > most):
                break
            gone.add(file)
            left, price = left - 1, price + length
        for bin, row in self._rows.items():
            self.again[bin].update(
                at for at, one in enumerate(row) if isinstance(one, StoredBlob) and one.file.name in gone
            )
        self.same = {bin: one for bin, one in self.same.items() if one.file.name not in gone}

    def _named(self) -> Iterable[StoredBlob]:
        for bin, row in self._rows.items():
            again = self.again[bin]
            yield from (one for at, one in enumerate(row) if isinstance(one, StoredBlob) and at not in again)
        yield from self.same.values()


def _tail(row: _Row) -> int:
    """Where the last parts begin that are to become one: half of ``PARTS``, and those before that are no longer."""
    start = len(row) - PARTS // 2
    length = sum(piece.length for piece in row[start:])
    while start > 1 and row[start - 1].length <= length:
        start -= 1
        length += row[start].length
    return start


def _share(row: _Row) -> float:
    """How much has come since the first part, as a share of that, in entries or in bytes."""
    first, then = row[0], row[1:]
    by_entries = sum(piece.entries for piece in then) / max(1, first.entries)
    return max(by_entries, sum(piece.length for piece in then) / max(1, first.length))


def _dead(row: _Row) -> float:
    """How many bytes of the first part later ones have likely replaced."""
    if not row:
        return 0.0
    return row[0].length * min(1.0, sum(piece.entries for piece in row[1:]) / max(1, row[0].entries))


def forgotten_files(files: Iterable[str], records: Collection[Checkpoint], incarnation: int) -> list[str]:
    """Those of these files that neither a kept record needs nor a later one will; sorted.

    Hosts may be writing the next snapshots meanwhile. These name parts in earlier files, also in ones of checkpoints
    that were given up. A file is forgotten if no kept record names it, and its number is not larger than that of the
    last record, or it is of an earlier incarnation. No snapshot that counts names it later on:

    - A worker that has a snapshot in the last record names then only what that names, and files of larger numbers.
    - A worker that has none there had ended, and writes no more; or it comes later, and begins with all of its states.
    - In another incarnation a worker begins with what a kept record names, or with all of its states.
    - What a late host of an earlier incarnation writes is part of no record.

    A file of a larger number may be named by snapshots that are on their way: it stays until a later record is kept.
    """
    needed = {file for record in records for file in record.files}
    return sorted(
        file for file in files if file not in needed and is_past(file.partition("/")[0], records, incarnation)
    )


def is_past(directory: str, records: Collection[Checkpoint], incarnation: int) -> bool:
    """Whether a directory of snapshots is of the last kept record, or before it."""
    epoch, _, attempt = directory.partition("-")
    is_parked, attempt = directory.startswith(PARKED), attempt.rpartition("-")[2]
    if not (is_parked or epoch.isdigit()) or not attempt.isdigit():
        return False
    last = max((record.epoch for record in records), default=0)
    is_old = not is_parked and int(attempt) == incarnation and int(epoch) <= last
    return int(attempt) < incarnation or is_old
