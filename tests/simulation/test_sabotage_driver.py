"""The core of a driver and its committer are those of Spark, under seeds: each rule that is broken is seen.

Hosts and drivers die, disks are full, and the commit of a sink may fail, which ends the run.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest
from interleaving_checks import LAWS, is_lossless, journals_decisions, lacking, sets_poison_aside, try_seed
from soak import caught, first_tried

from fries_nb.controller import events
from fries_nb.driver.committer import Committer
from fries_nb.driver.driver_core import DriverCore
from fries_nb.errors import CheckpointError, SinkError
from fries_nb.simulation import cluster as seeded
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.faults import DriverKilled
from fries_nb.simulation.scenarios import draw_troubled

MOST_SEEDS = 80
LOST = "could not commit epoch"


def draw_losing(seed):
    """Draw a scenario with trouble in which commits of sinks fail as well."""
    plain = draw_troubled(seed)
    chance = random.Random(f"losing {seed}")
    faults = replace(
        plain.cluster["faults"], full_disk=chance.choice((0.0, 0.2)), bad_sinks=chance.choice((0.0, 0.1, 0.3))
    )  # fmt: skip
    return replace(plain, cluster=plain.cluster | {"faults": faults})


class DyingAtCommits(Cluster):
    """A cluster whose driver may die when a record is kept, and its output is not committed yet."""

    deaths = 2

    def _see(self, instruction):
        super()._see(instruction)
        if isinstance(instruction, events.CommitFiles) and self.deaths and self.random.random() < 0.1:
            self.deaths -= 1
            raise DriverKilled


def keeps_what_it_can(played):
    """A run that has lost output fails in words, and has decided nothing since; all others keep all laws."""
    cluster = played.cluster
    has_lost = LOST in cluster.error
    for law in (journals_decisions, is_lossless, sets_poison_aside) if has_lost else LAWS:
        law(played)
    if has_lost:
        assert cluster.state == "failed"
        assert cluster.store.lost[-1] == (len(cluster.store.decided), len(cluster.store.records))


def try_losing(seed):
    """Play a seed with such losses, and check it."""
    return try_seed(seed, draw_losing, DyingAtCommits, [keeps_what_it_can])


def test_a_run_that_cannot_commit_fails_in_words():
    """And one that is resumed after the death of a driver commits what that one had kept."""

    def met(seed):
        cluster = try_losing(seed).cluster
        resumed = bool(cluster.store.lost) and cluster.state == "finished"
        return {"lost": LOST in cluster.error, "resumed": resumed, "went on": not cluster.store.lost}

    assert lacking(8, ["lost", "resumed", "went on"], met, most=60, shown=(250,)) == {}


def _drops_failures(committer, epoch, files):
    for sink, names in files.items():
        with contextlib.suppress(SinkError):
            committer._sinks[sink].commit(epoch, names)
    return []


def _forgets_why(committer, epoch, files, commit=Committer.commit):
    failed = commit(committer, epoch, files)
    committer.failure = ""
    return failed


def _commits_again(committer, epoch, files, commit=Committer.commit):
    before = committer.__dict__.setdefault("before", {})
    both = {sink: (*names, *before.get(sink, ())) for sink, names in files.items()}
    before.update(files)
    return commit(committer, epoch, both)


def _counts_wrong(committer, epoch, files, commit=Committer.commit):
    return commit(committer, epoch + 1, files)


def _commits_one_sink(committer, epoch, files, commit=Committer.commit):
    return commit(committer, epoch, dict(list(files.items())[:1]))


def _commits_before_the_record(committer, record, keep=Committer.keep):
    committer.commit(record.epoch, record.sinks)
    return keep(committer, record)


def _says_kept(committer, record):
    with contextlib.suppress(CheckpointError):
        committer._place.keep(record)
    return [events.CheckpointKept(record.epoch)]


def _keeps_nothing(committer, record):
    return [events.CheckpointKept(record.epoch)]


def _decides_later(committer, decided, decide=Committer.decide):
    late, committer.late = getattr(committer, "late", None), decided
    if late is not None:
        decide(committer, late)


def _decides_twice(committer, decided, decide=Committer.decide):
    decide(committer, decided)
    decide(committer, decided)


def _goes_on(core, instruction, carry_out=DriverCore._carry_out):
    core._failing = False
    return carry_out(core, instruction)


def _forgets_whom_it_refuses(core, instruction):
    core._peers.pop(instruction.host, None)
    core.hosts.pop(instruction.host, None)


def _takes_the_region_of_before(core, order, recover=DriverCore._recover):
    before = core.region
    recover(core, order)
    core.region = before


BROKEN = {
    "the failure of a commit is dropped": (Committer, "commit", _drops_failures),
    "why a commit failed is forgotten": (Committer, "commit", _forgets_why),
    "parts are committed twice": (Committer, "commit", _commits_again),
    "a commit has the next number": (Committer, "commit", _counts_wrong),
    "one sink of several commits": (Committer, "commit", _commits_one_sink),
    "output comes before its record": (Committer, "keep", _commits_before_the_record),
    "a record that was not written is said to be kept": (Committer, "keep", _says_kept),
    "no record is written": (Committer, "keep", _keeps_nothing),
    "a decision is said before it is durable": (Committer, "decide", _decides_later),
    "a decision is written twice": (Committer, "decide", _decides_twice),
    "a resumed run leaves the last commit out": (seeded, "complete", lambda checkpoint, sinks: None),
    "decisions follow lost output": (DriverCore, "_carry_out", _goes_on),
    "a host that is refused is forgotten": (DriverCore, "_refuse", _forgets_whom_it_refuses),
    "the region stays that of before": (DriverCore, "_recover", _takes_the_region_of_before),
}
SHOWN = {
    "the failure of a commit is dropped": 1, "decisions follow lost output": 335,
    "why a commit failed is forgotten": 19, "parts are committed twice": 29,
    "output comes before its record": 7, "a record that was not written is said to be kept": 15,
    "a decision is said before it is durable": 5, "a decision is written twice": 5,
    "a resumed run leaves the last commit out": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_driver_is_caught(monkeypatch, name):
    """Without this rule some run breaks a promise, or comes to no end."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), try_losing, by=Exception) is not None
