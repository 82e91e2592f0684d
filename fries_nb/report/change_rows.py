r"""What a report shows of each change: where its time went, the difference of its functions, and its replay.

The time is a bar of four parts, in a fixed order: ``waited`` (for tuples to flow, behind other changes, for a loop to
empty, for the rehearsal, for the decision on disk), ``plan``, ``prepare`` and ``commit``. The line below names each
part with its milliseconds, since a part of a bar may be too short to be seen.

>>> from fries_nb.controller.events import WorkerOutcome
>>> result = Outcome("u1", "fries", "done", prepare_ms=30.0, commit_ms=8.0, delay_ms=45.0, plan_ms=2.0)
>>> parts_ms(result)
{'waited': 5.0, 'plan': 2.0, 'prepare': 30.0, 'commit': 8.0}
>>> svg = delay_svg(result, 600)
>>> svg.count('class="part '), "prepare 30 ms" in svg
(4, True)
>>> 'aria-label="u1: 45 ms from the request to the last switch; waited 5 ms, plan 2 ms' in svg
True

The difference between two functions: of their sources, and of the attributes of objects.

Sources are those of Python's line cache: of files, of notebook cells, and of expressions of a magic. A class is found
there by its methods, since Python looks classes up in files only, and a notebook's cells are none.

>>> print(function_diff(Threshold(5), Threshold(10)))
limit: 5 -> 10
>>> print(function_diff(Threshold(5), len) or "nothing to tell")
nothing to tell
>>> text = function_diff(milliseconds, counted)
>>> text.splitlines()[:2], "-def milliseconds(value: float | None) -> str:" in text
(['--- milliseconds', '+++ counted'], True)
>>> diff_html("limit: 5 -> 10\n-old\n+new").count('<span class="')
2

Recent rows before and after a change, as a table for a notebook or a report: what differs is marked.

Long values and wide rows are cut for show; the DataFrame of ``Examples.table`` has all of them. Marks repeat what the
column ``result`` says, so nothing is told by colour alone.

>>> from fries_nb.changes.change_examples import Example
>>> one = Example("FM", 0, {"n": 1}, {"n": 1, "p": 0.5}, {"n": 1, "p": 0.25}, "differs", ("p",))
>>> shown = example_parts(Examples("u1", (one,), left_out="2 cannot be pickled"))
>>> "<mark>0.25</mark>" in shown, "2 cannot be pickled" in shown, shown.count("<th scope=")
(True, True, 4)
>>> shown_value("a" * 50), shown_value(None), shown_value(0.1 + 0.2)
('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...', 'null', '0.3')
"""

from __future__ import annotations

import difflib
import functools
import inspect
import linecache
import re
import reprlib
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from markupsafe import Markup

from fries_nb.changes.arm_comparison import ArmCounts, shown_arms
from fries_nb.changes.canary_gates import ArmsLook
from fries_nb.changes.change import Change
from fries_nb.changes.change_effect import ChangeEffect, EffectFigure
from fries_nb.changes.change_examples import Example, Examples
from fries_nb.changes.change_replay import ChangeReplay, ReplayStep
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.operators import BatchFunction
from fries_nb.dataflow.windowing import ConfiguredFunction
from fries_nb.errors import exception_text
from fries_nb.report import markup
from fries_nb.report.dag import STATES, draw
from fries_nb.report.latency import Scale, grid, time_axis
from fries_nb.report.layout import layout
from fries_nb.report.markup import (
    BLUE,
    FONT,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    TextColumn,
    escaped,
    in_one_style,
    number,
    part,
    picture,
    rows_svg,
    themed,
)
from fries_nb.running.shadows import Shadow, ShadowComparison
from fries_nb.telemetry.metrics import MISSING
from fries_nb.words import counted, milliseconds

