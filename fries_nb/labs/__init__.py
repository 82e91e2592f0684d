"""The checks of the teaching labs in ``notebooks/labs``: each gives a hint, then says what is wrong with an answer.

- ``answers``: what every check needs: whether there is an answer, in which form, what has to be run first; the hint on
  the first wrong one, the explanation of others, and a picture of those that name operators
- ``coverings``: minimal covering sub-DAGs, components, heads and pruning
- ``interleavings``: seeded runs in memory, their traces and precedence graphs
- ``prunings``: which one-to-many operators are pruned, and counter-examples to the rule as printed
- ``progress_board``: rows and tokens step by step, and the frontier to follow
- ``lab_questions``: questions with one right answer, a number or a choice
- ``queues``: capacities, queues and latencies
- ``rankings``: schedulers compared under a load
- ``recoveries``: hosts that are killed during a change, and what comes out
- ``latency_remedies``: what to do about a latency that is too high, in order
- ``loop_endings``: rules of termination, played over all orders of events
- ``students``: the students' versions, without the solutions
"""

from __future__ import annotations

from fries_nb.labs.answers import Passed, needs

__all__ = ["Passed", "needs"]
