"""Names of part files, which identify their writer, so that a commit can refuse files of others and of older attempts.

>>> name = PartName("r1", "scored", 0, incarnation=2, serial=7, columns="c0ffee00")
>>> str(name)
'part-r1-scored-00000-0002-000007-c0ffee00.parquet'
>>> PartName.read("/out/_fries/pending/" + str(name)) == name
True
>>> str(name._replace(epoch=5))
'part-r1-scored-00000-0002-e5-000007-c0ffee00.parquet'
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import pyarrow as pa

from fries_nb.errors import SinkError
from fries_nb.storage.locations import join, name_at

_NAME = re.compile(r"part-(\w+)-(\w+)-(\d{5})-(\d{4,})(?:-e(\d+))?-(\d{6,})-([0-9a-f]{8})\.parquet")


_LONGEST = 80
"""Maximum length of a user-defined name within a file name, which is limited to 255 bytes."""


class PartName(NamedTuple):
    """A part written in ``run`` by worker ``worker`` of ``sink``; ``columns`` is the fingerprint of its schema.

    ``epoch`` is that of the topology in which the worker was added.
    """

    run: str
    sink: str
    worker: int
    incarnation: int
    serial: int
    columns: str
    epoch: int = 1

    def __str__(self) -> str:
        epoch = f"-e{self.epoch}" if self.epoch > 1 else ""
        return (
            f"part-{word(self.run)}-{word(self.sink)}-{self.worker:05d}-{self.incarnation:04d}{epoch}-{self.serial:06d}"
            f"-{self.columns}.parquet"
        )

    @staticmethod
    def read(file: str) -> PartName:
        """Parse the name of a file in any directory.

        Raises:
            SinkError: the name is not that of a part.
        """
        found = _NAME.fullmatch(name_at(file))
        if found is None:
            raise SinkError(f"{file!r} is not the name of a part file; a commit takes what sinks have closed")
        run, sink, worker, incarnation, epoch, serial, columns = found.groups()
        return PartName(run, sink, int(worker), int(incarnation), int(serial), columns, int(epoch or 1))


def word(name: str) -> str:
    """The name for use in a file name: characters except letters, digits and underscores replaced, cut to length."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:_LONGEST]


def fingerprint(schema: pa.Schema) -> str:
    """Eight hexadecimal digits that identify a schema."""
    return hashlib.sha256(str(schema.remove_metadata()).encode()).hexdigest()[:8]


def pending(path: str) -> str:
    """The directory of uncommitted files in a target; Spark ignores directories that begin with an underscore."""
    return join(path, "_fries", "pending")
