"""A dataflow from a topic to a topic, and a driver of it that dies at a commit."""

from __future__ import annotations

import sys
from typing import Any

from dying_driver import die_at

import fries_nb as fn
from fries_nb.connectors.kafka_sink import KafkaSink

KEYS = 5
TAXED = 1_000
"""The first value with a further column."""


class Numbered:
    """How many rows of its key there have been, by the version of the function."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state[0] += 1
        return row | {"number": state[0], "version": self.version}


def messages(first: int, last: int) -> list[dict[str, float]]:
    """Values with their keys, and later ones with a further column."""
    return [
        {"value": value, "key": value % KEYS} | ({"tax": value / 4} if value >= TAXED else {})
        for value in range(first, last)
    ]


def from_topic_to_topic(servers: str, source: str, out: str) -> fn.Dataflow:
    """Each message with its number in its key; those that do not decode are set aside."""
    flow = fn.Dataflow("topics")
    rows = flow.source("pay", fn.kafka(servers, source, on_error=fn.memory()))
    rows.map("N", Numbered(), key="key").sink("out", fn.kafka(servers, out, key="key"))
    return flow


def check_once(rows: list[dict[str, Any]], count: int) -> None:
    """Each message is there once, with all that it had, and was counted once."""
    assert sorted(row["value"] for row in rows) == list(range(count))
    assert all(row.get("tax") == (row["value"] / 4 if row["value"] >= TAXED else None) for row in rows)
    for key in range(KEYS):
        numbers = [row["number"] for row in rows if row["key"] == key]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


if __name__ == "__main__":
    servers, source, out, place = sys.argv[1:]
    die_at(KafkaSink, "_delete", 3)  # the third commit is made, and nobody has heard of it
    flow = from_topic_to_topic(servers, source, out)
    flow.run(hosts=1, workers=2, checkpoint=place, commit_interval_s=0.2).wait()
