"""What a notebook says of a run that waits: for new hosts, or for its user."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebook_shell import FRAUD, ipython, replace_runs, told

from fries_nb.messages import Paused, WorkerId
from fries_nb.notebook.statuses import status_line, troubles
from fries_nb.running.seen import Recovery


def test_status_says_what_a_run_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that stands is named with its error and the magic that mends it; a recovery with its reason."""
    with ipython(tmp_path / "ipython") as shell:
        told(shell, FRAUD)
        started = replace_runs(monkeypatch)
        told(shell, "%fries_run")
        run = started[0]
        assert troubles(run) == []  # type: ignore[arg-type]
        run.standing = {"FM": (Paused(WorkerId("FM", 0), "FM[0] failed: KeyError: 'shop'"),)}
        stands = "FM stands: FM[0] failed: KeyError: 'shop'; fix it alone, with %fries_reconfigure FM=..."
        assert told(shell, "%fries_status").splitlines()[2] == f"fraud: {stands}"
        assert status_line(run, run.metrics()).endswith(f" · {stands}")  # type: ignore[arg-type]
        run.state = "recovering"
        run.recoveries = (Recovery("host 0 was lost", 1.0, 2, 0.5), Recovery("host 1 was lost", 9.0, 4))
        lost = "hosts are started again: host 1 was lost"
        assert status_line(run, run.metrics()).startswith(f"fraud: recovering · 0 tuples/s · {lost}")  # type: ignore[arg-type]
        run.recoveries = (Recovery("host 1 was lost", 9.0, 4, 1.5),)
        assert troubles(run) == [stands]  # type: ignore[arg-type]
        run.state = "stopped"
        assert troubles(run) == []  # type: ignore[arg-type]
