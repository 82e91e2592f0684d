"""The notebook interface: magics that declare, run, change and stop a dataflow. Only this room imports IPython.

- ``extension``: ``%load_ext fries_nb`` and ``%unload_ext fries_nb``
- ``magics``, ``questions``: the magics with effects, and those that only query
- ``options``, ``assignments``, ``cells``: parsing of a magic's line and execution of a cell's body
- ``completion``: tab completion behind the magics
- ``known``: the dataflows and runs of the notebook
- ``starts``, ``endings``, ``leftovers``: starting and ending runs, and cleaning up after killed kernels
- ``summaries``, ``statuses``, ``cell_outputs``: text output of cells
- ``run_display``, ``dashboard``, ``widgets``, ``plots``, ``form``, ``function_sources``, ``static_pictures``: the live
  view
"""

from __future__ import annotations
