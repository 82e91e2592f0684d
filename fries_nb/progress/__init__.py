"""Timestamp tokens: what can still arrive at an operator, known exactly and without asking it.

Values and rules only: no socket, thread or clock, and nothing of workers or Spark.

- ``times``: versions, row times and rounds, compared component by component
- ``path_summary``: what a path through the dataflow does to a time
- ``times``: frontiers, and the frontier of a multiset of times
- ``change_batch``: the net effect of an atomic step on the counts of pointstamps
- ``progress_graph``: locations, and the minimal summaries from them to an operator
- ``tracker``: from counts to the frontiers of the operators that listen
- ``exchange``: whole steps, numbered, from each host to all others; hosts join and leave
- ``waiting_changes``: what a host keeps to itself, as long as it can advance no frontier
- ``exchange``: what a worker counts, and when
- ``agenda``: what is to happen for a key when a time can no longer arrive
- ``token_keepers``: keys that hold tokens, for which the frontier matters whenever it advances
- ``token_handles``: tokens as users' functions have them
- ``tokens``: the right to produce output at a time; kept in bins, undone with a tuple, saved with a checkpoint
"""
