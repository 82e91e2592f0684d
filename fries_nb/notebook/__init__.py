"""The face in a notebook: magics that declare, run, change and stop a dataflow. The only room that knows IPython.

extension: what ``%load_ext fries_nb`` does; magics: the magics; cells: the body of a definition; assignments: the line
of a change; known: which flows and runs there are; summaries: what a cell shows.
"""

from __future__ import annotations
