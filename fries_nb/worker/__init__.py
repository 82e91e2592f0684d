"""The workers' side of the protocol, without I/O: events go in, instructions come out.

``worker.Worker`` is the entry point; ``events`` defines events and instructions. Two shells drive it: the hosts of a
Spark run, and the seeded cluster of ``simulation``.
"""
