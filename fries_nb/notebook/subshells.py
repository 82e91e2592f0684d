"""Clicks that are handled while a cell runs.

A kernel handles messages of widgets in its main shell, after the cell that runs. JupyterLab and Notebook 7 send them to
a subshell instead, a thread beside it, where the kernel has them. But ipykernel 7.4 puts each message of a comm back
into the shell from which the comm last sent something; that of a view is the main shell. So our comms leave the choice
to the front end. Where there are no subshells, the view says that a click waits.
"""

from __future__ import annotations

from typing import Any

import ipywidgets


def answer_in_subshell(*widgets: ipywidgets.Widget) -> None:
    """Handle what a page sends of these widgets, and of those within them, in the shell that the page names."""
    for widget in widgets:
        if widget.comm is not None:
            widget.comm._reply_subshell_for = _as_asked
        answer_in_subshell(*getattr(widget, "children", ()))


def _as_asked(data: Any, asked: str | None) -> str | None:
    """The subshell of a message's header, in place of ``ipykernel.comm.comm.BaseComm``'s own choice."""
    return asked
