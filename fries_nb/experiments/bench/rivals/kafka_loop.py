"""A bare consumer loop doing W1: payments in from a topic as JSON, scored by customer; nothing is written.

As confluent-kafka's documentation shows it, with batches instead of single messages, which is faster. It reads what the
topic held when it started, and counts from the first message on.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

from fries_nb.experiments.bench.maps import LastTen

BATCH = 10_000


def score_topic(servers: str, topic: str) -> tuple[int, float]:
    """Score every payment of a topic.

    Returns:
        The number of payments, and the seconds from the first one on.
    """
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "loop", "enable.auto.commit": False})
    parts = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    left = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
    consumer.assign(parts)
    model, states, rows, started = LastTen(), dict[int, list[float]](), 0, 0.0
    while rows < left:
        for message in consumer.consume(BATCH, 0.1):
            started = started or time.perf_counter()
            row = json.loads(message.value())
            state = states.get(row["CUSTOMER_ID"])
            if state is None:
                state = states[row["CUSTOMER_ID"]] = model.initial_state()
            model.process(row, state)
            rows += 1
    return rows, time.perf_counter() - started


def main() -> None:
    """Run it once and print the rows per second as JSON."""
    rows, seconds = score_topic(sys.argv[1], sys.argv[2])
    print(json.dumps({"rows": rows, "rows_per_second": rows / seconds}))


if __name__ == "__main__":
    main()
