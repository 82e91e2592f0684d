"""The log of a controller: over seeded runs with changes, kills and checkpoints each step has its words."""

from __future__ import annotations

from collections import Counter

import pytest
from controller_setting import FRAUD

from fries_nb.controller.event_log import MOST, EventLog
from fries_nb.controller.events import Answered, ChangeRequested, HostLost, Tell
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import Done, Fcm, Marker, Prepare, Reconfigure, WorkerId
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.scenarios import draw_focused, play

FM = WorkerId("FM", 0)


class Logged(Cluster):
    """A cluster whose drivers' logs are kept, also of those that were killed."""

    def __init__(self, *args, **settings):
        self.logs = []
        super().__init__(*args, **settings)

    def _lead(self, incarnation, restored):
        super()._lead(incarnation, restored)
        self.logs.append(self.driver.queue.log)


def test_each_change_of_seeded_runs_has_its_story():
    """From its request to its outcome, whatever is killed meanwhile; and no step is without words."""
    seen = Counter()
    for seed in range(15):
        cluster = play(draw_focused(seed), Logged).cluster
        noted = [one for log in cluster.logs for one in log.noted()]
        assert all(one.words and len(one.words) < 2_000 for one in noted)
        assert [one.at_ns for one in cluster.logs[-1].noted()] == sorted(one.at_ns for one in cluster.logs[-1].noted())
        for change, outcome in cluster.outcomes.items():
            about = [one.words for one in noted if one.change == change]
            if len(cluster.logs) == 1 and len(noted) < MOST and about:
                assert "is requested by" in about[0]
                assert any(f"change {change} is {outcome.outcome}" in words for words in about)
                seen[outcome.outcome] += 1
                seen["switched"] += any("has switched at marker" in words for words in about)
    assert min(seen["done"], seen["aborted"], seen["switched"]) > 0, seen


def test_the_log_is_a_ring_of_words():
    """It keeps the last ones, and neither the code of functions nor markers for ever."""
    log = EventLog()
    for number in range(3 * MOST):
        marker = Marker(number, frozenset({"FM"}), Reconfigure(f"u{number}", frozenset({"FM"})))
        log.note(number, Tell(FM, Fcm(marker)))
        log.note(number, Answered(Done(number, FM, switched=True)))
    noted = log.noted()
    assert len(noted) == MOST
    assert noted[-1] == (3 * MOST - 1, f"u{3 * MOST - 1}", f"FM[0] has switched at marker {3 * MOST - 1}")
    assert len(log._changes) <= MOST + 1
    for number in range(3 * MOST):
        log.note(4 * MOST, HostLost(number, "its process died"))
    assert log.noted()[:MOST] == noted, "what is about no change leaves the changes' entries"
    log.note(0, Tell(FM, Prepare("u", b"x" * 1_000_000)))
    assert sum(len(one.words) for one in log.noted()) < 200_000


@pytest.mark.parametrize("scheduler", ["fries", "epoch", "naive", "multiversion", "restart", "minibatch"])
def test_a_request_names_its_targets_and_its_scheduler(scheduler):
    """In the order of their names."""
    log, graph = EventLog(), FRAUD
    targets = sorted(name for name in graph.by_name if name not in graph.sources)[:2]
    log.note(0, ChangeRequested("u1", schedule(scheduler, graph, targets), {}))
    assert log.noted()[0].words == f"change u1 of {', '.join(targets)} is requested by {scheduler}"


def test_a_rollback_says_what_it_undoes():
    """And a host that is gone, why."""
    log, graph = EventLog(), FRAUD
    targets = [name for name in graph.by_name if name not in graph.sources][:1]
    log.note(0, ChangeRequested("u2", schedule("fries", graph, targets), {}, undoes="u1"))
    log.note(1, HostLost(1, "its process died"))
    assert log.noted()[0].words.endswith("is requested by fries, which undoes u1")
    assert log.noted()[1] == (1, "", "host 1 is gone: its process died")
