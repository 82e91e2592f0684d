"""Scopes: the loops around an operator. A loop's head and body are inside of its scope.

>>> outer = ROOT.nest("L")
>>> inner = outer.nest("M")
>>> inner.level, str(inner), inner.unnest() == outer, inner.is_inner_of(outer), outer.is_outer_of(outer)
(2, 'L/M', True, True, False)

The scopes of a program are a tree, whose root is outside of all loops. Two loops in sequence have the same level, and
different scopes:

>>> ROOT.nest("A") == ROOT.nest("B")
False
"""

from __future__ import annotations

from dataclasses import dataclass

from fries_nb.errors import DataflowError


@dataclass(frozen=True, slots=True)
class StreamScope:
    """The loops around a place in a dataflow, by name, outermost first (FLIP-15)."""

    loops: tuple[str, ...] = ()

    @property
    def level(self) -> int:
        """Number of loops."""
        return len(self.loops)

    def nest(self, loop: str) -> StreamScope:
        """The scope of a loop at this place."""
        return StreamScope((*self.loops, loop))

    def unnest(self) -> StreamScope:
        """The scope around the innermost loop.

        Raises:
            DataflowError: it is the root scope.
        """
        if not self.loops:
            raise DataflowError("the root scope is in no loop, so nothing can be left from it")
        return StreamScope(self.loops[:-1])

    def is_inner_of(self, other: StreamScope) -> bool:
        """Whether it lies inside of another scope, from which it differs."""
        return self.level > other.level and self.loops[: other.level] == other.loops

    def is_outer_of(self, other: StreamScope) -> bool:
        """Whether another scope lies inside of it."""
        return other.is_inner_of(self)

    @property
    def described(self) -> str:
        """The scope in words, for messages.

        >>> ROOT.nest("L").nest("M").described, ROOT.described
        ("loop 'L/M'", 'the root scope')
        """
        return f"loop {str(self)!r}" if self.loops else str(self)

    def __str__(self) -> str:
        return "/".join(self.loops) or "the root scope"


ROOT = StreamScope()
"""Outside of all loops."""
