"""The checks of the teaching labs in ``notebooks/labs``: each gives a hint, then says what is wrong with an answer.

A check of a right answer returns ``Passed``, which a cell shows: what was right and why, with a picture where there is
one.

- ``answers``: what every check needs: whether there is an answer, in which form, what has to be run first; the hint on
  the first wrong one, the explanation of others, and a picture of those that name operators
- ``coverings``: minimal covering sub-DAGs, components, heads and pruning, and counter-examples to the rule as printed
- ``interleavings``: seeded runs in memory, their traces and precedence graphs
- ``progress_board``: rows and tokens step by step, and the frontier to follow
- ``rankings``: capacities, queues and latencies, and schedulers compared under a load
- ``recoveries``: hosts that are killed during a change, and what comes out
- ``latency_remedies``: what to do about a latency that is too high, in order
- ``loop_endings``: rules of termination, played over all orders of events
- ``students``: the students' versions, without the solutions
"""

from __future__ import annotations

from fries_nb.labs.answers import Passed, needs

__all__ = ["Passed", "needs"]
