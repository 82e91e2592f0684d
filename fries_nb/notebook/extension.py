"""What ``%load_ext fries_nb`` and ``%unload_ext fries_nb`` do: magics and their completion, no more.

Loading starts nothing and says nothing; unloading leaves what runs alone, and the variables that hold it.
"""

from __future__ import annotations

from IPython.core.completer import IPCompleter
from IPython.core.interactiveshell import InteractiveShell

from fries_nb.notebook.known import Known
from fries_nb.notebook.magics import FriesMagics
from fries_nb.notebook.summaries import changeable, quoted

PREFIX = "fries_"


class Completion:
    """Completes names of flows, runs and operators behind our magics; one of the completer's custom matchers."""

    def __init__(self, completer: IPCompleter, known: Known) -> None:
        self._completer = completer
        self._known = known

    def __call__(self, text: str) -> list[str]:
        """What could be meant by a word that was begun."""
        magic = self._completer.text_until_cursor.strip().partition(" ")[0].lstrip("%")
        if magic == "fries_run":
            options = list(self._known.flows())
        elif magic == "fries_stop":
            options = [run.graph.name for run in self._known.live()]
        elif magic == "fries_reconfigure":
            options = [f"{quoted(name)}=" for run in self._known.live() for name in changeable(run.graph)]
        else:
            return []
        return [option for option in options if option.startswith(text)]


def load(shell: InteractiveShell) -> None:
    """Add the magics and their completion."""
    magics = FriesMagics(shell)
    shell.register_magics(magics)
    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(Completion(shell.Completer, magics.known))


def unload(shell: InteractiveShell) -> None:
    """Take away what ``load`` added."""
    for kind in shell.magics_manager.magics.values():
        for name in [name for name in kind if name.startswith(PREFIX)]:
            del kind[name]
    if shell.Completer is not None:
        matchers = shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if not isinstance(matcher, Completion)]