MOST_LINES = 1_000
"""Lines of a function that are compared; comparing takes time that grows faster than their number."""
MOST_SHOWN = 400
"""Lines of a difference that are shown."""
MOST_FIGURES = 300
"""Figures of a comparison of both versions that are shown."""
MOST_CHARS = 240
"""Letters of a line that are shown."""
_MOST_ATTRIBUTES = 100
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_DIFF_LIGHT = {
    "": f"margin: 4px 0; padding: 8px; overflow-x: auto; font-size: 12.5px; line-height: 1.4; color: {markup.INK}; "
    f"background: {markup.BAND}; border: 1px solid {markup.LINE}; border-radius: 6px; white-space: pre",
    "span": "display: inline-block; min-width: 100%; padding-left: 4px; margin-left: -7px",
    ".added": f"background: #fdf0d2; border-left: 3px solid {ORANGE}",
    ".removed": f"background: #dcedf9; border-left: 3px solid {BLUE}",
    ".place": f"color: {markup.SOFT}; border-left: 3px solid transparent",
}
_DIFF_DARK = {
    "": f"color: {markup.NIGHT_INK}; background: {markup.NIGHT_BAND}; border-color: {markup.NIGHT_LINE}",
    ".added": f"background: #4a3a10; border-left-color: {ORANGE}",
    ".removed": f"background: #173a52; border-left-color: {SKY}",
    ".place": f"color: {markup.NIGHT_SOFT}",
}
_DIFF_CSS = themed(".fries-diff", _DIFF_LIGHT, _DIFF_DARK)
_CLASSES = {"+": "added", "-": "removed", "@": "place", " ": ""}


@dataclass(frozen=True)
class Threshold:
    """An object as an operator may run it, for the examples."""

    limit: int

    def __call__(self, row: dict[str, Any]) -> bool:
        """Whether a row's value is below the limit."""
        return bool(row["value"] < self.limit)


def function_diff(before: Any, after: Any) -> str:
    """The difference between two functions, as text of at most ``MOST_SHOWN`` lines.

    Args:
        before: the earlier function, object or table of an operator.
        after: the later one.

    Returns:
        The unified diff of their sources, if both have one; then a line ``window: 5 -> 10`` for each public attribute
        that differs between objects of the same class. Empty if neither differs, or nothing can be told.
    """
    lines = [*_sources_differ(users_function(before), users_function(after)), *_attributes_differ(before, after)]
    if len(lines) > MOST_SHOWN:
        lines[MOST_SHOWN:] = [f"... and {counted(len(lines) - MOST_SHOWN, 'more line')}"]
    return "\n".join(line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 3]}..." for line in lines)


def diff_html(text: str) -> Markup:
    """A difference, as ``function_diff`` returns it, as markup."""
    return part("difference", _DIFF_CSS, [(_CLASSES.get(line[:1], ""), line) for line in text.split("\n")])


def users_function(value: Any) -> Any:
    """The user's function inside of what an operator runs."""
    while isinstance(value, (BatchFunction, ConfiguredFunction, functools.partial)):
        value = value.func if isinstance(value, functools.partial) else value.function
    return value


def _sources_differ(before: Any, after: Any) -> list[str]:
    was, now = _source(before), _source(after)
    if was is None or now is None or was == now:
        return []
    cut = max(len(was), len(now)) > MOST_LINES
    found = difflib.unified_diff(was[:MOST_LINES], now[:MOST_LINES], _name(before), _name(after), lineterm="")
    return [*found, *([f"... of which the first {MOST_LINES:,} lines are compared"] if cut else [])]


def _source(value: Any) -> list[str] | None:
    """The lines of a function, or of the class of an object, without their common indentation; ``None`` without any."""
    place = source_place(value)
    if place is None:
        return None
    file, first = place
    lines = linecache.getlines(file)[first : first + 2 * MOST_LINES]
    if not lines:
        return None
    try:
        block = inspect.getblock(lines)
    except (SyntaxError, tokenize.TokenError):  # a part of an expression, such as a lambda, or cut off in a string
        block = lines if len(lines) == 2 * MOST_LINES else lines[:1]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return [line.rstrip()[indent if not line[:indent].strip() else 0 :] for line in block]


