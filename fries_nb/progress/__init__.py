"""Timestamp tokens: what can still arrive at an operator, known exactly and without asking it.

Values and rules only: no socket, thread or clock, and nothing of workers or Spark.

- ``times``: versions, row times and rounds, compared component by component; frontiers of a multiset of times
- ``progress_graph``: locations, what a path does to a time, and the net effect of an atomic step on pointstamps' counts
- ``tracker``: from counts to the frontiers of the operators that listen
- ``exchange``: whole steps, numbered, from each host to all others; hosts join and leave
- ``agenda``: what is to happen for a key when a time can no longer arrive
- ``tokens``: the right to produce output at a time; kept in bins, undone with a tuple, saved with a checkpoint
"""
