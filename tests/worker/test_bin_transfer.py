"""A bin whose states take more than a shipment travels in several; it is there when the last of them is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fries_nb.dataflow.graph import Operator
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import ChannelId, Marker, Move, MovedBins, WorkerId
from fries_nb.protocol.partitioning import bins_of_keys
from fries_nb.worker import bin_transfer
from fries_nb.worker.bin_transfer import BinTransfer

KEYS = 40
SIZE = 1_000


def doubled(state: dict[str, bytes]) -> dict[str, bytes]:
    """What a change makes of a state."""
    return {"kept": state["kept"] * 2}


class Timed:
    """Works by the time of rows, so that its states may refer to tokens."""

    def process(self, row: dict[str, Any], state: dict[str, Any], at: Any) -> dict[str, Any]:
        """The row."""
        return row


class Moving:
    """Two workers of a keyed operator, and the move of a bin with ``KEYS`` states of ``SIZE`` bytes between them."""

    def __init__(self, operator: Operator) -> None:
        function = operator.function or dict
        self.old, self.new = (Instance(WorkerId("K", index), operator, function, audit=False) for index in range(2))
        known = bins_of_keys(list(range(200_000)))
        [self.keys] = [np.flatnonzero(known == known[0])[:KEYS].tolist()]
        for key in self.keys:
            self.old.state.touch(key)["kept"] = bytes(SIZE)
        marker = Marker(1, frozenset("SK"), Move("K", {int(known[0]): (0, 1)}))
        self.sender, self.receiver = (BinTransfer(one, {"S": ("k",)}, 1000) for one in (self.old, self.new))
        for transfer, one in ((self.sender, self.old), (self.receiver, self.new)):
            transfer.passed_by(marker, ChannelId(WorkerId("S", 0), one.worker))
            transfer.align()

    def shipments(self, between: Callable[[int], None] = lambda _: None) -> list[MovedBins]:
        """All that the old owner ships; ``between`` is called with the number of shipments so far."""
        shipped: list[MovedBins] = []
        while self.sender.extracts:
            if found := self.sender.extract():
                shipped += found
                between(len(shipped))
        return shipped


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Moving:
    """With shipments of eight states or so."""
    monkeypatch.setattr(bin_transfer, "SHIPPED_BYTES", 8 * SIZE)
    return Moving(Operator("K", key=("k",)))


def test_a_large_bin_travels_in_several_shipments(moving: Moving) -> None:
    """Of about the same size, whatever the size of a state was thought to be at first; rows wait for the last."""
    shipped = moving.shipments()
    assert [len(one.complete) for one in shipped] == [0] * (len(shipped) - 1) + [1]
    assert len(shipped) >= 5
    assert max(one.size for one in shipped) < 10 * SIZE
    for one in shipped:
        assert not moving.receiver.is_installed
        moving.receiver.install(one)
    assert moving.receiver.is_installed
    assert sorted(moving.new.state.keys()) == moving.keys
    assert moving.old.state.keys() == []


def test_states_that_travel_apart_may_have_gone_through_other_changes(moving: Moving) -> None:
    """The fix of a paused operator may come between two shipments: each is transformed where it has not been."""

    def changed(shipped: int) -> None:
        if shipped == 2:
            moving.old.apply_change("u", doubled)

    shipped = moving.shipments(changed)
    assert [one.applied for one in shipped[:3]] == [(), (), ("u",)]
    for one in shipped:
        moving.receiver.install(one)
    assert not moving.receiver.is_installed
    moving.new.apply_change("u", doubled)
    moving.receiver.install_early()
    assert moving.receiver.is_installed
    assert {len(moving.new.state.touch(key)["kept"]) for key in moving.keys} == {2 * SIZE}


def test_a_bin_with_tokens_is_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since a token is lost that no state refers to, and states that are pickled refer to nothing any more."""
    monkeypatch.setattr(bin_transfer, "SHIPPED_BYTES", 8 * SIZE)
    [shipped] = Moving(Operator("K", key=("k",), function=Timed())).shipments()
    assert len(shipped.complete) == 1
    assert shipped.size > KEYS * SIZE