def source_place(value: Any) -> tuple[str, int] | None:
    """The file of a source, as the line cache knows it, and the index of its first line."""
    code = getattr(inspect.unwrap(value), "__code__", None) if inspect.isroutine(value) else None
    if isinstance(code, CodeType):
        return code.co_filename, code.co_firstlineno - 1
    kind = value if isinstance(value, type) else type(value)
    codes = [inner for member in vars(kind).values() if (inner := _code_of(member)) is not None]
    for code in sorted(codes, key=lambda code: code.co_firstlineno):
        lines = linecache.getlines(code.co_filename)[: code.co_firstlineno]
        head = re.compile(rf"\s*class {re.escape(kind.__name__)}\b")
        first = next((index for index in reversed(range(len(lines))) if head.match(lines[index])), None)
        if first is not None:
            return code.co_filename, first
    return None


def _code_of(member: Any) -> CodeType | None:
    """The code of a method, where it is written in Python; that which a decorator has made is in no file."""
    function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) and linecache.getlines(code.co_filename) else None


def _attributes_differ(before: Any, after: Any) -> Iterator[str]:
    was, now = _attributes(before), _attributes(after)
    if was is None or now is None or _name(users_function(before)) != _name(users_function(after)):
        return
    for name in [*was, *(name for name in now if name not in was)][:_MOST_ATTRIBUTES]:
        old, new = (_shown(values[name]) if name in values else "(none)" for values in (was, now))
        if old != new:
            yield f"{name}: {old} -> {new}"


def _attributes(value: Any) -> Mapping[str, Any] | None:
    """The public attributes of an object, and of the one inside of it; ``None`` for functions and classes."""
    if isinstance(value, functools.partial):
        return {"args": value.args, "keywords": value.keywords}
    if isinstance(value, (BatchFunction, ConfiguredFunction)):
        own = {name: given for name, given in vars(value).items() if name != "function" and not name.startswith("_")}
        return own | dict(_attributes(value.function) or {})
    if inspect.isroutine(value) or isinstance(value, type):
        return None
    slots = (name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ())))
    found = {name: getattr(value, name) for name in slots if not name.startswith("_") and hasattr(value, name)}
    own = getattr(value, "__dict__", {})
    return found | {name: given for name, given in own.items() if not name.startswith("_")}


def _names(slots: str | Sequence[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _shown(value: Any) -> str:
    """A value in one short line; without addresses, which differ between processes."""
    if type(value).__module__.startswith("pyspark"):
        return type(value).__name__  # its repr may run a query
    built_in = type(value).__module__ == "builtins"
    text = _REPR.repr(value) if built_in else _REPR.repr_instance(value, 1)  # of a repr that raises the class is shown
    return _ADDRESS.sub("", " ".join(text.split()))


def _name(value: Any) -> str:
    named = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    return str(getattr(named, "__qualname__", type(value).__qualname__))


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = 12


WIDTH = 640.0
"""Width of the bar in a report, in pixels."""
_PARTS = (
    "From the request to the last switch. Waited: for tuples or other changes, for the rehearsal, and for the decision "
    "to be on disk. Prepare: the old functions work meanwhile. Commit: from the first message on."
)
_EDGE, _TOP, _BAR, _LETTER = 10.0, 10.0, 18.0, 6.6
_SAMPLE, _GAP, _LINE = 16.0, 18.0, 18.0
_LIGHT = {
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{FONT}; font-size: 12px; fill: {markup.INK}",
    ".part": f"stroke: {markup.PAPER}; stroke-width: 1px",
    ".waited": f"fill: {GREY}",
    ".plan": f"fill: {GREEN}",
    ".prepare": f"fill: {SKY}",
    ".commit": f"fill: {ORANGE}",
}
_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_INK}",
    ".part": f"stroke: {markup.NIGHT_PAPER}",
}
_CSS = themed(".fries-delay-svg", _LIGHT, _DARK)


def parts_ms(result: Outcome) -> dict[str, float]:
    """The parts of the time from the request to the end of a change, in milliseconds.

    Returns:
        The parts in the order in which they are drawn. If the change is done they add up to ``waited_ms + delay_ms``,
        except in several regions, where these prepare one after the other or at once.
    """
    known = {"plan": result.plan_ms, "prepare": result.prepare_ms, "commit": result.commit_ms}
    whole = result.waited_ms + result.delay_ms
    waited = whole - sum(known.values()) if result.outcome == "done" else result.waited_ms
    return {"waited": max(0.0, waited), **known}


