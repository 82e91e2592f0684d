"""The rivals of the experiments: what they leave behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fries_nb.experiments.rivals.streaming_w1 import scratch_directory


def test_files_that_spark_creates_during_the_removal_are_removed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped query's tasks write on for a while; a removal that meets them begins again."""
    remove, late = os.rmdir, iter(["a", "b", "c"])

    def rmdir(path: Any, **options: Any) -> None:
        if name := next(late, ""):
            Path(directory, name).touch()
        remove(path, **options)

    with scratch_directory() as directory:
        Path(directory, "checkpoint", "state").mkdir(parents=True)
        monkeypatch.setattr(os, "rmdir", rmdir)
    assert not Path(directory).exists()
