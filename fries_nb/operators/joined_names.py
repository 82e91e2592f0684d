"""The names under which a join passes on the columns of both sides: a column keeps the first one.

Columns that both sides have get suffixes, so a name depends on what both sides have. That may grow while rows flow,
and a column that has left as ``n`` would be ``n_x`` from then on, and ``n`` missing, or another side's. So names are
decided once, and are part of snapshots; what would need another one is refused.

>>> names = JoinedNames("J")
>>> names.settle({"k": "k", "n": "n"}, {"k": "k", "b": "b"})
>>> names.of("right", ("b", "k"))
('b', 'k')
>>> names.settle({"k": "k", "n": "n_x"}, {"k": "k", "n": "n_y"})
Traceback (most recent call last):
fries_nb.errors.DeclarationError: J has passed on 'n' of the left side as 'n', which would be 'n_x' from now on, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fries_nb.errors import DeclarationError

OTHER = {"left": "right", "right": "left"}


class JoinedNames:
    """The names of one worker of a join; of a join with a table the table is the right side."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        # side to each of its columns and its name behind the join; an empty one as long as it is not decided
        self.known: dict[str, dict[str, str]] = {}
        self.is_plain = False  # whether columns of the right side are known, and all have their own name
        self._made: dict[tuple[str, Sequence[str]], tuple[str, ...]] = {}

    def of(self, side: str, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The names of columns of a side; its own for one that is not known."""
        made = self._made.get((side, columns))
        if made is None:
            known = self.known.get(side, {})
            made = self._made[side, columns] = tuple([known.get(column) or column for column in columns])
        return made

    def columns(self, side: str) -> tuple[str, ...]:
        """The columns of a side that are known."""
        return tuple(self.known.get(side, ()))

    def note(self, side: str, columns: Sequence[str]) -> None:
        """Note columns of a side whose names are not decided, since nothing is known of the other side."""
        known = self.known.setdefault(side, {})
        for column in columns:
            known.setdefault(column, "")

    def settle(self, left: Mapping[str, str], right: Mapping[str, str]) -> None:
        """Decide names, or confirm them.

        Raises:
            DeclarationError: a column has had another one.
        """
        for side, names in (("left", left), ("right", right)):
            known = self.known.setdefault(side, {})
            for column, name in names.items():
                before = known.get(column) or name
                known[column] = before
                if before != name:
                    raise DeclarationError(
                        f"{self._operator} has passed on {column!r} of the {side} side as {before!r}, which "
                        f"would be {name!r} from now on, since the {OTHER[side]} side has got a column of that name; "
                        "expected another name for it in front of the join",
                        self._operator,
                    )
        self._made.clear()
        self._see_plain()

    def load(self, known: Mapping[str, Mapping[str, str]]) -> None:
        """Go on with the names of a snapshot; in a trial with those of the worker, which may decide more meanwhile."""
        self.known = {side: dict(names) for side, names in dict(known).items()}
        self._made.clear()
        self._see_plain()

    def _see_plain(self) -> None:
        right = self.known.get("right", {})
        self.is_plain = bool(right) and all(name == own for own, name in right.items())