def delay_svg(result: Outcome, width: float) -> str:
    """Draw where the time of a change went, ``width`` (at least 200) pixels wide."""
    parts = parts_ms(result)
    labels = {name: f"{name} {milliseconds(value)}" for name, value in parts.items()}
    end = "to the last switch" if result.outcome == "done" else f"until it was {result.outcome.replace('_', ' ')}"
    total = milliseconds(sum(parts.values()))
    alt_text = f"{result.change}: {total} from the request {end}; {', '.join(labels.values())}"
    key, height = _key(labels, width)
    return picture("delay", (width, height), alt_text, _CSS, _bar(parts, labels, width), key)


def time_parts(result: Outcome) -> Markup:
    """Where the time of a change went, as a figure."""
    return part("figure", delay_svg(result, WIDTH), _PARTS)


def function_parts(change: Change, order: Sequence[str]) -> Markup:
    """The differences of the functions of a change, where there is something to tell, in this order of operators."""
    try:
        found = change.functions()
    except Exception as error:  # noqa: BLE001 (superseded functions are unpickled, which runs the user's code)
        return part("functions", [], exception_text(error))
    texts = {name: function_diff(*found[name]) for name in order if name in found}
    return part("functions", [(name, diff_html(text)) for name, text in texts.items() if text], "")


def _bar(parts: Mapping[str, float], labels: Mapping[str, str], width: float) -> str:
    """The parts to scale, one behind the other."""
    scale = (width - 2 * _EDGE) / (sum(parts.values()) or 1.0)
    drawn, x = "", _EDGE
    for name, value in parts.items():
        shape = f'x="{number(x)}" y="{number(_TOP)}" width="{number(value * scale)}" height="{number(_BAR)}"'
        drawn += f'<g><title>{escaped(labels[name])}</title><rect class="part {name}" {shape}/></g>'
        x += value * scale
    return drawn


def _key(labels: Mapping[str, str], width: float) -> tuple[str, float]:
    """The names of the parts with their milliseconds, in as many lines as needed, and the height of the picture."""
    drawn, x, y = "", _EDGE, _TOP + _BAR + _LINE
    for name, words in labels.items():
        room = _SAMPLE + _LETTER * len(words) + _GAP
        if x + room - _GAP > width - _EDGE and x > _EDGE:
            x, y = _EDGE, y + _LINE
        drawn += (
            f'<rect class="{name}" x="{number(x)}" y="{number(y - 9)}" width="11" height="11"/>'
            f'<text x="{number(x + _SAMPLE)}" y="{number(y)}">{escaped(words)}</text>'
        )
        x += room
    return drawn, y + 10


MOST_BOXES = 2_000
"""Boxes of operators over all pictures of a replay; one with more is shown in words."""
_WHOLE = 30
"""Operators up to which the whole dataflow is drawn, and not only the part in which something happens."""
_REPLAY_WIDTH = 900.0


def replay_frames(replay: ChangeReplay) -> Markup:
    """The steps as frames to step through: the dataflow with the versions that targets run, and the marker's way."""
    graph, steps = replay.graph, replay.steps
    is_whole = len(graph.operators) <= _WHOLE or graph.heads  # loops are drawn as a whole
    drawn = graph if is_whole else _part(graph, steps)
    words = [step.words for step in steps]
    if len(drawn.operators) * len(steps) > MOST_BOXES:
        return part("sentences", words)
    pictures = in_one_style(step_svg(drawn, step) for step in steps)
    frames = [part("frame", *each) for each in zip(pictures, words, strict=True)]
    return part("stepper", f"Steps of change {replay.change}", frames)


def step_svg(graph: Graph, step: ReplayStep) -> str:
    """The dataflow in one step as SVG: its targets with their versions, a ring where it happens, the marker's edges."""
    states = {name: words for name, words in step.states.items() if name in graph}
    found = {word for words in states.values() for word in words.split()}
    legend = {state: words for state, words in STATES.items() if state in found}
    labels = dict.fromkeys(step.edges, "marker")
    placed = layout(graph, _REPLAY_WIDTH, labelled=True)
    return draw(graph, placed, states, labels, {}, step.travelled, legend, {}, step.versions)


