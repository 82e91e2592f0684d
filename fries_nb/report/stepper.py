"""Frames that a reader steps through, without script: one is shown at a time, with buttons for its neighbours.

The frames follow each other in a form whose radio buttons choose one; style rules turn the labels of its neighbours
into ``Previous`` and ``Next``. Keys work as for all radio buttons: Tab enters the group, arrows step. A form keeps the
radio buttons of several displays on one page apart. Where style rules are missing (an untrusted notebook), where the
browser does not know them, and in print, all frames are shown one below the other.

>>> html = stepper("Two frames", ["first", "second"])
>>> html.count('type="radio"'), html.count("checked>"), "Step 2 of 2" in html
(2, 1, True)
"""

from __future__ import annotations

from collections.abc import Sequence

from fries_nb.report.markup import Html, tag

_BUTTON = (
    "border: 1px solid currentColor; border-radius: 4px; padding: 3px 8px; text-align: center; cursor: pointer; "
    "white-space: nowrap"
)
_BACK, _ON = 'content: "\\2039\\00a0 Previous"', 'content: "Next\\00a0 \\203a"'
_END = f"grid-row: 1; {_BUTTON}; cursor: default; opacity: 0.4"
_HIDDEN = "position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap"
_CURRENT = "label:has(> :checked)"
_PREVIOUS, _NEXT = "label:has(+ section + label > :checked)", f"{_CURRENT} + section + label"
STYLE = f"""\
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
    parts: list[str] = [Html(f"<style>\n{STYLE}</style>")]
    for number, frame in enumerate(frames, start=1):
        chosen = " checked" if number == 1 else ""
        # JupyterLab has shortcuts of its own for arrows, except on elements with this attribute.
        button = Html(f'<input type="radio" name="step" data-lm-suppress-shortcuts="true"{chosen}>')
        parts += [tag("label", button, tag("span", f"Step {number} of {len(frames)}")), tag("section", frame)]
    # A dialog's form is never sent: another one may be by Enter, which leaves the page.
    return tag("form", *parts, class_="fries-steps", method="dialog", role="radiogroup", aria_label=name)
