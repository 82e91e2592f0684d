"""``%load_ext fries_nb`` and ``%unload_ext fries_nb``: registers the magics, their completion and the display of runs.

Loading starts nothing and prints nothing; unloading affects neither runs nor the variables that hold them.
"""

from __future__ import annotations

import functools
from typing import Any

from IPython.core.error import UsageError
from IPython.core.formatters import IPythonDisplayFormatter, MimeBundleFormatter
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError

from fries_nb.errors import RunError
from fries_nb.long_calls import show_with
from fries_nb.notebook.comparison_magics import FriesComparing
from fries_nb.notebook.completion import completion
from fries_nb.notebook.constraint_magics import FriesConstraints
from fries_nb.notebook.dashboard_magics import FriesDashboard
from fries_nb.notebook.known import Registry
from fries_nb.notebook.leftovers import Notes
from fries_nb.notebook.magics import FriesMagics
from fries_nb.notebook.options import shortened
from fries_nb.notebook.progress_magics import FriesProgress
from fries_nb.notebook.progress_output import shown_call
from fries_nb.notebook.questions import FriesQuestions
from fries_nb.notebook.rescale_magics import FriesRescaling
from fries_nb.notebook.run_display import RunDisplay
from fries_nb.run import Run

PREFIX = "fries_"


def load(shell: InteractiveShell) -> None:
    """Register the magics and their completion."""
    known, notes = Registry(shell.user_ns), Notes()
    try:
        doing = FriesMagics(shell, known, notes)
    except TraitError as error:  # in the user's ipython_config.py, or by an earlier %config
        raise UsageError(f"fries_nb cannot be loaded: {error}; %config changes it for this session") from error
    questions = FriesQuestions(shell, known, notes, doing)
    rescaling = FriesRescaling(shell, known, lambda: doing.refresh)
    display = RunDisplay(shell, lambda: doing.refresh)
    others = (
        FriesConstraints(shell, known), FriesProgress(shell, known), FriesComparing(shell, known),
        FriesDashboard(shell, known, functools.partial(_display, shell, display)),
    )  # fmt: skip
    magics = (doing, questions, rescaling, *others)
    shell.register_magics(*magics)
    show_with(functools.partial(shown_call, shell))
    _shown_as(shell).for_type(Run, display)
    if getattr(shell, "kernel", None) is not None:
        _shown_by(shell).for_type(Run, display.show)
    if shell.Completer is not None:
        ours = {name: getattr(magic, name) for magic in magics for name in dir(magic) if name.startswith(PREFIX)}
        shell.Completer.custom_matchers.append(completion(known, ours))


def show(run: Any, offer: Any) -> None:
    """Show a run in the cell that is being executed; see ``fries_nb.show``."""
    shell = get_ipython()
    if shell is None:
        raise RunError("fn.show(run) needs a notebook; elsewhere run.metrics() and run.report(path) say how it goes")
    if not isinstance(run, Run):
        raise RunError(f"fn.show(run) shows what flow.run() returned; got {shortened(repr(run))}")
    if f"{PREFIX}run" not in shell.magics_manager.magics["line"]:
        shell.run_line_magic("load_ext", "fries_nb")
    _display(shell, _shown_as(shell).for_type(Run), run, offer)


def _display(shell: InteractiveShell, display: Any, run: Run, offer: Any) -> None:
    """Show a run in the cell that is being executed: live where there is a kernel."""
    if getattr(shell, "kernel", None) is not None:
        display.show(run, offer)
    else:
        shell.display_pub.publish(display(run))


def _shown_as(shell: InteractiveShell) -> MimeBundleFormatter:
    assert shell.display_formatter is not None  # every shell has one
    formatter: MimeBundleFormatter = shell.display_formatter.mimebundle_formatter
    return formatter


def _shown_by(shell: InteractiveShell) -> IPythonDisplayFormatter:
    assert shell.display_formatter is not None
    formatter: IPythonDisplayFormatter = shell.display_formatter.ipython_display_formatter
    return formatter


def unload(shell: InteractiveShell) -> None:
    """Remove everything that ``load`` registered."""
    for kind in shell.magics_manager.magics.values():
        for name in [name for name in kind if name.startswith(PREFIX)]:
            del kind[name]
    show_with(None)
    ours = (
        FriesMagics, FriesQuestions, FriesConstraints, FriesProgress, FriesRescaling, FriesComparing, FriesDashboard
    )  # fmt: skip
    shell.configurables[:] = [one for one in shell.configurables if not isinstance(one, ours)]
    _shown_as(shell).pop(Run, None)
    _shown_by(shell).pop(Run, None)
    if shell.Completer is not None:
        matchers = shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if matcher.__module__ != completion.__module__]
