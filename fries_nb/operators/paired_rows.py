"""The comparison of the rows of an operator with those of its shadow, which processes the same rows beside it.

Both outputs come here. Rows belong together that derive from one source tuple: of these, equal ones are paired first,
whatever their order, since the children of a tuple may pass several workers; what is left is paired in order of
arrival. Whether more children are to come is not known, so rows without an equal partner wait, and count for the time
being. Only when too many wait, those of the oldest tuples count for good.

>>> found = ComparedRows()
>>> for identity, is_shadow, p in [(1, False, 1), (1, True, 1), (2, False, 2), (2, True, 3)]:
...     found.add(identity, is_shadow, {"p": p})
>>> found.add(3, False, {"p": 4})
>>> now = found.so_far()
>>> now.same, now.differ, now.columns, now.examples, now.waiting
(1, 1, {'p': 1}, [(2, {'p': 2}, {'p': 3})], 1)
>>> for identity in range(4, 40):
...     found.add(identity, False, {"p": 1, "q": 1})
...     found.add(identity, True, {"p": 2, "q": 1 + (identity == 30)})
>>> len(found.so_far().examples), found.so_far().examples[-1]
(21, (30, {'p': 1, 'q': 1}, {'p': 2, 'q': 2}))
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Row
from fries_nb.operators.steps import Behind, Step

MOST_WAITING = 20_000
"""Number of rows that wait for their partners at most; the rows of the oldest source tuple then count as they are."""
EXAMPLES = 20
"""Number of examples that are kept: the first ones; and the first in which a column differs, whenever it comes."""

Values = dict[str, Any]


@dataclass(slots=True)
class ComparedRows:
    """What was found; the state of a comparison.

    Attributes:
        same: number of pairs of equal rows.
        differ: number of pairs that differ.
        only_old, only_new: number of rows that only the operator, and only its shadow, has given.
        columns: column to the number of pairs that differ in it.
        examples: the first pairs that differ, and rows that only one of both has given, each with the identity.
        waiting: number of rows that wait for a partner.
        rows: identity to the rows of the operator, and of its shadow, that have no equal partner yet.
    """

    same: int = 0
    differ: int = 0
    only_old: int = 0
    only_new: int = 0
    columns: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[int, Values | None, Values | None]] = field(default_factory=list)
    waiting: int = 0
    rows: dict[int, tuple[list[Values], list[Values]]] = field(default_factory=dict)

    def add(self, identity: int, is_shadow: bool, row: Values) -> None:
        """Take a row of the operator, or of its shadow, which derives from the source tuple of this identity."""
        sides = self.rows.setdefault(identity, ([], []))
        mine, others = sides[is_shadow], sides[not is_shadow]
        for place, other in enumerate(others):
            if not unlike(row, other):
                del others[place]
                self.same += 1
                self.waiting -= 1
                break
        else:
            mine.append(row)
            self.waiting += 1
        if not (mine or others):
            del self.rows[identity]
        while self.waiting > MOST_WAITING:
            self._settle(next(iter(self.rows)))

    def _settle(self, identity: int, is_final: bool = True) -> None:
        """Pair the rows that are left of a source tuple; those that have a partner alone if it is not final."""
        for old, new in zip_longest(*self.rows.pop(identity)):
            is_first = False
            if old is not None and new is not None:
                self.waiting -= 2
                self.differ += 1
                columns = unlike(old, new)
                is_first = any(column not in self.columns for column in columns)
                for column in columns:
                    self.columns[column] = self.columns.get(column, 0) + 1
            elif is_final:
                self.waiting -= 1
                self.only_old += new is None
                self.only_new += old is None
            if is_first or (len(self.examples) < EXAMPLES and (is_final or (old is not None and new is not None))):
                self.examples.append((identity, old, new))

    def so_far(self) -> ComparedRows:
        """The same, in which pairs that may still get other partners count, and without rows that wait."""
        told = replace(self, columns=dict(self.columns), examples=list(self.examples), rows=dict(self.rows))
        for identity in self.rows:
            told._settle(identity, is_final=False)
        return told


def unlike(old: Values, new: Values) -> list[str]:
    """The columns in which two rows differ; a NaN is like another one."""
    names = dict.fromkeys((*old, *new))
    return [name for name in names if name not in old or name not in new or not _is_like(old[name], new[name])]


def _is_like(one: Any, other: Any) -> bool:
    return bool(one == other) or bool(one != one and other != other)


def comparison_step(instance: Instance, behind: Behind) -> Step:
    """Takes rows of both sides; nothing follows."""
    state, side = instance.state, behind.side
    if state.get(None) is None:
        state.put(None, ComparedRows())

    def step(row: Row) -> None:
        found: ComparedRows = state.get(None)
        found.add(row.columns.transactions()[row.index], side() != "left", dict(row))

    return step
