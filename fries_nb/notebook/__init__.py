"""The notebook interface: magics that declare, run, change and stop a dataflow. Only this room imports IPython.

- ``extension``: ``%load_ext fries_nb``, completion behind the magics, and the display of runs
- ``magics``, ``questions``: the magics with effects, and those that only query
- ``options``, ``cells``: parsing of a magic's line, execution of a cell's body, and its output after it has ended
- ``known``, ``waits``: the dataflows and runs of the notebook, how they start and how they end
- ``summaries``, ``statuses``: text output of cells
- ``dashboard``, ``panels``, ``form``, ``widgets``, ``plots``, ``static_pictures`` and other panels: the live view
"""

from __future__ import annotations
