"""Why nothing is committed, in the user's words and in the log."""

from __future__ import annotations

import logging
import time

import pytest

from fries_nb.controller.events import CommitsHeld
from fries_nb.running.run_end import QUIET_S, HeldCommits, UncommittedCheck
from fries_nb.telemetry.run_states import Explanation

FULL = "the record could not be written: no space left on device"


class Clock:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_first_failure_and_the_end_are_logged_and_the_rest_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Reasons may differ from attempt to attempt, as they name workers and files."""
    clock = Clock()
    held = HeldCommits("fraud", clock)
    with caplog.at_level(logging.WARNING, "fries_nb"):
        for second in range(int(1.5 * QUIET_S)):
            clock.now_s = float(second)
            held.tell(CommitsHeld(f"{FULL} ({second})", failed=True), since_s=0.0)
        held.tell(CommitsHeld(), since_s=0.0)
        held.tell(CommitsHeld(), since_s=0.0)
        assert held.words == held.reason == ""
        held.tell(CommitsHeld("the marker of commit 7 has not passed A[0]"), since_s=0.0)
    since = time.strftime("%H:%M:%S", time.localtime(0.0))
    assert [record.getMessage() for record in caplog.records] == [
        f"'fraud': nothing has been committed since {since}: {FULL} (0); it is tried again",
        f"'fraud': nothing has been committed since {since}: {FULL} (60); it is tried again",
        f"'fraud': output is committed again; it was held: {FULL} (89)",
        f"'fraud': nothing has been committed since {since}: the marker of commit 7 has not passed A[0]",
    ]


def test_a_reason_of_several_lines_is_one_sentence() -> None:
    """As every error."""
    held = HeldCommits("fraud", Clock())
    held.tell(CommitsHeld("the state of A cannot be saved: no\n  at all\n", failed=True), since_s=0.0)
    assert held.reason == "the state of A cannot be saved: no ..."


def test_explain_and_the_warning_at_the_end_say_why() -> None:
    """Below the sources; and beside the number of missing tuples."""
    assert repr(Explanation([], FULL)) == FULL
    assert repr(Explanation([])) == ""
    check = UncommittedCheck(7, 0.0, reason=FULL)
    assert check.facts.endswith(f"are not in the output ({FULL})")
