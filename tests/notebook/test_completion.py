"""Completion behind the magics: what may stand there, and nothing else."""

from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.mark.parametrize(
    ("begun", "completed"),
    [
        ("%fries_plan F", "FM"),
        ("%fries_plan FM --s", "--scheduler"),
        ("%fries_plan FM --scheduler ep", "epoch"),
        ("%fries_plan FM --of fr", "fraud"),
        ("%fries_constrain numb", "numbers"),
        ("%fries_constrain FM --on-violation t", "tell"),
        ("%fries_constrain FM --lat", "--latency"),
        ("%fries_audit --of f", "fraud"),
        ("%fries_rollback --of f", "fraud"),
        ("%fries_loops --of f", "fraud"),
        ("%fries_frontier F", "FM"),
        ("%fries_rescale ", "3"),
        ("%fries_rescale F", "FM="),
        ("%fries_rescale 3 --at", "--at-once"),
        ("%fries_rescale 3 --of fr", "fraud"),
        ("%fries_frontier FM --o", "--of"),
        ("%%fries_reconfigure --no", "--no-pruning"),
        ("%fries_run --au", "--audit"),
        ("%fries_shadow F", "FM="),
        ("%fries_shadow --pro", "--promote"),
    ],
)
def test_names_and_options_are_completed(
    shell: InteractiveShell, stand_ins: list[StandIn], begun: str, completed: str
) -> None:
    """Operators, flows, runs, schedulers and options, each where it can stand."""
    told(shell, "%fries_run")
    assert completed in shell.complete("", begun, len(begun))[1]


@pytest.mark.parametrize("begun", ["%fries_plan ", "%fries_plan a", "%fries_run a", "%%fries_reconfigure a"])
def test_python_is_completed_in_expressions_only(shell: InteractiveShell, stand_ins: list[StandIn], begun: str) -> None:
    """No keyword and no variable stands where a name or an option is due; both do behind OPERATOR=."""
    told(shell, "%fries_run")
    told(shell, "another = 1; another")
    assert not {"and", "another", "%alias"} & completions(shell, begun)
    assert "another" in completions(shell, "%fries_reconfigure FM=an")


def test_variables_that_hold_lighter_functions_are_completed(
    shell: InteractiveShell, stand_ins: list[StandIn]
) -> None:
    """No others: a bare function is refused there, since it does not say whose it is."""
    told(shell, "small = fn.lighter({'FM': dict}); smaller = dict; small")
    assert completions(shell, "%fries_constrain FM --latency 80 --lighter sm") == {"small"}
    assert "small" in completions(shell, "%fries_constrain FM --latency 80 --lighter ")


def completions(shell: InteractiveShell, begun: str) -> set[str]:
    """What a kernel offers behind a line that has begun so."""
    assert shell.Completer is not None
    with provisionalcompleter():
        return {one.text for one in shell.Completer.completions(begun, len(begun))}