def _part(graph: Graph, steps: Iterable[ReplayStep]) -> Graph:
    """The operators at which something happens, and the edges between them."""
    names = {name for step in steps for name in [*step.states, *(end for ends in step.edges for end in ends)]}
    operators = tuple(operator for operator in graph.operators if operator.name in names)
    return Graph(graph.name, operators, tuple(edge for edge in graph.edges if {edge.source, edge.to} <= names))


MOST_COLUMNS = 8
"""Number of columns of the rows that came which are shown."""
MOST_LETTERS = 48
"""Length of a value beyond which it is cut."""
_EXAMPLES_LIGHT = {
    "table": "border-collapse: collapse; font-variant-numeric: tabular-nums",
    "caption": f"text-align: left; font-weight: 600; color: {markup.INK}; padding: 4px 0",
    "th, td": f"padding: 3px 8px; text-align: left; border-bottom: 1px solid {markup.LINE}; color: {markup.INK}",
    "mark": f"background: #fdf0d2; color: {markup.INK}; border-bottom: 2px solid {markup.ORANGE}",
}
_EXAMPLES_DARK = {
    "caption": f"color: {markup.NIGHT_INK}",
    "th, td": f"border-bottom-color: {markup.NIGHT_LINE}; color: {markup.NIGHT_INK}",
    "mark": f"background: #4a3a10; color: {markup.NIGHT_INK}",
}
_EXAMPLES_CSS = themed(".fries-examples", _EXAMPLES_LIGHT, _EXAMPLES_DARK)

Cell = tuple[str, bool]
"""A text, and whether it is marked."""


def example_parts(examples: Examples, words: str | None = None) -> Markup:
    """The rows of each operator as a table, with what they show in words, and why the change would be refused."""
    examples = examples.shown
    came = list(dict.fromkeys(name for one in examples.rows for name in one.came))
    changed, names = examples.changed, [name for name in came if name not in examples.changed]
    shown = names[:MOST_COLUMNS]
    operators = [
        (name, [list(_cells(one, shown, changed)) for one in examples.rows if one.operator == name])
        for name in dict.fromkeys(one.operator for one in examples.rows)
    ]
    sides = [f"{name} ({side})" for name in changed for side in ("before", "after")]
    hidden = f"{len(names) - len(shown)} more columns that came are in .table" if len(names) > len(shown) else ""
    lines = [line for line in (examples.words if words is None else words, hidden) if line]
    return part("examples", _EXAMPLES_CSS, [*shown, *sides, "result"], operators, lines, examples.refusal)


def _cells(example: Example, shown: Sequence[str], changed: Sequence[str]) -> Iterator[Cell]:
    for name in shown:
        yield shown_value(example.came.get(name, MISSING)), False
    one_sided = example.result in ("dropped", "added")
    for name in changed:
        for row in (example.before, example.after):
            is_marked = name in example.differs or (one_sided and row is not None)
            yield shown_value(MISSING if row is None else row.get(name, MISSING)), is_marked
    words = f"{example.result}: {example.error}" if example.error else example.result
    yield words, example.result not in ("same", "dropped as before")


def shown_value(value: Any) -> str:
    """A value as text, cut to ``MOST_LETTERS``; nothing where there is none."""
    if value is MISSING:
        return ""
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def effect_parts(effect: ChangeEffect) -> Markup:
    """The figures of a change's effect as a table; those that differ are marked."""
    effect = effect.shown
    groups = [
        (name, [list(_figures(one)) for one in effect.measures if one.operator == name])
        for name in dict.fromkeys(one.operator for one in effect.measures)
    ]
    return part("examples", _EXAMPLES_CSS, ["column", "measure", "before", "after"], groups, [effect.words], "")


