"""The rivals of benchmarks and experiments, each written as its own users would write it.

This is the one place outside ``spark`` that imports pyspark: a rival that went through our own session code, sources
and sinks would be no rival. What is imported of fries_nb is what both sides call, and how rivals are measured.
"""
