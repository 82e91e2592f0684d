"""Handles clicks while a cell runs.

A kernel handles widget messages in its main shell, after the running cell. JupyterLab and Notebook 7 send them to a
subshell instead, a thread beside the main shell, if the kernel supports it. ipykernel 7.4, however, moves each message
of a comm to the shell from which the comm last sent something, which for a view is the main shell. This module
overrides that for our comms, so that the front end decides. Without subshells the view shows that a click has to wait.
"""

from __future__ import annotations

from typing import Any

import ipywidgets


def answer_in_subshell(*widgets: ipywidgets.Widget) -> None:
    """Let messages of these widgets, and of their children, be handled in the shell that the front end names."""
    for widget in widgets:
        if widget.comm is not None:
            widget.comm._reply_subshell_for = _as_asked
        answer_in_subshell(*getattr(widget, "children", ()))


def _as_asked(data: Any, asked: str | None) -> str | None:
    """The subshell named in the message, in place of the choice of ``ipykernel.comm.comm.BaseComm``."""
    return asked
