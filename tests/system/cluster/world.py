"""Three real brokers under test: topics, a writer that notes what was acknowledged, and what must hold afterwards.

Every wait has a deadline and polls a condition.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from raftlog.client.cluster import Quorum
from raftlog.client.core.addresses import parse_addresses
from raftlog.client.sync import SyncClient
from raftlog.testing import BrokerProcess, Cluster
from tests.system.clients.confluent import Deliveries, producer, read_all
from tests.waiting import wait_until

DEADLINE_SECONDS = 30.0
REPLICAS = 3


class World:
    """A running cluster and the questions that tests ask of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def admin(self) -> AdminClient:
        """One that finds another broker quickly."""
        return AdminClient({
            "bootstrap.servers": self.bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 3000, "topic.metadata.refresh.fast.interval.ms": 20, "log_level": 0,
        })  # fmt: skip

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """A topic with three replicas, all in sync."""
        new = NewTopic(topic, partitions, REPLICAS, config={key.replace("_", "."): v for key, v in config.items()})
        admin = self.admin()
        admin.create_topics([new])[topic].result(DEADLINE_SECONDS)
        self.wait_until_in_sync(topic)
        return topic

    def partitions(self, topic: str, admin: AdminClient | None = None) -> list[Any]:
        """The topic's partitions as some broker describes them; none while nobody answers."""
        try:
            found = (admin or self.admin()).list_topics(topic, timeout=2).topics.get(topic)
        except KafkaException:
            return []
        return [] if found is None or found.error is not None else list(found.partitions.values())

    def described(self, topic: str) -> list[Any]:
        """The topic's partitions as the first broker describes them that answers."""
        found: list[Any] = []
        wait_until(lambda: found.extend(self.partitions(topic)) or found, f"{topic} is described")
        return found

    def wait_until_in_sync(self, *topics: str) -> None:
        """Return when all partitions have leaders and full ISRs."""
        admin = self.admin()

        def is_well(topic: str) -> bool:
            found = self.partitions(topic, admin)
            return bool(found) and all(each.leader >= 0 and len(each.isrs) == REPLICAS for each in found)

        for topic in topics:
            wait_until(lambda topic=topic: is_well(topic), f"{topic} in sync: {self.partitions(topic)}")  # type: ignore[misc]

    def leader(self, topic: str) -> BrokerProcess:
        """Of partition 0."""
        found: list[Any] = []

        def is_led() -> bool:
            found[:] = self.partitions(topic)
            return bool(found) and found[0].leader >= 0

        wait_until(is_led, f"{topic} has a leader")
        return self.cluster.broker(found[0].leader)

    def follower(self, topic: str) -> BrokerProcess:
        """A replica of partition 0 that does not lead it."""
        leader = self.leader(topic).node_id
        return next(each for each in self.cluster.brokers if each.node_id != leader)

    @contextmanager
    def client(self) -> Iterator[SyncClient]:
        with SyncClient(parse_addresses(self.bootstrap), timeout=DEADLINE_SECONDS) as client:
            yield client

    def quorum(self) -> Quorum:
        with self.client() as client:
            return client.admin.describe_quorum()

    def raft_leader(self) -> BrokerProcess:
        return self.cluster.broker(self.quorum().leader)

    def wait_until_given_up(self, brokers: Sequence[BrokerProcess]) -> None:
        """Return when the others know that these stand still: a majority fences them, a minority loses its leader."""
        ids = {broker.node_id for broker in brokers}
        survivor = next(each for each in self.cluster.brokers if each.node_id not in ids)
        is_majority = 2 * len(ids) < len(self.cluster.brokers)

        def are_given_up() -> bool:
            try:
                seen = AdminClient({"bootstrap.servers": survivor.address, "log_level": 0}).list_topics(timeout=2)
            except KafkaException:
                return False
            return not ids & set(seen.brokers) if is_majority else seen.controller_id == -1

        wait_until(are_given_up, f"brokers {ids} are given up by the others")

    def restore(self) -> None:
        """Resume who stands still and start who is down."""
        for broker in self.cluster.brokers:
            if broker.running:
                broker.resume()
        down = [broker for broker in self.cluster.brokers if not broker.running]
        for broker in down:
            broker.start(wait=False)
        for broker in down:
            broker.wait_until_ready()

    # -- what must hold ----------------------------------------------------------------------------------------

    def check_nothing_lost(self, topic: str, writer: Writer, partitions: int = 1) -> None:
        """Every acknowledged record is in the log once, and the replicas hold the same bytes."""
        acknowledged = Counter(message.value() for message in writer.deliveries.messages)
        found = self.read(topic, partitions)
        in_log = Counter(message.value() for message in found)
        lost = acknowledged - in_log
        assert not lost, f"{len(lost)} acknowledged records are lost, such as {sorted(lost)[:3]}"
        twice = [value for value, count in in_log.items() if count > 1]
        assert not twice, f"{len(twice)} records are in the log twice, such as {sorted(twice)[:3]}"
        at = {(message.partition(), message.offset()): message.value() for message in found}
        for message in writer.deliveries.messages:
            assert at[message.partition(), message.offset()] == message.value(), "a record moved"
        self.check_replicas_are_identical(topic, partitions)

    def read(self, topic: str, partitions: int = 1) -> list[Message]:
        """All that is in the topic."""
        with self.client() as client:
            from raftlog.client.offsets import LATEST

            wanted = [(topic, index) for index in range(partitions)]
            ends = client.admin.offsets_at(wanted, LATEST, read_committed=False)
        count = sum(ends.values())
        return read_all(self.bootstrap, topic, count, partitions=partitions) if count else []

    def check_replicas_are_identical(self, topic: str, partitions: int = 1) -> None:
        """The segments of all replicas, byte for byte. Nothing may be under way."""
        for index in range(partitions):
            wait_until(
                lambda index=index: len({self.log_bytes(each, topic, index) for each in self.cluster.brokers}) == 1,  # type: ignore[misc]
                f"replicas of {topic}-{index} differ: "
                f"{[len(self.log_bytes(each, topic, index)) for each in self.cluster.brokers]} bytes",
            )

    @staticmethod
    def log_bytes(broker: BrokerProcess, topic: str, index: int) -> bytes:
        """The records of a partition as they lie on a broker's disk."""
        directory = Path(broker.data_dir) / f"{topic}-{index}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


