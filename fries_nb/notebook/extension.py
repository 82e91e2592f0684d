"""What ``%load_ext fries_nb`` and ``%unload_ext fries_nb`` do: magics and their completion, no more.

Loading starts nothing and says nothing; unloading leaves what runs alone, and the variables that hold it.
"""

from __future__ import annotations

from collections.abc import Callable

from IPython.core.completer import IPCompleter
from IPython.core.interactiveshell import InteractiveShell

from fries_nb.notebook.known import Known
from fries_nb.notebook.magics import FriesMagics
from fries_nb.notebook.summaries import changeable, quoted

PREFIX = "fries_"


def completion(completer: IPCompleter, known: Known) -> Callable[[str], list[str]]:
    """What completes names of flows, runs and operators behind our magics; one of the completer's custom matchers."""

    def fries_names(text: str) -> list[str]:
        magic = completer.text_until_cursor.strip().partition(" ")[0].lstrip("%")
        if magic == "fries_run":
            options = [quoted(name) for name in known.flows()]
        elif magic == "fries_stop":
            options = [quoted(run.graph.name) for run in known.live()]
        elif magic == "fries_reconfigure":
            options = [f"{quoted(name)}=" for run in known.live() for name in changeable(run.graph)]
        else:
            return []
        return [option for option in options if option.startswith(text)]

    return fries_names


def load(shell: InteractiveShell) -> None:
    """Add the magics and their completion."""
    magics = FriesMagics(shell)
    shell.register_magics(magics)
    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(completion(shell.Completer, magics.known))


def unload(shell: InteractiveShell) -> None:
    """Take away what ``load`` added."""
    for kind in shell.magics_manager.magics.values():
        for name in [name for name in kind if name.startswith(PREFIX)]:
            del kind[name]
    if shell.Completer is not None:
        matchers = shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if matcher.__module__ != __name__]
