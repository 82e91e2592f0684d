"""Hosts, rates, and the three ways in which a run ends."""

from __future__ import annotations

import math

import pytest
from controller_setting import FM_ALONE, MC_ALONE, Desk, only, told

from fries_nb.controller.events import (
    Admit,
    Answered,
    DismissHosts,
    DrainRequested,
    HostJoined,
    HostLeft,
    HostLost,
    HostsUnfit,
    RateRequested,
    RefuseHost,
    RunEnded,
    StopRequested,
    Tell,
    Tick,
)
from fries_nb.errors import DataflowError, ProtocolError, SourceError
from fries_nb.protocol.messages import Abort, Drain, Failed, Report, SetRate, WorkerId


def test_the_dataflow_starts_when_all_hosts_have_joined():
    """In whatever order they come; each learns where its peers are."""
    desk = Desk(joined=False)
    assert desk.hear(HostJoined(1, "b", 3)) == []
    assert desk.controller.state == "joining"
    assert desk.hear(HostJoined(0, "a", 3)) == [Admit({0: "a", 1: "b"})]
    assert desk.controller.state == "running"


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (HostJoined(0, "x", 2), "incarnation 2 is over; this run is at incarnation 3"),
        (HostJoined(2, "x", 3), "no host 2 in this run; expected 0 to 1"),
    ],
)
def test_survivors_and_strangers_are_refused_without_harm(hello, reason):
    """The run does not notice."""
    desk = Desk()
    assert desk.hear(hello) == [RefuseHost(hello.host, reason)]
    assert desk.controller.state == "running"


@pytest.mark.parametrize("hello", [HostJoined(1, "x", 3), HostJoined(1, "x", 4)])
def test_a_host_that_spark_started_again_fails_the_run(hello):
    """What its workers held is gone: one sentence, and everybody goes home."""
    desk = Desk()
    refused, dismissed, ended = desk.hear(hello)
    assert isinstance(refused, RefuseHost)
    assert isinstance(dismissed, DismissHosts)
    assert ended.state == "failed"
    assert ended.error.startswith("host 1 was lost (Spark started it again")
    assert ended.error.endswith("; what was committed stays readable")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (HostLost(1, "its connection broke"), "its connection broke"),
        (HostLeft(1), "it left before the run was over"),
    ],
)
@pytest.mark.parametrize("joined", [True, False])
def test_a_lost_host_fails_the_run(event, reason, joined):
    """Before the start as well as after it."""
    error = f"host 1 was lost ({reason}); what was committed stays readable"
    assert Desk(joined=joined).hear(event) == [DismissHosts(error), RunEnded("failed", error)]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_silence_is_no_loss(joined, checkpoints):
    """However long a host says nothing, in ``open()`` or under load: network and Spark report losses."""
    desk = Desk(joined=joined, checkpoints=checkpoints)
    desk.hear(HostJoined(0, "a", 3)) if not joined else None
    for _ in range(3):
        assert desk.hear(Tick(), after_ms=24 * 3_600_000) == []
    assert desk.controller.state == ("running" if joined else "joining")


def test_messages_from_hosts_that_are_none_are_refused():
    """A caller that names a host of another run is wrong, and the run goes on."""
    desk = Desk(joined=False)
    for event in (HostLost(2, "?"), HostLeft(-1), Answered(Report(WorkerId("FM", 0), 0, 0))):
        with pytest.raises(ProtocolError):
            desk.hear(event)
    assert desk.controller.state == "joining"


def test_the_last_report_of_each_worker_is_kept():
    """It is what `metrics` shows."""
    desk = Desk()
    for processed in (1, 2):
        desk.answer(Report(WorkerId("FM", 0), processed, 0))
    assert {str(worker): report.processed for worker, report in desk.controller.metrics.items()} == {"FM[0]": 2}


# ---- rates and drain


def test_a_rate_is_shared_by_the_workers_of_the_source():
    """Tuples per second in all, of which each worker reads the share of its splits; one that has ended is not told."""
    desk = Desk()
    assert desk.hear(RateRequested("payments", 9_000)) == [
        Tell(worker, SetRate(9_000)) for worker in desk.workers("payments")
    ]
    unlimited = desk.hear(RateRequested("payments", math.inf))
    assert {tell.control for tell in unlimited if isinstance(tell, Tell)} == {SetRate(math.inf)}
    desk.hear(RateRequested("payments", 0))
    desk.ended("payments")
    assert desk.hear(RateRequested("payments", 1)) == []


