"""The driver's side of the protocol, without I/O: an event in, instructions out.

``Controller`` is the entry point; ``events`` defines events and instructions. Spark's driver, with threads and sockets,
and the seeded cluster of ``testing`` both run it.
"""
