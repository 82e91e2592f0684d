"""The driver's side of the protocol, without I/O: maps events to instructions.

``Controller`` is the entry point; ``events`` defines events and instructions. Both the Spark driver, with threads and
sockets, and the seeded cluster of ``simulation`` run it.
"""
