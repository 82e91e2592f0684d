"""The arguments of a topic, and where each belongs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import fries_nb as fn
from fries_nb.errors import DataflowError, SinkError, SourceError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"servers": ""}, r"kafka got servers=''; expected kafka\('host:9092', 'topic'\)"),
        ({"topic": 7}, "kafka got topic=7"),
        ({"start": "begin"}, "kafka got start='begin'; expected 'earliest', 'latest' or a datetime"),
        ({"start": 17}, "kafka got start=17; expected 'earliest'"),
        ({"until": "now"}, "kafka got until='now'; expected 'latest'"),
        ({"schema": {"n": "int"}}, "expected a pyarrow.Schema"),
        ({"decode": "avro"}, "kafka got decode='avro'; expected a function"),
        ({"config": {"group.id": "mine"}}, "'group.id': ...}, which fries_nb sets itself"),
    ],
)
def test_what_is_no_argument_is_told(given: dict[str, Any], said: str) -> None:
    """What was got and what was expected."""
    with pytest.raises(SourceError, match=said):
        fn.kafka(**{"servers": "a:1", "topic": "t", **given})
    for argument, wrong in (("key", ""), ("key", ["a", "b"]), ("encode", "avro")):
        with pytest.raises(SinkError, match=f"kafka got {argument}="):
            fn.kafka("a:1", "t", **{argument: wrong})


def test_a_start_may_be_a_time() -> None:
    """Of any zone; without one it is in UTC."""
    at = datetime(2026, 1, 1, 12)
    zone = timezone(timedelta(hours=2))
    starts = [fn.kafka("a:1", "t", start=one).start for one in (at, at.replace(tzinfo=zone))]
    assert starts == [1_767_268_800_000, 1_767_268_800_000 - 7_200_000]


@pytest.mark.parametrize(
    ("given", "name"),
    [({"key": "id"}, "key"), ({"encode": len}, "encode")],
)
def test_a_source_takes_nothing_of_a_sink(given: dict[str, Any], name: str) -> None:
    """Since it would have no effect."""
    with pytest.raises(DataflowError, match=rf"source 'pay' got kafka\(..., {name}=...\), which is for a sink"):
        fn.Dataflow("f").source("pay", fn.kafka("a:1", "t", **given))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"start": "latest"}, "start"), ({"until": "latest"}, "until"), ({"schema": pa.schema([])}, "schema"),
        ({"decode": len}, "decode"), ({"metadata": True}, "metadata"), ({"on_error": fn.memory()}, "on_error"),
    ],
)  # fmt: skip
def test_a_sink_takes_nothing_of_a_source(given: dict[str, Any], name: str) -> None:
    """Since it would have no effect."""
    rows = fn.Dataflow("f").source("S", fn.rate(1))
    with pytest.raises(DataflowError, match=rf"sink 'out' got kafka\(..., {name}=...\), which is for a source"):
        rows.sink("out", fn.kafka("a:1", "t", **given))


def test_messages_that_do_not_decode_fail_or_go_to_a_sink() -> None:
    """Nobody could mend a message, so nothing pauses."""
    flow = fn.Dataflow("f")
    flow.source("a", fn.kafka("a:1", "t"))
    flow.source("b", fn.kafka("a:1", "t", on_error=fn.kafka("a:1", "dead")))
    assert [operator.on_error for operator in flow.graph().operators] == ["fail", fn.kafka("a:1", "dead")]
    with pytest.raises(DataflowError, match="source 'c' has on_error='pause'; expected a sink: memory"):
        flow.source("c", fn.kafka("a:1", "t", on_error="pause"))


def test_a_password_is_not_shown() -> None:
    """Neither by the description nor by what is printed of it."""
    topic = fn.kafka("a:1", "t", config={"sasl.password": "secret"})
    assert "secret" not in repr(topic) + str(topic)
    assert str(topic) == "topic 't' of a:1"
