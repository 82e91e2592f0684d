"""Which workers are slow: those with long tuples and those that wait, also on a busy machine; and broken rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fries_nb.worker.rota import JUDGED_NS, SUSPECT_NS, WINDOW, Slowness

MS = 1_000_000


def learn(slowness: Slowness, took_ns: int, taken: int, processor_share: float, turns: int) -> None:
    """Turns of one slice each, whose tuples use this share of the processor."""
    for _ in range(turns):
        slowness.learn(took_ns, taken)
        if slowness.may_wait:
            slowness.used(int(took_ns * processor_share), took_ns)


def test_two_long_tuples_of_a_window_make_a_worker_slow() -> None:
    """And a window without them makes it quick again."""
    slowness = Slowness()
    learn(slowness, 6 * MS, 1, 1.0, 1)
    assert not slowness.is_slow
    learn(slowness, MS, 10, 1.0, 3)
    learn(slowness, 6 * MS, 1, 1.0, 1)
    assert slowness.is_slow
    learn(slowness, MS, 10, 1.0, WINDOW // 10 + 1)
    assert not slowness.is_slow


def test_a_worker_that_waits_is_slow_until_it_waits_no_more() -> None:
    """A model that waits for two milliseconds would keep the others of its loop from running."""
    slowness = Slowness()
    learn(slowness, 2 * MS, 1, 0.05, JUDGED_NS // (2 * MS))
    assert slowness.is_slow
    learn(slowness, 2 * MS, 1, 0.05, 2 * WINDOW)
    assert slowness.is_slow, "it waits still, though no tuple is long"
    learn(slowness, 2 * MS, 1, 1.0, 2 * WINDOW)
    assert not slowness.is_slow


def test_a_worker_that_stops_waiting_for_short_tuples_is_quick_again() -> None:
    """Its turns are not measured any more."""
    slowness = Slowness()
    learn(slowness, 2 * MS, 1, 0.05, JUDGED_NS // MS)
    learn(slowness, MS, WINDOW, 0.05, 2)
    assert not slowness.is_slow


@pytest.mark.parametrize(
    ("took_ns", "taken", "share"),
    [
        pytest.param(2 * MS, 1, 0.5, id="the machine is busy"),
        pytest.param(2 * MS, 2 * MS // SUSPECT_NS + 1, 0.0, id="short tuples"),
        pytest.param(2 * MS, 1, 1.0, id="the processor"),
    ],
)
def test_a_worker_without_long_or_waiting_tuples_stays_in_the_loop(took_ns: int, taken: int, share: float) -> None:
    """Two busy programs beside the host leave it half of the processor, and do not make its workers slow."""
    slowness = Slowness()
    learn(slowness, took_ns, taken, share, 500)
    assert not slowness.is_slow


def _never_waits(slowness: Slowness, processor_ns: int, took_ns: int) -> None:
    del slowness, processor_ns, took_ns


def _judges_each_turn(slowness: Slowness, processor_ns: int, took_ns: int) -> None:
    slowness.is_slow = slowness.is_slow or processor_ns < took_ns


@pytest.mark.parametrize("used", [_never_waits, _judges_each_turn])
def test_a_broken_rule_is_noticed(used: Callable[[Slowness, int, int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of the tests above."""
    monkeypatch.setattr(Slowness, "used", used)
    with pytest.raises(AssertionError):  # noqa: PT012 - either law may break
        test_a_worker_that_waits_is_slow_until_it_waits_no_more()
        test_a_worker_without_long_or_waiting_tuples_stays_in_the_loop(2 * MS, 1, 0.5)
