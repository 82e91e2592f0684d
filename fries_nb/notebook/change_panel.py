"""The panel of changes: all changes of a run, and of the selected one where its time went, what it changed, its replay.

Buttons work in threads, since the kernel handles further messages only when the handler has returned.

What the panel of changes says in words: a row for each change, and why a change has not taken effect yet.

The replay of a change in the picture of its dataflow: message and markers travel again, as slowly as one likes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import ipywidgets

from fries_nb.changes.change import Change
from fries_nb.changes.change_replay import ChangeReplay, row_versions
from fries_nb.errors import FriesError
from fries_nb.notebook import summaries
from fries_nb.notebook.panels import DagPanel, RunMoment, TableView, clock_time
from fries_nb.notebook.rollout_panel import RolloutPanel
from fries_nb.notebook.statuses import in_the_way, progress_text
from fries_nb.notebook.widgets import DagView, answer_in_subshell, words_html
from fries_nb.report.change_rows import function_parts, time_parts
from fries_nb.run import Run
from fries_nb.words import milliseconds

COLUMNS = (
    "change", "operators", "scheduler", "requested", "outcome", "#delay", "#plan", "#prepare", "#commit", "by"
)  # fmt: skip


def change_row(change: Change) -> Sequence[str]:
    """The cells of a change's row, by ``COLUMNS``."""
    plan = change.plan
    head = (change.id, ", ".join(sorted(plan.targets)), plan.scheduler, clock_time(change.requested_s))
    if not change.done:
        return (*head, "under way", "", "", "", "", change.origin)
    result = change.result(0)
    parts = (result.plan_ms, result.prepare_ms, result.commit_ms)
    # A change that did not take effect has no delay.
    times = [milliseconds(ms) if result.outcome == "done" else "" for ms in (result.delay_ms, *parts)]
    return (*head, result.outcome.replace("_", " "), *times, change.origin)


def why_waits(moment: RunMoment, change: Change) -> str:
    """Why a change that is under way has not taken effect yet: the first reason that is known, in words."""
    run, targets = moment.run, sorted(change.plan.targets)
    if run.state != "running":
        return f"the run is {run.state}"
    if blocked := in_the_way(run, targets):
        return f"it waits, since {next(iter(blocked.values()))}"
    for loop in moment.loops:
        if loop.change == change.id:
            return f"it waits until the loop {loop.name} is empty: {loop.waiting:,} rows wait there, {loop.phase}"
    progress = change.progress()
    if progress is not None and progress.begun and (progress.prepared < progress.workers or moment.topology.is_idle):
        return progress_text(progress)
    for earlier in moment.changes:
        if earlier is change:
            break
        if not earlier.done:
            return f"it waits for change {earlier.id} of {', '.join(sorted(earlier.plan.targets))}, which is under way"
    if not moment.topology.is_idle:
        return "it waits for the rescale that is under way"
    if not any(operator.processed for operator in moment.last.operators.values()):
        return "it waits for the first tuples, on which it is rehearsed"
    return "it is about to be prepared"


STEP_MS = 1_500
"""Milliseconds for which a step is shown while a replay runs."""
MOST_PLAYED_S = 6.0
"""Seconds in which all steps of a change are shown that is played by itself, once it is done."""


