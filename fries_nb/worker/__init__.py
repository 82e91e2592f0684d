"""The executors' side of a run, free of input and output: events go in, instructions come out.

``worker.Worker`` is the one entry; ``events`` names what it hears and what it says. The hosts of a Spark run and the
seeded cluster of ``testing`` are two shells over it.
"""
