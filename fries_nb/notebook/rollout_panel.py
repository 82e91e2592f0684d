"""What the panel of changes has for a canary or a shadow: how far it is, buttons, and a slider for a canary's share.

All that acts asks first, and does nothing if what it asks about has changed meanwhile: a gate may go on, or back, while
the user reads the question. The slider goes from the present share up to all rows, which promotes, and has none below
it but 0, which rolls back: no other share is possible (see ``Change.ramp``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import ipywidgets

from fries_nb.changes.change import Change
from fries_nb.errors import FriesError
from fries_nb.notebook.widgets import answer_in_subshell, words_html
from fries_nb.report.change_rows import rollout_parts
from fries_nb.run import Run
from fries_nb.running.shadows import Shadow


def shares_from(share: float) -> list[tuple[str, float]]:
    """The shares that a canary may have next, with their words; the present one is the second.

    >>> shares_from(0.975)
    [('0 %: roll back', 0.0), ('97.5 % now', 0.975), ('98 %', 0.98), ('99 %', 0.99), ('100 %: promote', 1.0)]
    """
    between = [(f"{percent} %", percent / 100) for percent in range(1, 100) if percent / 100 > share]
    return [("0 %: roll back", 0.0), (f"{share * 100:.3g} % now", share), *between, ("100 %: promote", 1.0)]


class RolloutPanel(ipywidgets.VBox):
    """The rollout of one change: a canary, a shadow, or nothing.

    Its parts are ``compare``, ``promote``, ``drop``, ``share`` (the slider), ``confirm`` and ``keep`` (the answers to
    what it asks), ``question`` and ``told``.

    Args:
        run: the run.
        fixed: why the page may not change a change's operators, as a message; empty if it may.
        shows_values: whether it may compare, which shows values of rows.
        say: shows words to the user, or why something has failed.
    """

    def __init__(
        self, run: Run, fixed: Callable[[Sequence[str]], str], shows_values: bool, say: Callable[..., None]
    ) -> None:
        self._run, self._fixed, self._shows_values, self._say = run, fixed, shows_values, say
        self._change: Change | None = None
        self._act: Callable[[], Change] | None = None  # what is asked about
        self._told: object = None
        self._share, self._follows_in = -1.0, 0
        self._one_at_a_time = threading.RLock()
        self.compare = self._button("Compare", "Show both versions side by side", self._compared)
        self.promote = self._button("Promote", "Let the new version process all rows", self._promoted)
        self.drop = self._button("Drop", "Remove the shadow", self._dropped)
        self.confirm = self._button("", "Do it", self._confirmed, "danger")
        self.keep = self._button("Keep it", "Change nothing", self._kept)
        self.question, self.told = ipywidgets.HTML(), ipywidgets.HTML()
        self.share = ipywidgets.SelectionSlider(
            options=shares_from(0.01), index=1, description="Share", continuous_update=False,
            tooltip="Share of the cohorts that the new version processes; asks before it is changed",
        )  # fmt: skip
        self.share.style.description_width = "initial"
        self.share.layout.flex, self.share.layout.min_width = "1 1 260px", "240px"
        self.share.layout.max_width = "560px"
        self.share.observe(lambda change: self._slid(change["new"]), names="value")
        self._row, self._asked = ipywidgets.HBox(), ipywidgets.HBox([self.question, self.confirm, self.keep])
        for row in (self._row, self._asked):
            row.layout.flex_flow, row.layout.align_items = "row wrap", "center"
        self._asked.layout.display = "none"
        super().__init__([self._row, self._asked, self.told])
        answer_in_subshell(self, self.compare, self.promote, self.drop, self.share)
        self.layout.display = "none"

    @property
    def shadow(self) -> Shadow | None:
        """The shadow that the change has begun."""
        wanted = self._change
        return next((one for one in self._run.shadows if wanted is not None and one.change.id == wanted.id), None)

    def show(self, change: Change, is_over: bool) -> None:
        """Show how far a change is rolled out; nothing of one that is neither canary nor shadow."""
        with self._one_at_a_time:
            if self._change is None or self._change.id != change.id:
                self._leave()
                self._told, self._share = None, -1.0
            self._change = change
            shadow, status = self.shadow, change.canary
            self.layout.display = None if shadow is not None or status is not None else "none"
            if shadow is None and status is None:
                return
            fixed = self._fixed(sorted(change.plan.targets) if shadow is None else shadow.operators)
            share = change.share
            is_open = shadow.state == "open" if shadow is not None else share not in (0, 1)
            acts = is_open and not is_over and not fixed
            if not acts:
                self._leave()
            self.compare.disabled = shadow is not None and (not is_open or is_over)
            self.promote.disabled = self.drop.disabled = self.share.disabled = not acts
            if shadow is None and is_open:
                self._follow(share)
            self._place(shadow, is_open)
            told = (str(shadow), id(shadow.compared)) if shadow is not None else (status, id(change.compared))
            if told != self._told:
                self.told.value = rollout_parts(change, shadow, self._shows_values)
                self._told = told

    def _place(self, shadow: Shadow | None, is_open: bool) -> None:
        """The buttons of a canary, or of a shadow."""
        compare = [self.compare] if self._shows_values else []
        further = [self.drop] if shadow is not None else [self.share] if is_open else []
        if (parts := (*compare, self.promote, *further)) != self._row.children:
            self._row.children = parts

    def _follow(self, share: float) -> None:
        """Let the slider have the present share, if it is another one, and ask nothing more about the last."""
        if share == self._share:
            return
        self._leave()
        self._share = share
        self._reset(shares_from(share))

    def _reset(self, options: list[tuple[str, float]]) -> None:
        self._follows_in = threading.get_ident()  # the slider tells changes in the thread that makes them
        try:
            if list(self.share.options) != options:
                self.share.options = options
            self.share.index = 1
        finally:
            self._follows_in = 0

    # ---- what is asked, and done

    def _ask(self, words: str, answer: str, act: Callable[[], Change]) -> None:
        self._act, self.confirm.description = act, answer
        self.question.value = words_html(words)
        self._asked.layout.display = None

    def _leave(self) -> None:
        """Ask nothing any more."""
        self._act = None
        self._asked.layout.display = "none"

    def _slid(self, share: float) -> None:
        if self._follows_in == threading.get_ident():
            return
        with self._one_at_a_time:
            change, now = self._change, f"{self._share * 100:.3g} %"
            if change is None or share == self._share:
                self._leave()
            elif share == 0:
                self._ask("Let the old version process all rows again?", "Roll back", change.rollback)
            elif share == 1:
                self._promoted()
            else:
                wanted = f"{share * 100:.3g} %"
                words = f"Let the new version process {wanted} of the cohorts, in place of {now}?"
                self._ask(words, f"Go on to {wanted}", partial(change.ramp, share))

    def _promoted(self) -> None:
        if (shadow := self.shadow) is not None:
            words = "Go on with the functions and the states of the shadow? The operators wait for it meanwhile."
            self._ask(words, "Promote it", shadow.promote)
        elif self._change is not None:
            self._ask("Let the new version process all rows?", "Promote it", self._change.promote)

    def _dropped(self) -> None:
        if (shadow := self.shadow) is not None:
            self._ask("Remove the shadow? What it has found is kept here; its states are lost.", "Drop it", shadow.drop)

    def _kept(self) -> None:
        self._leave()
        if self.shadow is None and self._share >= 0:
            self._reset(shares_from(self._share))

    def _confirmed(self) -> None:
        with self._one_at_a_time:
            act, change, shadow = self._act, self._change, self.shadow
            self._leave()
        if act is None or change is None:
            return  # a second click, or what was asked about has changed meanwhile
        if fixed := self._fixed(sorted(change.plan.targets) if shadow is None else shadow.operators):
            self._say(fixed, failed=True)
            return
        threading.Thread(target=self._carry_out, args=[act], name="fries-rollout", daemon=True).start()

    def _carry_out(self, act: Callable[[], Change]) -> None:
        try:
            step = act()
        except FriesError as error:
            self._say(str(error), failed=True)
        else:
            self._say(f"change {step.id} is requested: {self.confirm.description.lower()}")
        self._share = -1.0  # the slider is set back if nothing has changed

    def _compared(self) -> None:
        if self._shows_values and self._change is not None:
            self._say("comparing ...")
            asked = self.shadow or self._change
            threading.Thread(target=self._compare, args=[asked], name="fries-compare", daemon=True).start()

    def _compare(self, asked: Change | Shadow) -> None:
        try:
            asked.compare()
        except (FriesError, TimeoutError) as error:
            self._say(str(error), failed=True)
        else:
            self._say(f"compared at {time.strftime('%H:%M:%S')}")

    def _button(self, words: str, tooltip: str, clicked: Callable[[], None], style: str = "") -> ipywidgets.Button:
        button = ipywidgets.Button(description=words, tooltip=tooltip, button_style=style)
        button.layout.width = "auto"
        button.on_click(lambda _: self._do(clicked))
        return button

    def _do(self, clicked: Callable[[], None]) -> None:
        with self._one_at_a_time:
            clicked()
