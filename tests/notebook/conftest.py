"""What most tests of the notebook share: a shell with the extension, a dataflow in it, and stand-ins for runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, ipython, replace_runs, told


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """A fresh shell with the extension."""
    with ipython(tmp_path_factory.mktemp("ipython")) as shell:
        yield shell


@pytest.fixture
def with_fraud(shell: InteractiveShell) -> None:
    """A dataflow in the shell."""
    told(shell, FRAUD)


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Lets flows start stand-ins in place of runs, and collects them."""
    return replace_runs(monkeypatch)
