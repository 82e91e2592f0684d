"""The notebook interface: magics that declare, run, change and stop a dataflow. Only this room imports IPython.

- ``extension``: ``%load_ext fries_nb`` and ``%unload_ext fries_nb``, and completion behind the magics
- ``magics``, ``questions``, ``differences``: the magics with effects, those that only query, and those on edited cells
- ``options``, ``cells``: parsing of a magic's line and execution of a cell's body
- ``known``, ``waits``, ``endings``: the dataflows and runs of the notebook, how they start and how they end
- ``summaries``, ``statuses``, ``cell_outputs``: text output of cells
- ``run_display``, ``run_moment``, ``dashboard``, ``form``, ``widgets``, ``plots``, ``static_pictures`` and the panels:
  the live view
"""

from __future__ import annotations
