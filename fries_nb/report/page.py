r"""A self-contained HTML page: no script, no network access, no other files; follows the reader's light or dark mode.

It also holds the explanations that several pages give: of schedulers, of the audit and of the columns of tables.

>>> page("A & B", ['two']).startswith('<!DOCTYPE html>\n<html lang="en">')
True

Frames that a reader steps through, without script: one is shown at a time, with buttons for its neighbours.

The frames follow each other in a form whose radio buttons choose one; style rules turn the labels of its neighbours
into ``Previous`` and ``Next``. Keys work as for all radio buttons: Tab enters the group, arrows step. A form keeps the
radio buttons of several displays on one page apart. Where style rules are missing (an untrusted notebook), where the
browser does not know them, and in print, all frames are shown one below the other.

>>> html = stepper("Two frames", ["first", "second"])
>>> html.count('type="radio"'), html.count("checked>"), "Step 2 of 2" in html
(2, 1, True)
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from os import PathLike
from pathlib import Path

from fries_nb.errors import RunError
from fries_nb.report.markup import Html, defined, joined, listed, tag
from fries_nb.running.results import Place
from fries_nb.words import counted

STYLE = """\
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --band: #f6f8fa;
  --good: #00684a; --bad: #a23b00; }
@media (prefers-color-scheme: dark) { :root { --page: #15191e; --ink: #e6e9ed; --soft: #a3acb8; --line: #3a424c;
  --band: #1e242b; --good: #4fc79b; --bad: #f0a35e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Liberation Sans", sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 0.5rem; padding-top: 0.75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.25rem; }
p { margin: 0.5rem 0; }
.lead { font-size: 1.1rem; }
.place, figcaption, .note { color: var(--soft); font-size: 0.9rem; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
dl { margin: 0.5rem 0; }
dl > div { display: grid; grid-template-columns: 8rem 1fr; gap: 0 1rem; margin: 0.35rem 0; }
dt { font-weight: 600; }
dd { margin: 0; }
.wide { overflow-x: auto; margin: 0.75rem 0; overflow-wrap: normal; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: 0.9rem; padding: 0 0 0.35rem; }
th, td { padding: 0.35rem 0.6rem; border-bottom: 1px solid var(--line); vertical-align: top; text-align: left; }
thead th { border-bottom: 2px solid var(--line); background: var(--band); vertical-align: bottom; }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
figure { margin: 0.75rem 0; }
figure svg { display: block; max-width: 100%; height: auto; }
pre { overflow-x: auto; background: var(--band); border: 1px solid var(--line); border-radius: 6px; padding: 0.75rem;
  font-size: 0.85rem; }
code { font-family: ui-monospace, "Liberation Mono", monospace; }
summary { cursor: pointer; }
:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px; }
@media (max-width: 56rem) { table { font-size: 0.9rem; } th, td { padding: 0.3rem 0.4rem; } }
@media (max-width: 40rem) { dl > div { grid-template-columns: 1fr; } }
@media print { main { max-width: none; padding: 0; } .wide { overflow: visible; }
  .wide, figure, tr, dl > div { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""
SCHEDULERS = {
    "fries": "The message to switch overtakes all queued data and goes to the first operators of the smallest part "
    "of the dataflow that must change together; from there a marker travels along with the data. So the change takes "
    "milliseconds however long the queues are, and no tuple is processed by both old and new operators.",
    "epoch": "A marker enters at the sources and travels with the data through the whole dataflow; each operator "
    "switches when the marker reaches it. This is consistent as well, but the marker waits in every queue behind "
    "earlier data, so the change takes as long as the queues.",
    "naive": "Each operator that changes receives the message directly, past the queues, and switches at once. That is "
    "fast, but a tuple between two of them may be processed by the old version of one and the new version of the "
    "other, and its result is correct for neither.",
    "multiversion": "Each tuple carries a tag from the sources on: old or new. From the change on the operators run "
    "both versions side by side, by the tag, until the last old tuple has left. This is consistent without waiting for "
    "a marker; the cost is two configurations in memory at once.",
    "restart": "A checkpoint is taken, the whole job is ended, and it is restarted from the checkpoint with the new "
    "operators. This is consistent, but no data flows meanwhile.",
    "minibatch": "The sources hold until all tuples that they have sent have left the dataflow; then the operators "
    "switch and the sources continue. This is consistent; the cost is an empty dataflow.",
}
JUDGE = (
    "The audit reads a trace of all operations on all tuples, and checks whether processing whole tuples and whole "
    "changes one after the other, in some order, would have had the same result."
)
TERMS = {
    "delay": "Time from the request to the moment when the last worker has switched.",
    "prepare": "Part of the delay: the new functions are shipped and opened while the old ones keep working.",
    "commit": "Part of the delay: from the first message to the switch of the last worker.",
    "old tuples": "Tuples that the changed operators still processed with their old functions meanwhile.",
    "waiting before": "Tuples that waited in front of the changed operators when the change was requested.",
    "p99": "99 of 100 tuples took no longer than this from the time they were due until they reached the sink: before "
    "the change, and after it when what had queued up is worked off, or when that was waited for long enough.",
}


def setting_words(place: Place) -> str:
    """The setting in one line, with the versions of the software."""
    software = f"Python {platform.python_version()}, PySpark {version('pyspark')}, fries_nb {version('fries_nb')}"
    machine = f"{platform.system()} {platform.machine()} with {counted(os.cpu_count() or 1, 'core')}"
    credit = f"{place.budget / (1 << 20):,.3g} MiB of credit a host"
    began = f"Begun {datetime.fromtimestamp(place.began_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{began} · {counted(place.hosts, 'host')}, {credit} · {software} · {machine}"


def page(title: str, contents: Iterable[str]) -> str:
    """The complete HTML document."""
    head = tag(
        "head",
        Html('<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Html(f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>"),
    )
    main = tag("main", tag("h1", title), *contents)
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{tag("body", main)}\n</html>\n'


def schedulers(names: tuple[str, ...]) -> Html:
    """Definitions of these schedulers."""
    return defined((name.capitalize(), SCHEDULERS[name]) for name in names)


def terms(names: tuple[str, ...]) -> Html:
    """Definitions of these column headings."""
    return listed(joined([tag("b", name), f": {TERMS[name]}"]) for name in names)


def writable(path: str | PathLike[str]) -> Path:
    """The path, if a file can be written there.

    Raises:
        RunError: its directory does not exist, or it is itself a directory.
    """
    chosen = Path(path)
    if not chosen.parent.is_dir() or chosen.is_dir():
        raise RunError(f"cannot write a report to {str(path)!r}; expected a file name in a directory that exists")
    return chosen


def write_page(path: str | PathLike[str], text: str) -> str:
    """Write the document to a file and return its path.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        writable(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write a report to {str(path)!r}: {error.strerror}") from None
    return str(path)


_BUTTON = (
    "border: 1px solid currentColor; border-radius: 4px; padding: 3px 8px; text-align: center; cursor: pointer; "
    "white-space: nowrap"
)
_BACK, _ON = 'content: "\\2039\\00a0 Previous"', 'content: "Next\\00a0 \\203a"'
_END = f"grid-row: 1; {_BUTTON}; cursor: default; opacity: 0.4"
_HIDDEN = "position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap"
_CURRENT = "label:has(> :checked)"
_PREVIOUS, _NEXT = "label:has(+ section + label > :checked)", f"{_CURRENT} + section + label"
STEPPER_STYLE = f"""\
.fries-steps section > p {{ margin: 4px 0 8px; }}
.fries-steps svg {{ display: block; max-width: 100%; height: auto; }}
@supports selector(:has(+ a)) {{ @media not print {{
.fries-steps {{ position: relative; display: grid; gap: 8px 6px;
  grid-template-columns: max-content 7rem max-content 1fr; align-items: center; margin: 8px 0; line-height: 1.4; }}
.fries-steps > label {{ {_HIDDEN} }}
.fries-steps > label > input {{ position: absolute; opacity: 0; margin: 0; pointer-events: none; }}
.fries-steps > {_CURRENT}, .fries-steps > {_PREVIOUS}, .fries-steps > {_NEXT} {{
  position: relative; width: auto; height: auto; overflow: visible; clip-path: none; grid-row: 1; }}
.fries-steps > {_CURRENT} {{ grid-column: 2; text-align: center; border-radius: 4px; padding: 3px 0; }}
.fries-steps > {_CURRENT}:has(:focus-visible) {{ outline: 3px solid #0072b2; }}
.fries-steps > {_PREVIOUS} {{ grid-column: 1; {_BUTTON} }}
.fries-steps > {_NEXT} {{ grid-column: 3; {_BUTTON} }}
.fries-steps > {_PREVIOUS} > span, .fries-steps > {_NEXT} > span {{ {_HIDDEN} }}
.fries-steps > {_PREVIOUS}::after {{ {_BACK} }}
.fries-steps > {_NEXT}::after {{ {_ON} }}
.fries-steps:has(> label:first-of-type > :checked)::before {{ {_BACK}; grid-column: 1; {_END} }}
.fries-steps:has(> label:last-of-type > :checked)::after {{ {_ON}; grid-column: 3; {_END} }}
.fries-steps > section {{ display: none; grid-row: 2; grid-column: 1 / -1; }}
.fries-steps > {_CURRENT} + section {{ display: block; }}
}} }}
"""


def stepper(name: str, frames: Sequence[str]) -> Html:
    """The frames in a form.

    Args:
        name: the name of the group, for screen readers.
        frames: the contents of each frame, markup or text.
    """
    parts: list[str] = [Html(f"<style>\n{STEPPER_STYLE}</style>")]
    for number, frame in enumerate(frames, start=1):
        chosen = " checked" if number == 1 else ""
        # JupyterLab has shortcuts of its own for arrows, except on elements with this attribute.
        button = Html(f'<input type="radio" name="step" data-lm-suppress-shortcuts="true"{chosen}>')
        parts += [tag("label", button, tag("span", f"Step {number} of {len(frames)}")), tag("section", frame)]
    # A dialog's form is never sent: another one may be by Enter, which leaves the page.
    return tag("form", *parts, class_="fries-steps", method="dialog", role="radiogroup", aria_label=name)
