"""Numbers of seconds and rates that users give: what is too large is refused, whatever its type."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import fries_nb as fn
from fries_nb.dataflow.arguments import YEAR_S, checked_limit, checked_rate, checked_timeout
from fries_nb.errors import DataflowError, PlanError, SourceError
from fries_nb.host.region_spec import Options

HUGE = [10**400, 1e300, float("inf"), float("nan"), YEAR_S + 1, 0, -1, True, "5"]


@pytest.mark.parametrize("seconds", HUGE, ids=[str(one)[:6] for one in HUGE])
def test_durations_are_at_most_a_year(seconds: Any) -> None:
    """A clock in nanoseconds has no room for more, and nobody means it."""
    for check in (checked_limit, checked_timeout):
        with pytest.raises(PlanError, match="expected seconds, more than 0 and at most a year"):
            check(seconds)
    for name in ("commit_interval_s", "silence_s"):
        public = PUBLIC.get(name, name)
        with pytest.raises(DataflowError, match=f"{public}=.*; expected seconds, more than 0 and at most a year"):
            Options(**{"hosts": 1, "budget": 1, "audit": False, "chaining": True, **INTERVALS, name: seconds})
    assert checked_limit(YEAR_S) == checked_timeout(YEAR_S) == YEAR_S


PUBLIC = {"silence_s": "heartbeat_timeout_s"}
INTERVALS = {"commit_interval_s": 5.0, "silence_s": 10.0, "port": 0}


@pytest.mark.parametrize("number", [10**400, float("inf"), float("nan"), -1], ids=["whole", "inf", "nan", "below"])
def test_rates_and_latencies_are_finite(number: Any) -> None:
    """Also a whole number that is none as a float."""
    with pytest.raises(SourceError, match="rate is a number of rows a second above 0"):
        checked_rate(number)
    flow = fn.Dataflow("limits")
    flow.source("s", fn.rate(1)).map("A", dict).sink("out", fn.memory())
    with pytest.raises(DataflowError, match="expected milliseconds, a finite number more than 0"):
        flow.constrain(["A"], latency_ms=number)
    assert checked_rate(sys.float_info.max) == sys.float_info.max