@pytest.mark.parametrize(
    ("operator", "rate", "error", "message"),
    [
        ("payment", 1, DataflowError, "no source 'payment'; expected one of payments; did you mean 'payments'?"),
        ("FM", 1, DataflowError, "no source 'FM'"),
        ("payments", -1, SourceError, "a rate of -1"),
        ("payments", float("nan"), SourceError, "a rate of nan"),
    ],
)
def test_bad_rates_are_refused(operator, rate, error, message):
    """In words, and the run goes on."""
    desk = Desk()
    with pytest.raises(error, match=message.replace("?", r"\?")):
        desk.hear(RateRequested(operator, rate))
    assert desk.controller.state == "running"


def test_requests_before_the_start_are_carried_out_after_it():
    """A rate and a drain asked for while hosts are joining are not lost."""
    desk = Desk(joined=False)
    assert desk.hear(RateRequested("payments", 10)) == []
    assert desk.hear(DrainRequested()) == []
    desk.hear(HostJoined(0, "a", 3))
    started = desk.hear(HostJoined(1, "b", 3))
    assert isinstance(started[0], Admit)
    assert told(started, SetRate) == told(started, Drain) == ["payments[0]", "payments[1]"]
    assert desk.controller.state == "draining"
    assert desk.hear(DrainRequested()) == []


# ---- the ends


def test_hosts_that_cannot_run_there_are_not_started_again():
    """A package that is missing does not come by itself: with checkpoints, too, it is said once."""
    desk = Desk(joined=False, checkpoints=True)
    said = desk.hear(HostsUnfit("No module named 'zmq' in the Python of executor 1", "Traceback ..."))
    assert said == [
        DismissHosts("No module named 'zmq' in the Python of executor 1"),
        RunEnded("failed", "No module named 'zmq' in the Python of executor 1", "Traceback ..."),
    ]
    assert desk.hear(HostsUnfit("again")) == []


def test_stop_ends_the_run_at_once():
    """The change that prepares and the one that waits are aborted, and nothing is heard any more."""
    desk = Desk()
    desk.request(FM_ALONE, "u1")
    desk.request(MC_ALONE, "u2")
    said = desk.hear(StopRequested())
    assert told(said, Abort) == ["FM[0]", "FM[1]"]
    assert said[-2:] == [DismissHosts("the run was stopped"), RunEnded("stopped")]
    assert desk.outcomes["u1"].error == "the run was stopped before the change was decided; nothing changed"
    assert desk.outcomes["u2"].error == "the run was stopped before the change was begun; nothing changed"
    assert desk.hear(StopRequested()) == desk.hear(Tick()) == desk.ended("FM") == desk.hear(HostLeft(0)) == []
    assert desk.hear(HostJoined(0, "a", 3)) == [RefuseHost(0, "the run is over (stopped)")]


def test_stop_in_the_middle_of_a_commit_fails_the_change():
    """Some worker may have switched, so it was not aborted."""
    desk = Desk()
    desk.request(FM_ALONE)
    desk.prepared("FM")
    desk.hear(StopRequested())
    outcome = desk.outcomes["u1"]
    assert (outcome.outcome, outcome.error) == ("failed", "the run was stopped while the change was being committed")


def test_a_failed_operator_fails_the_run_with_its_own_error():
    """Error and traceback as the worker gave them."""
    desk = Desk()
    said = desk.answer(Failed(WorkerId("FM", 0), "FM: KeyError: 'x'", "Traceback"))
    assert said == [DismissHosts("FM: KeyError: 'x'"), RunEnded("failed", "FM: KeyError: 'x'", "Traceback")]


def test_a_failure_while_preparing_aborts_and_while_committing_fails_the_change():
    """With the worker's words in both."""
    for prepared, outcome, error in (
        ([], "aborted", "boom"),
        (["FM"], "failed", "the run failed while the change was being committed: boom"),
    ):
        desk = Desk()
        desk.request(FM_ALONE, "u1")
        desk.request(MC_ALONE, "u2")
        desk.prepared(*prepared)
        said = desk.answer(Failed(WorkerId("FC", 0), "boom", "Traceback"))
        assert told(said, Abort) == ([] if prepared else ["FM[0]", "FM[1]"])
        resolved = desk.outcomes["u1"]
        assert (resolved.outcome, resolved.error, resolved.details) == (outcome, error, "Traceback")
        assert desk.outcomes["u2"].error == "the run failed before the change was begun; nothing changed"
        assert len(only(said, RunEnded)) == 1