class ReplayBar(ipywidgets.VBox):
    """Controls of a replay: play and pause, a slider over its steps, and words on the step. Empty without one.

    A replay that the user has asked for is played by the page, and stays until it is closed. The one of a change that
    was just done is played by the kernel, so that it ends without a page as well, unless the user takes it over.
    """

    def __init__(self, view: DagView, ended: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._ended = ended
        self._clock = clock
        self._replay: ChangeReplay | None = None
        self._last = 0
        self._began_s: float | None = None  # of a replay that plays by itself
        # One that plays by itself is moved by the view's thread, while a user begins another: neither ends the other's.
        self._one_at_a_time = threading.RLock()
        self.play = ipywidgets.Play(min=0, interval=STEP_MS, show_repeat=False)
        self.slider = ipywidgets.IntSlider(min=0, description="Step", readout=False)
        self.slider.layout.flex = "1 1 200px"
        self.shut = ipywidgets.Button(description="Close", tooltip="End the replay, and show the last plan again")
        self.shut.layout.width = "80px"
        self.words = ipywidgets.HTML()
        self._link = ipywidgets.jslink((self.play, "value"), (self.slider, "value"))
        self.play.observe(lambda change: self._moved(change["new"]), names="value")
        self.shut.on_click(lambda _: self.end())
        self._row = ipywidgets.HBox([self.play, self.slider, self.shut])
        self._row.layout.flex_flow = "row wrap"
        super().__init__([])
        answer_in_subshell(self._row)

    @property
    def is_open(self) -> bool:
        """Whether a replay is shown."""
        return self._replay is not None

    def begin(self, replay: ChangeReplay) -> None:
        """Show a replay from its first step on, playing."""
        with self._one_at_a_time:
            self._open(replay, began_s=None)
            self._view.look_at()  # its button is in a tab below
            self.play.playing = True

    def play_once(self, replay: ChangeReplay) -> None:
        """Show a replay step by step with each ``update``, and close it."""
        with self._one_at_a_time:
            self._open(replay, began_s=self._clock())

    def update(self, over: bool) -> None:
        """Go on with a replay that plays by itself; there are no more updates once the run is ``over``."""
        with self._one_at_a_time:
            replay, began_s = self._replay, self._began_s
            if replay is None or began_s is None:
                return
            step_s = min(STEP_MS / 1_000, MOST_PLAYED_S / len(replay.steps))
            number = int((self._clock() - began_s) / step_s)
            if over or number >= len(replay.steps):
                self.end()
            elif number > self._last:
                self._show(number)
                self.play.value = number

    def end(self) -> None:
        """End the replay."""
        with self._one_at_a_time:
            if self._replay is not None:
                nothing: list[ipywidgets.Widget] = []
                self._replay, self._began_s, self.children = None, None, nothing
                self.play.playing = False
                self._ended()

    def _open(self, replay: ChangeReplay, began_s: float | None) -> None:
        self._replay, self._began_s, self._last = replay, began_s, 0
        self.play.playing = False
        self.play.max = self.slider.max = len(replay.steps) - 1
        self.play.value = 0
        self.children = [self._row, self.words]
        self._show(0)

    def _moved(self, number: int) -> None:
        """Show the step to which the page has gone: the user takes over a replay that plays by itself."""
        with self._one_at_a_time:
            if self._replay is None or number == self._last:
                return  # a message that came after the end, or the kernel's own
            self._began_s = None
            if number < self._last or number + 1 == len(self._replay.steps):
                self.play.playing = False  # else the page would go on from a step to which the reader has gone back
            self._show(number)

    def _show(self, number: int) -> None:
        replay = self._replay
        assert replay is not None
        self._last = number
        step = replay.steps[number]
        self.words.value = words_html(f"{number + 1} of {len(replay.steps)}: {step.words}")
        self._view.show_step(step, row_versions(replay.graph, replay.steps, number))


EMPTY = "No change was requested yet: select an operator in the picture, or use %fries_reconfigure."

class ChangePanel(ipywidgets.VBox):
    """The changes of a run, the newest first, and the selected one. A change is selected when it is requested.

    Its parts are the attributes ``table``, ``details``, ``revert``, ``cancel``, ``replay`` and ``result``, and ``bar``,
    which controls a replay and belongs beside the picture; ``rollout`` is for canaries and shadows. It reverts and
    cancels no change of an operator that the page may not change, by ``changes``, and compares both versions of a
    canary or a shadow if it ``shows_values``.
    """

    def __init__(
        self, run: Run, pictures: DagPanel, changes: Callable[[str], bool] = lambda operator: True,
        shows_values: bool = True,
    ) -> None:  # fmt: skip
        self._run, self._changes = run, changes
        self._known: Mapping[str, Change] = {}
        self._to_play: Change | None = None  # the newest change, until it is done
        self._is_open = False
        self._shown: tuple[object, ...] = ()
        self._one_at_a_time = threading.Lock()  # the user selects in one thread, a new change is shown in another
        self.table = TableView("Changes", COLUMNS, selectable=True, empty=EMPTY)
        self.details, self.result = ipywidgets.HTML(), ipywidgets.HTML()
        self.revert = self._button("Revert", "Change its operators back, while the dataflow runs", self._reverted)
        self.cancel = self._button("Cancel", "Abort it, if it was not decided yet", self._cancelled)
        self.replay = self._button("Replay", "Show its message and markers in the picture once more", self._replayed)
        self.bar = ReplayBar(pictures.view, lambda: pictures.show_plan(None))
        self.rollout = RolloutPanel(run, self._fixed, shows_values, self._say)
        self._buttons = ipywidgets.HBox([self.revert, self.cancel, self.replay])
        self._buttons.layout.flex_flow = "row wrap"
        self.table.observe(lambda _: self._select(RunMoment(self._run)), names="selected")
        super().__init__([self.table])

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        known = {change.id: change for change in moment.changes}
        if known.keys() != self._known.keys():
            # Not what was done before the view was opened.
            self._to_play = moment.changes[-1] if self._is_open else None
            self._known = known
            self.bar.end()
            self.table.selected = moment.changes[-1].id
        self._is_open = True
        if (change := self._to_play) is not None and change.done:
            self._to_play = None
            if change.result(0).outcome == "done":
                self.bar.play_once(change.replay(traced=False))
        self.bar.update(moment.over)
        self.table.fill({change.id: change_row(change) for change in reversed(moment.changes)})
        self._select(moment)

    def _select(self, moment: RunMoment) -> None:
        """Show the selected change, if it or what can be done with it has changed."""
        with self._one_at_a_time:
            self._show(moment)

    def _show(self, moment: RunMoment) -> None:
        change = self._known.get(self.table.selected)
        if change is None:
            self._shown, self.children = (), [self.table]
            return
        self.rollout.show(change, moment.over)
        waits = "" if change.done else why_waits(moment, change)
        fixed = self._fixed(sorted(change.plan.targets))
        refused = fixed or (change.blocked_by() if change.done and not moment.over else "the run has ended")
        outcome = change.result(0).outcome if change.done else ""
        shown = (change, outcome, waits, refused)
        if shown == self._shown:
            return
        self.revert.disabled, self.revert.tooltip = bool(refused), refused or "Change its operators back"
        self.cancel.disabled, self.replay.disabled = change.done or bool(fixed), outcome != "done"
        self.details.value = words_html(f"{change.id}: {waits}") if waits else self._facts(change)
        self.children = [self.table, self._buttons, self.result, self.rollout, self.details]
        self._shown = shown  # not before, since an update that failed is made again

    def _fixed(self, operators: Sequence[str]) -> str:
        """Why the page may not change operators, as a message; empty if it may."""
        fixed = [name for name in operators if not self._changes(name)]
        return f"this page does not change {', '.join(fixed)}" if fixed else ""

    def _say(self, words: str, failed: bool = False) -> None:
        self.result.value = words_html(words, failed)

    def _facts(self, change: Change) -> str:
        """Where the time of a change went, or why it had no effect; and its functions."""
        result = change.result(0)
        head = time_parts(result) if result.outcome == "done" else words_html(result.error, failed=True)
        return f"{head}{function_parts(change, self._run.graph.order)}"

    def _button(self, words: str, tooltip: str, clicked: Callable[[Change], None]) -> ipywidgets.Button:
        button = ipywidgets.Button(description=words, tooltip=tooltip, disabled=True)
        button.layout.width = "90px"
        button.on_click(lambda _: self._do(clicked))
        return button

    def _do(self, clicked: Callable[[Change], None]) -> None:
        if (change := self._known.get(self.table.selected)) is not None:
            clicked(change)

    def _reverted(self, change: Change) -> None:
        if fixed := self._fixed(sorted(change.plan.targets)):  # a button that is disabled in the page is no protection
            self.result.value = words_html(fixed, failed=True)
            return
        self.revert.disabled = True
        self.result.value = words_html("under way ...")
        threading.Thread(target=self._revert, args=[change], name="fries-revert", daemon=True).start()

    def _revert(self, change: Change) -> None:
        try:
            result = self._run.rollback(change).result()
        except FriesError as error:
            self.result.value = words_html(str(error), failed=True)
        else:
            failed = result.outcome != "done"
            self.result.value = words_html(result.error if failed else repr(summaries.of_change(result)), failed)
        self._shown = ()

    def _cancelled(self, change: Change) -> None:
        if fixed := self._fixed(sorted(change.plan.targets)):
            self.result.value = words_html(fixed, failed=True)
            return
        change.cancel()
        self.result.value = words_html(f"change {change.id}: it is cancelled, unless it was decided already")

    def _replayed(self, change: Change) -> None:
        self.bar.begin(change.replay())