class Writer(threading.Thread):
    """Produces numbered records at a steady pace with an idempotent producer, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str, *, per_second: int = 200, **settings: Any) -> None:
        super().__init__(name="writer", daemon=True)
        usual = {"enable_idempotence": True, "linger_ms": 1, "message_timeout_ms": 60_000}
        quick = {"topic_metadata_refresh_fast_interval_ms": 20}
        self._client = producer(bootstrap, **(usual | quick | settings))
        self._topic = topic
        self._pause = 1 / per_second
        self._ending = threading.Event()
        self.deliveries = Deliveries()
        self.times: list[float] = []

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self) -> None:
        def delivered(error: Any, message: Message) -> None:
            self.deliveries(error, message)
            self.times.append(time.monotonic())

        number = 0
        while not self._ending.is_set():
            self._client.produce(self._topic, b"%012d" % number, on_delivery=delivered)
            number += 1
            self._client.poll(self._pause)
        self._client.flush(DEADLINE_SECONDS)

    def end(self) -> None:
        """Stop producing, and wait for what is under way."""
        self._ending.set()
        self.join(DEADLINE_SECONDS + 5)
        assert not self.is_alive(), "the producer did not end"

    @property
    def acknowledged(self) -> int:
        return len(self.deliveries.messages)

    def wait_for_more(self, count: int = 100) -> None:
        """Return when so many more records were acknowledged."""
        enough = self.acknowledged + count
        wait_until(lambda: self.acknowledged >= enough, f"{count} more acknowledgements")

    def check_no_errors(self) -> None:
        assert not self.deliveries.errors, self.deliveries.errors[:3]

    def longest_gap(self, since: float) -> float:
        """Seconds between two acknowledgements, at most, from `since` (monotonic) on."""
        times: Sequence[float] = [since, *(at for at in self.times if at > since)]
        return max((after - at for at, after in pairwise(times)), default=0.0)
