"""The keys of an operator that hold tokens, whose function is called whenever the frontier has advanced.

>>> from fries_nb.progress.change_batch import ChangeBatch
>>> book = TokenBook("W", ChangeBatch())
>>> keepers = TokenKeepers(book)
>>> mark = book.mark()
>>> with book.bound():
...     token, other = book.keep(bin=3, time=(0, 4)), book.keep(bin=3, time=(0, 6))
>>> keepers.add("c7", mark)
>>> keepers.advance()
>>> keepers.take(), keepers.is_due                  # once for a key, with the right to its earliest token
(((0, 4), 'c7'), False)
>>> with book.bound():
...     token.drop()
...     other.drop()
>>> keepers.advance()
>>> keepers.is_due
False
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fries_nb.progress.change_batch import ChangeBatch
from fries_nb.progress.times import Time, moment, rounds
from fries_nb.progress.token_handles import TokenId
from fries_nb.progress.tokens import TokenBook

__all__ = ["ChangeBatch", "SavedKeepers", "TokenKeepers"]

SavedKeepers = dict[int, list[tuple[Any, int]]]
"""Bin to its keys, each with the number of a token."""


class TokenKeepers:
    """The keys that hold tokens of one operator at one worker.

    Args:
        book: the tokens.
    """

    def __init__(self, book: TokenBook) -> None:
        self._book = book
        self._tokens: dict[Any, dict[TokenId, None]] = {}
        self._due: list[tuple[Time, Any]] = []

    def add(self, key: Any, mark: int) -> None:
        """Record that a key holds the tokens made since a mark; those dropped, or undone, are forgotten later."""
        made = self._book.made_since(mark)
        if made:
            self._tokens.setdefault(key, {}).update(dict.fromkeys(made))

    def advance(self) -> None:
        """The frontier has advanced: every key that holds tokens is due, once for those of the same rounds."""
        self._due = []
        self._make_due(list(self._tokens))

    def _make_due(self, keys: Iterable[Any]) -> None:
        for key in keys:
            times = {id: self._book.times[id] for id in self._tokens[key] if id in self._book.times}
            if not times:
                del self._tokens[key]
                continue
            self._tokens[key] = dict.fromkeys(times)
            least: dict[tuple[int, ...], Time] = {}
            for time in times.values():
                known = least.get(rounds(time), time)
                least[rounds(time)] = (max(known[0], time[0]), min(moment(known), moment(time)), *rounds(time))
            self._due += [(time, key) for time in least.values()]
        self._due.sort(key=lambda due: due[0], reverse=True)

    @property
    def is_due(self) -> bool:
        """Whether a key is due."""
        return bool(self._due)

    def take(self) -> tuple[Time, Any]:
        """The next key that is due, with a time at which rows can be sent with any of its tokens, of these rounds."""
        return self._due.pop()

    def saved(self) -> SavedKeepers:
        """The keys that hold tokens, by bin."""
        found: SavedKeepers = {}
        for key, tokens in self._tokens.items():
            for id in tokens:
                if id in self._book.times:
                    found.setdefault(id.bin, []).append((key, id.number))
        return found

    def load(self, bin: int, keys: Iterable[tuple[Any, int]]) -> None:
        """Add the saved keys of a bin."""
        for key, number in keys:
            self._tokens.setdefault(key, {})[TokenId(bin, number)] = None

    # ---- bins that move

    def release(self, saved: SavedKeepers) -> bool:
        """Forget these keys, whose bins move; returns whether one of them was due."""
        keys = {key for some in saved.values() for key, _ in some}
        was_due = any(key in keys for _, key in self._due)
        self._due = [due for due in self._due if due[1] not in keys]
        for key in keys:
            self._tokens.pop(key, None)
        return was_due

    def receive(self, saved: SavedKeepers, are_due: bool) -> None:
        """Add the keys of bins that have moved here, which are due at once or when the frontier advances."""
        for bin, keys in saved.items():
            self.load(bin, keys)
        if are_due:
            self._make_due({key: None for keys in saved.values() for key, _ in keys})
