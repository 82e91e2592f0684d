"""Sink epochs: which files become part of the output, and when.

A commit marker, aligned like any other, makes every sink worker close its file and hand in its name. When the marker
has retired, these files together are a consistent cut and are committed as one epoch. The files of an epoch that was
cancelled stay for the next one, which covers them; the end of the run commits the rest.

>>> epochs = Epochs(interval_ns=10)
>>> epochs.start_clock(0)
>>> epochs.due(9), epochs.due(10), epochs.begin(10)
(False, True, 1)
>>> epochs.hand_in("scored", ("a",))
>>> epochs.hand_in("scored", ("b",), behind_cut=True)
>>> epochs.close(), epochs.close_rest()
(CommitFiles(epoch=1, files={'scored': ('a',)}), CommitFiles(epoch=2, files={'scored': ('b',)}))
"""

from __future__ import annotations

from fries_nb.controller.events import CommitFiles


class Epochs:
    """Files that sink workers have handed in and that are not committed yet. Epochs are numbered 1, 2, 3, ...

    A file counts once however often it is handed in: a sink may name a file of a cancelled epoch again in the next.
    """

    def __init__(self, interval_ns: int | None) -> None:
        self.number = 0
        self._interval_ns = interval_ns
        self._due_ns: int | None = None
        self._waiting: list[tuple[str, str]] = []
        self._behind_cut: list[tuple[str, str]] = []
        self._known: set[tuple[str, str]] = set()

    def start_clock(self, now_ns: int) -> None:
        """The first epoch is due one interval from now; never without an interval."""
        self._due_ns = None if self._interval_ns is None else now_ns + self._interval_ns

    def due(self, now_ns: int) -> bool:
        """It is time for a commit marker."""
        return self._due_ns is not None and now_ns >= self._due_ns

    def begin(self, now_ns: int) -> int:
        """A commit marker starts: the number of its epoch. The number of a cancelled epoch is not used again."""
        self.start_clock(now_ns)
        self.number += 1
        return self.number

    def hand_in(self, sink: str, files: tuple[str, ...], behind_cut: bool = False) -> None:
        """Keep files of a sink worker; ``behind_cut`` if it closed them after the marker that is still on its way."""
        for file in files:
            if (sink, file) not in self._known:
                self._known.add((sink, file))
                (self._behind_cut if behind_cut else self._waiting).append((sink, file))

    def cancel(self, now_ns: int) -> None:
        """The epoch's marker was cancelled: all that was handed in waits for the next one, which is due at once."""
        self._waiting, self._behind_cut = self._waiting + self._behind_cut, []
        self._due_ns = now_ns

    def close(self) -> CommitFiles | None:
        """The epoch's marker has retired: what to commit, ``None`` if that is nothing."""
        closed, self._waiting, self._behind_cut = self._waiting, self._behind_cut, []
        by_sink: dict[str, tuple[str, ...]] = {}
        for sink, file in closed:
            by_sink[sink] = (*by_sink.get(sink, ()), file)
        return CommitFiles(self.number, by_sink) if closed else None

    def close_rest(self) -> CommitFiles | None:
        """All workers have ended: what is left to commit, as an epoch of its own."""
        self.number += 1
        return self.close()
