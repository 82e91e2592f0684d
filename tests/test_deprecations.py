"""What a package showed under an earlier name works for one version, and says the new name."""

from __future__ import annotations

import importlib

import pytest

from fries_nb.dataflow.graph import Graph
from fries_nb.deprecations import RENAMED
from fries_nb.running.handle import Run
from fries_nb.telemetry.telemetry import Telemetry

NAMES = [(package, old, new) for package, names in RENAMED.items() for old, new in names.items()]


@pytest.mark.parametrize(("package", "old", "new"), NAMES)
def test_an_old_name_works_with_a_warning_that_says_the_new_one(package: str, old: str, new: str) -> None:
    """It is the very same object, and the warning points at the line that asked."""
    module = importlib.import_module(package)
    with pytest.warns(FutureWarning, match=f"{package}.{old} is now called {new}") as told:
        assert getattr(module, old) is getattr(module, new)
    assert told[0].filename == __file__


@pytest.mark.parametrize("package", RENAMED)
def test_what_never_was_is_missing_as_ever(package: str) -> None:
    """The hook answers for the table only, and no old name stands in a list of names."""
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing
    assert not RENAMED[package].keys() & set(getattr(module, "__all__", ()))


def test_what_is_paused_is_shown_by_its_earlier_name_as_well() -> None:
    """``run.standing`` is ``run.paused``, with a warning at the line that asked."""
    run = object.__new__(Run)
    run._telemetry = Telemetry(Graph("none", (), ()))
    with pytest.warns(FutureWarning, match=r"Run\.standing is now called Run\.paused") as told:
        assert run.standing is run.paused
    assert told[0].filename == __file__
