"""librdkafka's own mock cluster, in this process: told on standard input what to do, a JSON list a line.

It is what brokers are in the benchmarks and tests of Kafka: topics with any number of partitions of 5 MB each, offsets
with gaps (commit markers), watermarks, producer ids, and errors when told to. It keeps no offsets of transactions,
fences no producer, and hides nothing from a consumer that asks for committed messages only. Python's interface to it
starts it; all else is in C's, which is called by ctypes.
"""

from __future__ import annotations

import ctypes
import json
import sys


class MockCluster:
    """The mock cluster of a librdkafka client, by its C interface."""

    def __init__(self, brokers: int) -> None:
        from confluent_kafka import cimpl

        assert cimpl.libversion()
        with open("/proc/self/maps") as maps:
            [path] = {line.split()[-1] for line in maps if "librdkafka" in line}
        self._library = library = ctypes.CDLL(path)
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_handle_mock_cluster"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        conf, error = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
        for key, value in (("test.mock.num.brokers", str(brokers)), ("log_level", "0")):
            library.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, 512)
        client = ctypes.c_void_p(library.rd_kafka_new(0, conf, error, 512))
        assert client, error.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_handle_mock_cluster(client))
        self.servers = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()  # their addresses

    def create(self, topic: str, partitions: int) -> int:
        """Create a topic."""
        return int(self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1))

    def errors(self, request: int, *codes: int) -> int:
        """The next requests of this number are answered with these errors."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), array
        )
        return 0

    def down(self, broker: int) -> int:
        """Stop a broker."""
        return int(self._library.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def up(self, broker: int) -> int:
        """Start it again."""
        return int(self._library.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def delay(self, broker: int, milliseconds: int) -> int:
        """Delay the answers of a broker."""
        return int(self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds))

    def trim(self, topic: str, partition: int, before: int) -> int:
        """Delete the messages before an offset, as retention does."""
        return int(
            self._library.rd_kafka_mock_partition_delete_records(
                self._cluster, topic.encode(), partition, ctypes.c_int64(before)
            )
        )


def main() -> None:
    """Start it, print its address, and do what is told until the input ends."""
    cluster = MockCluster(int(sys.argv[1]))
    print(json.dumps(cluster.servers), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(cluster, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
