"""Dataflows on Spark whose operators are replaced while they run.

The house, each layer importing only from layers to its right (``tests/test_layers.py`` checks it):

    notebook | experiments | __main__, commands  ->  run  ->  spark | testing  ->  controller | worker  ->  scheduling
        ->  planning  ->  messages, trace  ->  dataflow | progress  ->  errors

``audit`` imports only dataflow, trace and errors: the judge shares no code with the accused. ``workloads`` imports only
this package's public names. Only ``spark`` imports pyspark, only ``notebook`` imports IPython.
"""

from __future__ import annotations
