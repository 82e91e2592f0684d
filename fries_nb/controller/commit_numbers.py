"""Commits of sinks: which files become output, and when.

A commit marker, aligned like any other, makes every sink worker close its file and report its name. When all workers
have acknowledged the marker, these files form a consistent cut and are committed together; those of a checkpoint once
its record is kept. The files of an aborted commit are part of the next one; the end of the run commits the rest.

>>> epochs = CommitNumbers(interval_ns=10)
>>> epochs.start_clock(0)
>>> epochs.due(9), epochs.due(10), epochs.begin(10)
(False, True, 1)
>>> epochs.hand_in("scored", ("a",))
>>> epochs.hand_in("scored", ("b",), behind_cut=True)
>>> epochs.close(); epochs.reopen(); epochs.close()
{'scored': ('a',)}
{'scored': ('a', 'b')}
"""

from __future__ import annotations


class CommitNumbers:
    """Files that sink workers have reported and that are not committed yet. Commits are numbered 1, 2, 3, ...

    A file that is reported repeatedly counts once: a sink may report a file of a cancelled commit again in the next.

    Args:
        interval_ns: nanoseconds between two commits; ``None`` for none before the end.
        number: number of the last commit of an earlier incarnation or run.

    Attributes:
        number: number of the last commit that was begun; numbers are not reused.
    """

    def __init__(self, interval_ns: int | None, number: int = 0) -> None:
        self.number = number
        self._interval_ns = interval_ns
        self._due_ns: int | None = None
        self._waiting: list[tuple[str, str]] = []
        self._behind_cut: list[tuple[str, str]] = []
        self._closed: list[tuple[str, str]] = []
        self._known: set[tuple[str, str]] = set()

    def start_clock(self, now_ns: int) -> None:
        """Schedule the next commit one interval from now; never without an interval."""
        self._due_ns = None if self._interval_ns is None else now_ns + self._interval_ns

    def due(self, now_ns: int) -> bool:
        """Whether it is time for a commit marker."""
        return self._due_ns is not None and now_ns >= self._due_ns

    def begin(self, now_ns: int) -> int:
        """Begin a commit; returns its number."""
        self.start_clock(now_ns)
        self.number += 1
        return self.number

    def hand_in(self, sink: str, files: tuple[str, ...], behind_cut: bool = False) -> None:
        """Add the files of a sink worker to the next commit.

        Args:
            sink: name of the sink, or of an operator with dead letters.
            files: names of files; known ones are ignored.
            behind_cut: whether they were closed after the marker in flight, and belong to the commit after its own.
        """
        for file in files:
            if (sink, file) not in self._known:
                self._known.add((sink, file))
                (self._behind_cut if behind_cut else self._waiting).append((sink, file))

    def cancel(self, now_ns: int) -> None:
        """Cancel the commit: its files are part of the next one, which is due at once."""
        self._waiting, self._behind_cut = self._waiting + self._behind_cut, []
        if self._interval_ns is not None:
            self._due_ns = now_ns

    def close(self) -> dict[str, tuple[str, ...]]:
        """The files of the commit's cut, by sink; called when its marker is complete."""
        self._closed, self._waiting, self._behind_cut = self._waiting, self._behind_cut, []
        self._known = {*self._closed, *self._waiting}  # a worker reports a file again in its next report, or never
        by_sink: dict[str, tuple[str, ...]] = {}
        for sink, file in self._closed:
            by_sink[sink] = (*by_sink.get(sink, ()), file)
        return by_sink

    def reopen(self) -> None:
        """Return the files closed last to the next commit, since theirs was aborted, ahead of later files."""
        self._waiting, self._closed = self._closed + self._waiting, []

    def forget(self) -> None:
        """Discard files that were handed in and not committed, since the hosts are lost and write them again."""
        self._waiting, self._behind_cut, self._closed = [], [], []