def canary_parts(words: str, table: Any = None) -> Markup:
    """How far a canary is, and its comparison as a table; see ``Change.compare``."""
    if table is None:
        return part("rolled_out", _EXAMPLES_CSS, words, [])
    by = table.index.names[0] if table.index.nlevels > 1 else ""
    rows = [
        [*([group] if by else []), figure, *(shown_value(_side(side)) for side in sides)]
        for group, figure, *sides in shown_arms(table)
    ]
    if len(rows) > MOST_FIGURES:
        words = f"{words}; {MOST_FIGURES} of {len(rows):,} figures are shown, and change.compare(...) has all"
    head = [*([by] if by else []), "figure", "old", "new"]
    return part("rolled_out", _EXAMPLES_CSS, words, [(f"Both versions, by {by}" if by else "Both versions", head,
                                                      rows[:MOST_FIGURES])])  # fmt: skip


def rollout_parts(change: Change, shadow: Shadow | None = None, shows_values: bool = True) -> Markup:
    """How far a canary or a shadow is, what both versions have done, and their last comparison; empty of others.

    Of values of rows, which a comparison has, nothing is told unless it ``shows_values``.
    """
    if shadow is not None:
        return shadow_parts(str(shadow), shadow.compared if shows_values else None)
    if (status := change.canary) is None:
        return Markup("")
    told = canary_parts(str(status), change.compared if shows_values else None)
    if len(status.history) < 2:
        return told
    return told + part("figure", arms_svg(status.history), "Both versions since the canary began.")


_ARM_LEFT, _ARM_RIGHT, _ARM_TOP, _ARM_PANEL, _ARM_GAP, _ARM_BELOW = 64.0, 18.0, 32.0, 84.0, 26.0, 42.0
_ARMS_LIGHT = {
    "": "max-width: 100%; height: auto",
    ".paper": f"fill: {markup.PAPER}",
    "text": f"{FONT}; font-size: 11px; fill: {markup.SOFT}",
    ".axis, .key": f"font-size: 11.5px; fill: {markup.INK}",
    ".grid": f"stroke: {markup.LINE}; stroke-width: 1px",
    ".old, .new": "fill: none; stroke-width: 1.8px; stroke-linejoin: round",
    ".old": f"stroke: {BLUE}; stroke-dasharray: 6 3",
    ".new": f"stroke: {ORANGE}",
}
_ARMS_DARK = {
    ".paper": f"fill: {markup.NIGHT_PAPER}",
    "text": f"fill: {markup.NIGHT_SOFT}",
    ".axis, .key": f"fill: {markup.NIGHT_INK}",
    ".grid": f"stroke: {markup.NIGHT_LINE}",
    ".old": f"stroke: {SKY}",
}
_ARMS_CSS = themed(".fries-arms-svg", _ARMS_LIGHT, _ARMS_DARK)
_MEASURES: tuple[tuple[str, Callable[[ArmCounts], float | None]], ...] = (
    ("ms a row", lambda arm: arm.ms), ("failed rows", lambda arm: float(arm.failures))
)  # fmt: skip


def arms_svg(history: Sequence[ArmsLook], width: float = WIDTH) -> str:
    """Draw the time that a row takes and the failed rows of both versions over time; from two looks on.

    >>> looks = [ArmsLook(at_s, ArmCounts(9, 0, 0.2), ArmCounts(1, at_s > 5, 0.4)) for at_s in (0.0, 5.0, 10.0)]
    >>> svg = arms_svg(looks)
    >>> 'aria-label="Both versions over 10 s; at last: old 0.2 ms a row, 0 failed; new 0.4 ms a row, 1 failed"' in svg
    True
    >>> svg.count("<polyline")
    4
    """
    began_s, last = history[0].at_s, history[-1]
    across = Scale.of_time(0.0, last.at_s - began_s, _ARM_LEFT, width - _ARM_RIGHT)
    drawn, bottom = "", _ARM_TOP - _ARM_GAP
    for title, of in _MEASURES:
        top, bottom = bottom + _ARM_GAP, bottom + _ARM_GAP + _ARM_PANEL
        spots = {
            arm: [(look.at_s - began_s, value) for look in history if (value := of(getattr(look, arm))) is not None]
            for arm in ("old", "new")
        }
        up = Scale.of([value for each in spots.values() for _, value in each], bottom, top, logarithmic=False)
        drawn += grid(up, across, title, (top + bottom) / 2)
        for arm, values in spots.items():
            corners = " ".join(f"{number(across.at(at_s))},{number(up.at(value))}" for at_s, value in values)
            drawn += f'<polyline class="{arm}" points="{corners}"/>'
    key = "".join(
        f'<line class="{arm}" x1="{number(x)}" x2="{number(x + 24)}" y1="14" y2="14"/>'
        f'<text class="key" x="{number(x + 30)}" y="18">{arm} version</text>'
        for arm, x in (("old", _ARM_LEFT), ("new", _ARM_LEFT + 130))
    )
    ends = [f"{name} {'no' if arm.ms is None else f'{arm.ms:g}'} ms a row, {arm.failures:,} failed"
            for name, arm in (("old", last.old), ("new", last.new))]  # fmt: skip
    alt_text = f"Both versions over {last.at_s - began_s:.0f} s; at last: {'; '.join(ends)}"
    axis = time_axis(across, bottom, " since the canary began")
    return picture("arms", (width, bottom + _ARM_BELOW), alt_text, _ARMS_CSS, key, drawn, axis)


