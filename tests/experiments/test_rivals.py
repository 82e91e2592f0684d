"""The rivals of the experiments and of the benchmarks: what they compute, and what they leave behind."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from fries_nb.experiments.bench.maps import THREE
from fries_nb.experiments.bench.ours import payments_file
from fries_nb.experiments.rivals.plain_loops import FORMS, apply_to_file, score_file
from fries_nb.experiments.rivals.streaming_jobs import Model, replace_model, scratch_directory, served
from fries_nb.workloads.video import VideoFeed, video_reference


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


def test_a_batch_that_begins_while_the_model_is_replaced_reads_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The old one, until the new one is complete."""
    place, replace, seen = tmp_path / "model.pickle", os.replace, list[Model]()

    def look(new: Path, old: Path) -> None:
        seen.append(pickle.loads(place.read_bytes()))
        replace(new, old)
        seen.append(pickle.loads(place.read_bytes()))

    replace_model(place, Model(0, 25.0))
    monkeypatch.setattr(os, "replace", look)
    replace_model(place, Model(1, 10.0))
    assert seen == [Model(0, 25.0), Model(1, 10.0)]


def test_structured_streaming_serves_the_frames_that_the_pipeline_defines() -> None:
    """However the packets of a group are divided among micro-batches."""
    feed = VideoFeed(streams=4, height=24, width=32)
    packets = pd.DataFrame([feed(value) | {"group": 0, "due": float(value)} for value in range(12)])
    state, found = GroupState(), list[pd.DataFrame]()
    for first, last in ((0, 3), (3, 9), (9, 12)):
        found += served((0,), [packets[first:last]], state)
    frames = pd.concat([one for one in found if len(one)])
    assert frames[["group", "number", "size", "checksum"]].to_dict("records") == list(video_reference(feed, frames=3))
    assert frames["due"].tolist() == [0.0, 4.0, 8.0], "of the first of four packets"


class GroupState:
    """The state of one group, as Spark passes it."""

    exists = False

    def update(self, value: tuple[bytes]) -> None:
        """Replace it."""
        self.exists, self.get = True, value


def test_the_loops_do_what_our_side_does(tmp_path: Path) -> None:
    """Both forms of the plain loop give the same scores, and the loop over batches what the functions give."""
    lean = payments_file(2_000, tmp_path, ["TRANSACTION_ID", "CUSTOMER_ID", "TX_AMOUNT"])
    assert [score_file(lean, tmp_path / form, form) for form in FORMS] == [2_000, 2_000]
    scored = [pq.read_table(tmp_path / form) for form in FORMS]
    assert scored[0].column_names == ["TRANSACTION_ID", "CUSTOMER_ID", "TX_AMOUNT", "SCORE"]
    assert scored[0].equals(scored[1])
    whole = payments_file(2_000, tmp_path)
    batch = pq.read_table(whole).combine_chunks().to_batches()[0]
    for function in THREE:
        batch = function(batch)
    for dictionary_bytes in (None, 1_000):
        assert apply_to_file(whole, tmp_path / "risks", dictionary_bytes) == 2_000
        assert pq.read_table(tmp_path / "risks").to_pylist() == batch.to_pylist()
