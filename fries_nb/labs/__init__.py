"""The checks of the teaching labs in ``notebooks/labs``: each says what is likely wrong with an answer, never just no.

- ``answers``: what every check needs: whether there is an answer, in which form, and what has to be run first
- ``coverings``: minimal covering sub-DAGs, components, heads and pruning
- ``interleavings``: seeded runs in memory, their traces and precedence graphs
"""

from __future__ import annotations

from fries_nb.labs.answers import Passed, needs

__all__ = ["Passed", "needs"]