def rollout_svgs(change: Change, shadow: Shadow | None) -> list[str]:
    """The same as pictures, for what keeps no HTML: nothing of a change that is neither."""
    if shadow is not None and (found := shadow.compared) is not None:
        counted_as = (TextColumn("Rows"), TextColumn("Number", number=True))
        drawn = [rows_svg(str(shadow), counted_as, _counts(found))]
        columns = tuple(TextColumn(name) for name in ("Source row", "Column", "Old", "New"))
        examples = _shown_differences(found)[:_MOST_DRAWN]
        return [*drawn, *([rows_svg("The first that differ", columns, examples)] if examples else [])]
    if shadow is not None or (status := change.canary) is None:
        return []
    drawn = [arms_svg(status.history)] if len(status.history) > 1 else []
    if change.compared is None:
        return drawn
    rows = [(f"{group} {figure}".strip(), shown_value(_side(old)), shown_value(_side(new)))
            for group, figure, old, new in shown_arms(change.compared)]  # fmt: skip
    columns = (TextColumn("Figure"), *(TextColumn(name, number=True) for name in ("Old", "New")))
    return [*drawn, rows_svg(f"{change.label}: both versions", columns, rows[:_MOST_DRAWN])]


_MOST_DRAWN = 20
"""Rows of a comparison in a picture."""


def _side(value: Any) -> Any:
    return MISSING if value is None else value


def _counts(found: ShadowComparison) -> list[tuple[str, str]]:
    """What a shadow's comparison has counted, by what it is."""
    by_column = sorted(found.columns.items(), key=lambda one: -one[1])
    counts = [("same", found.same), ("differ", found.differ), *((f"differ in {name}", n) for name, n in by_column)]
    counts += [("only old", found.only_old), ("only new", found.only_new), ("waiting for their partner", found.waiting)]
    counts += [(f"{name}: failed", count) for name, count in found.failures.items()]
    counts += [(f"{name}: left out", count) for name, count in found.left_out.items()]
    return [(name, f"{count:,}") for name, count in counts]


def _shown_differences(found: ShadowComparison) -> list[tuple[str, ...]]:
    return [(str(source), column, shown_value(old), shown_value(new)) for source, column, old, new in found.differing]


def shadow_parts(words: str, found: ShadowComparison | None) -> Markup:
    """How far a shadow is, and its last comparison: counts, and the first rows that differ, old beside new."""
    if found is None:
        return part("rolled_out", _EXAMPLES_CSS, words, [])
    tables: list[tuple[str, list[str], Sequence[tuple[str, ...]]]] = [
        ("Rows compared", ["rows", "number"], _counts(found))
    ]
    if examples := _shown_differences(found):
        tables.append(("The first that differ", ["source row", "column", "old", "new"], examples[:MOST_FIGURES]))
    return part("rolled_out", _EXAMPLES_CSS, words, tables)


def _figures(measure: EffectFigure) -> Iterator[Cell]:
    yield measure.column, False
    yield measure.name, False
    yield shown_value(MISSING if measure.before is None else measure.before), False
    yield shown_value(MISSING if measure.after is None else measure.after), measure.differs
