"""What a report shows of each change: where its time went, the difference of its functions, and its replay.

The time is a bar of four parts, in a fixed order: ``waited`` (for tuples to flow, behind other changes, for a loop to
empty, for the rehearsal, for the decision on disk), ``plan``, ``prepare`` and ``commit``. The line below names each
part with its milliseconds, since a part of a bar may be too short to be seen.

>>> from fries_nb.controller.events import WorkerOutcome
>>> result = ChangeResult("u1", "fries", "done", "", "", 2.0, 30.0, 8.0, 45.0, 0.0, (("FM",),), {})
>>> parts_ms(result)
{'waited': 5.0, 'plan': 2.0, 'prepare': 30.0, 'commit': 8.0}
>>> svg = delay_svg(result, 600)
>>> svg.count('class="part '), "prepare 30 ms" in svg
(4, True)
>>> 'aria-label="u1: 45 ms from the request to the last switch; waited 5 ms, plan 2 ms' in svg
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fries_nb.changes import Change, ChangeResult
from fries_nb.errors import exception_text
from fries_nb.report import theme
from fries_nb.report.change_replay import ChangeReplay
from fries_nb.report.function_diff import diff_html, function_diff
from fries_nb.report.markup import Html, figure, joined, milliseconds, tag
from fries_nb.report.theme import FONT, GREEN, GREY, ORANGE, SKY, escaped, number, themed

MOST_REPLAYS = 8
"""Number of changes, the newest ones, of which a report shows more than a row."""
WIDTH = 640.0
"""Width of the bar in a report, in pixels."""
_PARTS = (
    "From the request to the last switch. Waited: for tuples or other changes, for the rehearsal, and for the decision "
    "to be on disk. Prepare: the old functions work meanwhile. Commit: from the first message on."
)
_EDGE, _TOP, _BAR, _LETTER = 10.0, 10.0, 18.0, 6.6
_SAMPLE, _GAP, _LINE = 16.0, 18.0, 18.0
_LIGHT = {
    ".paper": f"fill: {theme.PAPER}",
    "text": f"{FONT}; font-size: 12px; fill: {theme.INK}",
    ".part": f"stroke: {theme.PAPER}; stroke-width: 1px",
    ".waited": f"fill: {GREY}",
    ".plan": f"fill: {GREEN}",
    ".prepare": f"fill: {SKY}",
    ".commit": f"fill: {ORANGE}",
}
_DARK = {
    ".paper": f"fill: {theme.NIGHT_PAPER}",
    "text": f"fill: {theme.NIGHT_INK}",
    ".part": f"stroke: {theme.NIGHT_PAPER}",
}
_CSS = themed(".fries-delay-svg", _LIGHT, _DARK)


def parts_ms(result: ChangeResult) -> dict[str, float]:
    """The parts of the time from the request to the end of a change, in milliseconds.

    Args:
        result: the result; if the change is not done, it has no commit, and waited until tuples flowed.

    Returns:
        The parts in the order in which they are drawn. If the change is done they add up to ``waited_ms + delay_ms``,
        except in several regions, where these prepare one after the other or at once.
    """
    known = {"plan": result.plan_ms, "prepare": result.prepare_ms, "commit": result.commit_ms}
    whole = result.waited_ms + result.delay_ms
    waited = whole - sum(known.values()) if result.outcome == "done" else result.waited_ms
    return {"waited": max(0.0, waited), **known}


def delay_svg(result: ChangeResult, width: float) -> str:
    """Draw where the time of a change went.

    Args:
        result: the result of the change.
        width: width in pixels, at least 200.

    Returns:
        An ``<svg>`` element.
    """
    parts = parts_ms(result)
    said = {name: f"{name} {milliseconds(value)}" for name, value in parts.items()}
    end = "to the last switch" if result.outcome == "done" else f"until it was {result.outcome.replace('_', ' ')}"
    heard = f"{result.change}: {milliseconds(sum(parts.values()))} from the request {end}; {', '.join(said.values())}"
    key, height = _key(said, width)
    size = f"{number(width)} {number(height)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fries-delay-svg" viewBox="0 0 {size}" '
        f'width="{number(width)}" height="{number(height)}" role="img" aria-label="{escaped(heard)}">'
        f'<style>{_CSS}</style><rect class="paper" width="100%" height="100%" rx="6"/>{_bar(parts, said, width)}{key}'
        "</svg>"
    )


def change_parts(change: Change, replay: ChangeReplay, is_open: bool) -> Html:
    """The details of a change that has ended: where its time went, its functions, and its steps.

    Args:
        change: the change.
        replay: its replay.
        is_open: whether the details are open at first.
    """
    heading = tag("summary", tag("b", change.id), f": {change.label}, in detail")
    times, steps = time_parts(change.result(0)), step_parts(replay)
    functions = function_parts(change, replay.graph.order)
    return tag("details", heading, times, *functions, steps, **({"open": "open"} if is_open else {}))


def time_parts(result: ChangeResult) -> Html:
    """Where the time of a change went, as a figure."""
    return figure(delay_svg(result, WIDTH), _PARTS)


def step_parts(replay: ChangeReplay) -> Html:
    """The steps of a change, to step through."""
    return joined([tag("p", "Step by step:"), replay._repr_html_()])


def function_parts(change: Change, order: Sequence[str]) -> Iterator[Html]:
    """The differences of the functions of a change, where there is something to tell, in this order of operators."""
    try:
        found = change.functions()
    except Exception as error:  # noqa: BLE001 (superseded functions are unpickled, which runs the user's code)
        why = exception_text(error)
        yield tag("p", f"The functions cannot be read from disk any more: {why}", class_="note")
        return
    for name in (name for name in order if name in found):
        if text := function_diff(*found[name]):
            yield joined([tag("p", "The function of ", tag("b", name), ", before (-) and after (+):"), diff_html(text)])


def _bar(parts: Mapping[str, float], said: Mapping[str, str], width: float) -> str:
    """The parts to scale, one behind the other."""
    scale = (width - 2 * _EDGE) / (sum(parts.values()) or 1.0)
    drawn, x = "", _EDGE
    for name, value in parts.items():
        shape = f'x="{number(x)}" y="{number(_TOP)}" width="{number(value * scale)}" height="{number(_BAR)}"'
        drawn += f'<g><title>{escaped(said[name])}</title><rect class="part {name}" {shape}/></g>'
        x += value * scale
    return drawn


def _key(said: Mapping[str, str], width: float) -> tuple[str, float]:
    """The names of the parts with their milliseconds, in as many lines as needed, and the height of the picture."""
    drawn, x, y = "", _EDGE, _TOP + _BAR + _LINE
    for name, words in said.items():
        room = _SAMPLE + _LETTER * len(words) + _GAP
        if x + room - _GAP > width - _EDGE and x > _EDGE:
            x, y = _EDGE, y + _LINE
        drawn += (
            f'<rect class="{name}" x="{number(x)}" y="{number(y - 9)}" width="11" height="11"/>'
            f'<text x="{number(x + _SAMPLE)}" y="{number(y)}">{escaped(words)}</text>'
        )
        x += room
    return drawn, y + 10
