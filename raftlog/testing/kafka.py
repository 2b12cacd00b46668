"""A Kafka for tests: brokers of its own, or one that runs already, with what tests do over and over."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from raftlog.testing.clusters import Cluster, data_directory
from raftlog.testing.process import START_TIMEOUT_SECONDS
from raftlog.testing.waiting import NotInTime, wait_until

if TYPE_CHECKING:
    from raftlog.client.core.fetched import ConsumerRecord
    from raftlog.client.core.producer_batch import Placed
    from raftlog.client.groups import GroupDescription
    from raftlog.client.producer import Outgoing
    from raftlog.client.sync import SyncAdmin, SyncClient, SyncConsumer
    from raftlog.testing.faults.faults import Faults

READY_TOPIC = "raftlog-ready"
"""Made, written, read and deleted before a cluster counts as ready."""
TIMEOUT_SECONDS = 10.0


class Kafka:
    """Brokers for the time of a `with` block, or between `start` and `stop`.

        with Kafka(brokers=3) as kafka:
            kafka.seed("orders", [b"one", b"two"])
            assert [record.value for record in kafka.records("orders", 2)] == [b"one", b"two"]

    Ready means that on each broker a record was stored and read back. Topics are made by `topic`, or when they are
    first used. `brokers`, `settings` (Kafka's broker configs) and `directory` are those of `cluster`.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        links: bool | None = None,
        faults: bool = True,
        bootstrap_servers: str | None = None,
        port: int = 0,
    ) -> None:
        """`faults`: they may happen to the brokers; `links`: to what runs between them and their clients, too (None: if
        there are several). `bootstrap_servers`: a Kafka that runs already, which is then neither started nor stopped.
        `port`: the first broker's, the others' follow it (0: any that are free).
        """
        self.broker_count = brokers
        self.has_faults = faults
        self.has_links = faults and brokers > 1 if links is None else links
        self.port = port
        self._faults: Faults | None = None
        self.before_stop: Callable[[Kafka], None] | None = None
        self.settings = dict(settings or {})
        self.cluster: Cluster | None = None
        self._directory = directory
        self._external = bootstrap_servers
        self._client: SyncClient | None = None
        self._client_made = threading.Lock()
        self._open = ExitStack()

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: float = START_TIMEOUT_SECONDS) -> Self:
        """Return when records can be stored and read. Raises BrokerDied, with the end of the broker's log."""
        if self.cluster is not None or self._external is not None:
            return self
        with ExitStack() as opening:
            directory = opening.enter_context(data_directory(self._directory))
            cluster = self._make_cluster(directory)
            opening.callback(cluster.close)
            opening.callback(cluster.kill)
            opening.callback(self._forget_client)
            opening.callback(setattr, self, "cluster", None)  # it may be started again
            self.cluster = cluster
            cluster.start(timeout, meanwhile=_load_client)
            self._find_ready()
            self._open = opening.pop_all()
        if (plugin := sys.modules.get("raftlog.testing.pytest_plugin")) is not None:
            plugin.started(self)  # a test that fails tells what its brokers logged
        return self

    def _make_cluster(self, directory: Path) -> Cluster:
        return Cluster(
            self.broker_count,
            directory,
            port=self.port,
            settings=self.settings,
            faults=self.has_faults,
            links=self.has_links,
        )

    def _find_ready(self) -> None:
        """Store a record on each broker, and read it."""
        from raftlog.client.core.errors import Rejected
        from raftlog.wire.errors import ErrorCode

        try:
            self.admin.create_topic(READY_TOPIC, partitions=self.broker_count, replication_factor=1)
        except Rejected as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            # Of somebody who was killed in this directory while it started.
            self.admin.delete_topic(READY_TOPIC)
            self.admin.create_topic(READY_TOPIC, partitions=self.broker_count, replication_factor=1)
        self.seed(READY_TOPIC, [b"ready"] * self.broker_count, partitions=range(self.broker_count))
        self.records(READY_TOPIC, self.broker_count)
        self.admin.delete_topic(READY_TOPIC)

    def stop(self) -> None:
        """Stop the brokers and remove their data, unless a directory was given. Raises BrokerDied when one ended badly.

        A Kafka that ran already goes on. `before_stop` is called while the brokers can still be asked.
        """
        with self._open:
            self._forget_client()
            cluster = self.cluster
            try:
                if self.before_stop is not None:
                    self.before_stop(self)
                failing = self._faults.close() if self._faults is not None else set()
            finally:
                self.cluster = None
            if cluster is not None:
                cluster.stop(failing)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop. Raises NeverFired when a fault has had no effect, unless another error is on its way."""
        self.stop()
        if error is None and self._faults is not None:
            self._faults.check()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port`, as every Kafka client takes it."""
        if self._external is not None:
            return self._external
        return self.running.bootstrap_servers

    @property
    def running(self) -> Cluster:
        """The cluster. Raises RuntimeError when there is none of ours."""
        if self.cluster is None:
            elsewhere = "this Kafka runs elsewhere (as with --kafka-shared and --kafka-bootstrap)"
            why = elsewhere if self._external is not None else "it is not started: use `with`"
            raise RuntimeError(f"no brokers to take hold of, or to make faults in: {why}")
        return self.cluster

    @property
    def faults(self) -> Faults:
        """What can go wrong here. Raises RuntimeError for a Kafka that is not ours."""
        from raftlog.testing.faults.faults import Faults

        before = self._faults
        if before is None or before.cluster is not self.running:
            self._faults = Faults(self.running, lambda: self.admin)
            if before is not None:
                self._faults.made += before.made
                self._faults.schedules += before.schedules
        assert self._faults is not None
        return self._faults

    @property
    def faults_made(self) -> Faults | None:
        """The same, if anybody has asked for it; what was done stays known when the brokers have stopped."""
        return self._faults

    @property
    def client(self) -> SyncClient:
        """raftlog's own client, connected when it is first used."""
        from raftlog.client.sync import SyncClient

        with self._client_made:
            if self._client is None:
                self._client = SyncClient(self.bootstrap_servers, client_id="raftlog-testing")
            return self._client

    def _forget_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    @property
    def admin(self) -> SyncAdmin:
        """Topics, settings, groups, transactions: see docs/CLIENT.md."""
        return self.client.admin

    # -- topics and records ------------------------------------------------------------------------

    def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        seed: Iterable[Any] = (),
    ) -> str:
        """Make a topic, and put records into it; its name (one that nobody has, if none is given)."""
        name = name or f"topic-{os.urandom(6).hex()}"
        self.admin.create_topic(name, partitions=partitions, configs=config)
        if values := seed if isinstance(seed, str | bytes) else list(seed):
            self.seed(name, values)
        return name

    def seed(
        self, topic: str, values: Iterable[Any], *, partitions: Iterable[int] | None = None, timeout: float = 15.0
    ) -> list[Placed]:
        """Store records and return where each of them is. Raises the first failure.

        A value is bytes, str (UTF-8), None (a tombstone), a pair (key, value) of those, or a `raftlog.client.Outgoing`.
        `partitions`: one for each record; without it the key decides.
        """
        if isinstance(values, str | bytes):
            raise TypeError(f"values are a list of records, and this is one: [{values!r}]")
        records = [_outgoing(value) for value in values]
        if partitions is not None:
            records = [each._replace(partition=at) for each, at in zip(records, partitions, strict=True)]
        with self.client.producer(delivery_timeout=timeout) as producer:
            outcomes = producer.send_batch(topic, records, timeout=timeout)
        placed: list[Placed] = []
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            placed.append(outcome)
        return placed

    def records(
        self, topic: str, n: int | None = None, timeout: float = TIMEOUT_SECONDS, *, committed: bool = True
    ) -> list[ConsumerRecord]:
        """The first `n` records, by partition and offset as they come; all that are there now if `n` is None.

        They have `.key .value .headers .partition .offset .timestamp`. Records of open or aborted transactions are left
        out unless `committed` is False. Raises NotInTime, with what came, when there are fewer.
        """
        from raftlog.client.offsets import LATEST

        level = "read_committed" if committed else "read_uncommitted"
        ends: dict[tuple[str, int], int] = {}
        if n is None:
            count = len(self.admin.topic(topic).partitions)
            ends = self.admin.offsets_at([(topic, at) for at in range(count)], LATEST, read_committed=committed)
        found: list[ConsumerRecord] = []
        with self.client.consumer(topic, auto_offset_reset="earliest", isolation_level=level) as consumer:

            def look() -> bool:
                if n is None and _is_past(consumer, ends):
                    return True
                found.extend(consumer.poll(500 if n is None else max(1, n - len(found)), timeout=0.05))
                return n is not None and len(found) >= n

            if n != 0:
                wait_until(look, timeout, lambda: _few(topic, n, found))
        return found

    # -- groups ------------------------------------------------------------------------------------

    def lag(self, group: str) -> dict[tuple[str, int], int]:
        """How many records the group has not done yet, by (topic, partition) that it has committed."""
        return self.admin.lag(group)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The next offset to read of each (topic, partition) that the group has committed."""
        return self.admin.committed_offsets(group)

    def wait_group(
        self, group: str, state: str = "Stable", members: int | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> GroupDescription:
        """Return when the group is in that state, with so many members. Raises NotInTime with what it was instead."""
        last = "nobody knows it"

        def look() -> GroupDescription | None:
            nonlocal last
            found = self._describe(group)
            if found is None:
                return None
            last = f"{found.state} with {len(found.members)} members"
            fits = found.state == state and members in (None, len(found.members))
            return found if fits else None

        many = "" if members is None else f" with {members} members"
        found = wait_until(look, timeout, lambda: f"group {group} {state}{many}; it is: {last}")
        assert found is not None
        return found

    def _describe(self, group: str) -> GroupDescription | None:
        from raftlog.client.core.errors import Rejected
        from raftlog.wire.errors import ErrorCode

        try:
            return self.admin.describe_group(group)
        except Rejected as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None


def _load_client() -> None:
    """What takes a while the first time, done while the brokers start."""
    import raftlog.client.sync  # noqa: F401


def _outgoing(value: Any) -> Outgoing:
    from raftlog.client.producer import Outgoing

    if isinstance(value, Outgoing):
        return value
    if isinstance(value, tuple):
        key, value = value
        return Outgoing(_as_bytes(value), key=_as_bytes(key))
    return Outgoing(_as_bytes(value))


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"a record's key and value are bytes, str or None, not {type(value).__name__}")


def _is_past(consumer: SyncConsumer, ends: Mapping[tuple[str, int], int]) -> bool:
    positions = consumer.positions
    return all(positions.get(partition, 0) >= end for partition, end in ends.items())


def _few(topic: str, n: int | None, found: list[ConsumerRecord]) -> str:
    shown = ", ".join(f"{each.partition}@{each.offset} {each.value!r}" for each in found[:5])
    return f"{'all' if n is None else n} records of {topic}; {len(found)} came{': ' if found else ''}{shown}"


__all__ = ["Kafka", "NotInTime"]
