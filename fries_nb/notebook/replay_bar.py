"""The replay of a change in the picture of its dataflow: message and markers travel again, as slowly as one likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets

from fries_nb.notebook.widgets import DagView, answer_in_subshell, said
from fries_nb.report.change_replay import ChangeReplay
from fries_nb.report.replay_steps import ReplayStep

STEP_MS = 1_500
"""Milliseconds for which a step is shown while the replay runs by itself."""


class ReplayBar(ipywidgets.VBox):
    """Controls of a replay: play and pause, a slider over its steps, and what happens in the step. Empty without one.

    Args:
        view: the picture.
        ended: called when the user has closed the replay.
    """

    def __init__(self, view: DagView, ended: Callable[[], None]) -> None:
        self._view = view
        self._ended = ended
        self._steps: Sequence[ReplayStep] = ()
        self._last = 0
        self.play = ipywidgets.Play(min=0, interval=STEP_MS, show_repeat=False)
        self.slider = ipywidgets.IntSlider(min=0, description="Step", readout=False)
        self.slider.layout.flex = "1 1 200px"
        self.shut = ipywidgets.Button(description="Close", tooltip="End the replay, and show the last plan again")
        self.shut.layout.width = "80px"
        self.words = ipywidgets.HTML()
        self._link = ipywidgets.jslink((self.play, "value"), (self.slider, "value"))
        self.play.observe(lambda change: self._show(change["new"]), names="value")
        self.shut.on_click(lambda _: self.end())
        self._row = ipywidgets.HBox([self.play, self.slider, self.shut])
        self._row.layout.flex_flow = "row wrap"
        super().__init__([])
        answer_in_subshell(self._row)

    @property
    def is_open(self) -> bool:
        """Whether a replay is shown."""
        return bool(self._steps)

    def begin(self, replay: ChangeReplay) -> None:
        """Show a replay from its first step on, playing."""
        self._steps, self._last = replay.steps, 0
        self.play.max = self.slider.max = len(self._steps) - 1
        self.play.value = 0
        self.children = [self._row, self.words]
        self._show(0)
        self._view.look_at()  # its button is in a tab below
        self.play.playing = True

    def end(self) -> None:
        """End the replay."""
        if self._steps:
            self._steps, self.children = (), []
            self.play.playing = False
            self._ended()

    def _show(self, number: int) -> None:
        if not self._steps:
            return  # a message that came after the end
        if number < self._last or number + 1 == len(self._steps):
            self.play.playing = False  # else the page would go on from a step to which the reader has gone back
        self._last = number
        step = self._steps[number]
        self.words.value = said(f"{number + 1} of {len(self._steps)}: {step.words}")
        self._view.show_states(step.states, step.travelled, step.edges)
