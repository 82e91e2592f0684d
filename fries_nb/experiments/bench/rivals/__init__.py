"""The rivals, each written as its own users would write it: plain PySpark, a plain loop, bytewax, a polled flag.

This is the one place outside ``spark`` that imports pyspark: a rival that went through our own session code, sources
and sinks would be no rival. Nothing here imports a room of fries_nb but the functions that both sides call.
"""
