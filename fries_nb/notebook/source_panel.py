"""The panel of a source: how far it is behind, its rate, and buttons by which it pauses and goes on.

It is shown while one source alone is selected in the picture, and follows rates that are set elsewhere, as by a cell. A
rate is set in a thread, as all that a click of a view starts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import ipywidgets

from fries_nb.dataflow.endpoints import rate_of
from fries_nb.errors import FriesError, exception_text
from fries_nb.notebook.form import EntryField
from fries_nb.notebook.panels import RunMoment
from fries_nb.notebook.widgets import words_html
from fries_nb.run import Run
from fries_nb.telemetry.run_states import SourceState

_NO_RATE = "It has no rate, and reads as fast as the dataflow takes its rows."
_REACH = 1.0  # as an exponent of 10: from a tenth of the present rate to ten times


class SourcePanel(ipywidgets.VBox):
    """The lag of a source and, unless the page is for looking only, its controls. Any thread may call its methods.

    Its widgets are ``lag``, ``rate`` (a slider), ``number`` (the same rate, to type in), ``pause``, ``goes_on``,
    ``own`` (back to the rate with which the source was declared) and ``words``, on what has failed.
    """

    def __init__(self, run: Run, reads_only: bool = False) -> None:
        self._run = run
        self._source = ""
        self._before: dict[str, float | None] = {}  # source to its last rate that was not 0; ``None`` without one
        self._around: dict[str, float] = {}  # source to the rate about which the slider is
        self._one_at_a_time, self._follows_in = threading.RLock(), 0
        self._told: tuple[str, float | None, bool] | None = None  # what the slider and the field have
        self._trouble, self._moment = "", RunMoment(run)
        self.lag, self.words = ipywidgets.HTML(), ipywidgets.HTML()
        self.rate = ipywidgets.FloatLogSlider(
            value=1.0, min=-1.0, max=1.0, step=0.01, continuous_update=False, readout=False, description="Rate",
            tooltip="From a tenth to ten times the present rate",
        )  # fmt: skip
        self.rate.style.description_width = "initial"
        self.rate.layout.flex, self.rate.layout.min_width = "1 1 160px", "120px"
        self.number = EntryField("rows a second", kind="number", tooltip="Enter sets it; 0 pauses the source")
        self.number.layout.width = "190px"
        self.pause = ipywidgets.Button(description="Pause", tooltip="Read no more rows until it goes on")
        self.goes_on = ipywidgets.Button(description="Go on")
        self.own = ipywidgets.Button(description="Own rate")
        for button in (self.pause, self.goes_on, self.own):
            button.layout.width = "76px"
        self.rate.observe(lambda change: self._slid(change["new"]), names="value")
        self.number.on_msg(self._heard)
        self.pause.on_click(lambda _: self._set(0.0))
        self.goes_on.on_click(lambda _: self._set(self._before.get(self._source)))
        self.own.on_click(lambda _: self._set(None))
        row = ipywidgets.HBox([self.rate, self.number, self.pause, self.goes_on, self.own])
        row.layout.flex_flow, row.layout.align_items = "row wrap", "center"
        super().__init__([self.lag] if reads_only else [self.lag, row, self.words])
        self.layout.display = "none"

    def choose(self, operators: Sequence[str]) -> None:
        """Follow the selection in the picture: of one source alone the panel is shown."""
        graph = self._run.graph
        alone = [name for name in operators if name in graph and graph.operator(name).traits.is_source]
        with self._one_at_a_time:
            self._source = alone[0] if len(operators) == 1 and alone else ""
            self._trouble = ""
        self.update(self._moment)

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        with self._one_at_a_time:
            self._moment = moment
            state = next((one for one in moment.sources if one.source == self._source), None) if self._source else None
            self.layout.display = "none" if state is None else None
            if state is not None:
                self._show(state, moment)

    def _show(self, state: SourceState, moment: RunMoment) -> None:
        """Show the lag, the present rate, and what can be done."""
        lag = words_html(str(state).partition("\n")[0])
        if lag != self.lag.value:
            self.lag.value = lag
        over, rate = moment.over or state.ended, state.rate
        declared = rate_of(self._run.graph.operator(state.source).function)
        measured = moment.last.operators.get(state.source)
        if rate != 0:
            self._before[state.source] = rate
        around = rate if rate is not None else float(f"{measured.rate:.3g}") if measured is not None else 0.0
        if around := around or self._around.get(state.source) or declared or 0.0:
            self._around[state.source] = around
        self._follow(rate, self._around.get(state.source, 0.0))
        self.rate.disabled = over or state.source not in self._around
        self.pause.disabled, self.goes_on.disabled = over or rate == 0, over or rate != 0
        self.own.disabled = over or rate == declared
        self.goes_on.tooltip = _in_words(self._before.get(state.source, declared))
        self.own.tooltip = f"{_in_words(declared)}, as it was declared"
        self._say(_NO_RATE if rate is None and not over else "")

    def _say(self, words: str) -> None:
        shown = words_html(self._trouble or words, failed=bool(self._trouble)) if self._trouble or words else ""
        if shown != self.words.value:
            self.words.value = shown

    def _follow(self, rate: float | None, around_rate: float) -> None:
        """Let the slider and the field have the present rate, if it is another one: what is being typed stays."""
        if (now := (self._source, rate, around_rate > 0)) == self._told:
            return
        self._told = now
        self.number.value = "" if rate is None else f"{rate:g}"
        if not around_rate:
            return
        low, high = ends_around(around_rate)
        upwards = high > self.rate.max  # the least must not be more than the most, not even for a moment
        self._follows_in = threading.get_ident()  # the slider tells changes in the thread that makes them
        try:
            for name, end in (("max", high), ("min", low)) if upwards else (("min", low), ("max", high)):
                setattr(self.rate, name, end)
            self.rate.value = around_rate
        finally:
            self._follows_in = 0

    def _slid(self, rate: float) -> None:
        if self._follows_in != threading.get_ident():
            self._set(float(f"{rate:.3g}"))

    def _heard(self, _: object, content: Any, __: object) -> None:
        """Set the rate that was typed; the page sends no text for what is no number."""
        if content == {"event": "submit"}:
            try:
                rate = float(self.number.value)
            except ValueError:
                self._fail(f"Rows a second: got {self.number.value!r}; expected a number, 0 (pause) or more")
            else:
                self._set(rate)

    def _set(self, rate: float | None) -> None:
        if self._source:
            given = [self._source, rate]
            threading.Thread(target=self._carry_out, args=given, name="fries-rate", daemon=True).start()

    def _carry_out(self, source: str, rate: float | None) -> None:
        try:
            self._run.set_rate(source, rate)
        except Exception as error:  # noqa: BLE001 - shown below
            self._fail(str(error) if isinstance(error, FriesError) else exception_text(error))
        else:
            self._fail("")  # the next measurements have the rate

    def _fail(self, words: str) -> None:
        """Say what is wrong, and show the rate that the source still has; or that nothing is."""
        with self._one_at_a_time:
            self._trouble, self._told = words, None if words else self._told
        self.update(self._moment)


def _in_words(rate: float | None) -> str:
    return "As fast as the dataflow takes its rows" if rate is None else f"{rate:,g} rows a second"


def ends_around(rate: float) -> tuple[float, float]:
    """The ends of the slider, as exponents of 10, for a rate above 0.

    >>> ends_around(1_000.0)
    (2.0, 4.0)
    """
    middle = math.log10(rate)
    return middle - _REACH, middle + _REACH
