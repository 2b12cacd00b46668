"""The blocking client: finds the broker that can answer, asks it, and asks again when that may help.

It is small on purpose: it serves the command line until the real client exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from raftlog.client.addresses import Address
from raftlog.client.connection import Connection, Reply
from raftlog.client.errors import BrokerUnreachable, Rejected, TimedOut
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from raftlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from raftlog.wire.schema import Message

Result = TypeVar("Result")

FIRST_BACKOFF_SECONDS = 0.02
LONGEST_BACKOFF_SECONDS = 1.0
ANY_BROKER = -1
GROUP = 0
"""The type of coordinator."""


class Client:
    """A connection per broker, opened when needed, and what was learned about the cluster.

    `timeout` (seconds) bounds one call with all its retries. Not for several threads at once.
    """

    def __init__(self, bootstrap: Sequence[Address], *, client_id: str = "raftlog", timeout: float = 15.0) -> None:
        self.timeout = timeout
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connections: dict[int, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._reached = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ask(self, request: Message, reply: type[Reply], *, node: int = ANY_BROKER, wait: float = 0.0) -> Reply:
        """One request to one broker, not retried. `wait`: seconds the broker may take on purpose."""
        try:
            return self.connection(node).call(request, reply, self.timeout + wait)
        except BaseException:
            # Also when a signal interrupts it: a reply left over would be taken for that to the next request.
            self.disconnect(node)
            raise

    def ask_coordinator(self, group: str, request: Message, reply: type[Reply], *, wait: float = 0.0) -> Reply:
        """One request to the coordinator of a consumer group, not retried."""
        return self.ask(request, reply, node=self.coordinator(group), wait=wait)

    def retrying(self, attempt: Callable[[], Result], *, also: Iterable[ErrorCode] = ()) -> Result:
        """Call `attempt` until it succeeds, fails for good, or `timeout` seconds have passed.

        Worth another try are lost connections to a cluster that was reached before, retriable error codes and the
        codes in `also`. What was learned about the cluster is forgotten first, for it may be the cause.
        UNKNOWN_TOPIC_OR_PARTITION is retriable by Kafka's book, but people mistype: it is only retried when in `also`.
        """
        deadline = time.monotonic() + self.timeout
        backoff = FIRST_BACKOFF_SECONDS
        wanted = set(also)
        while True:
            try:
                return attempt()
            except (BrokerUnreachable, TimedOut):
                if not self._reached or time.monotonic() + backoff >= deadline:
                    raise
            except Rejected as error:
                hopeless = not error.code.retriable or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if (hopeless and error.code not in wanted) or time.monotonic() + backoff >= deadline:
                    raise
            self._leaders.clear()
            self._coordinators.clear()
            time.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)

    def metadata(self, topics: Sequence[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """What any broker knows about `topics` (None: all). `create` lets the broker create missing ones."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer = self.ask(request, MetadataResponse)
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            for partition in topic.partitions:
                self._leaders[topic.name or "", partition.partition_index] = partition.leader_id
        return answer

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic's metadata. Raises Rejected, for example with UNKNOWN_TOPIC_OR_PARTITION."""
        (topic,) = self.metadata([name], create=create).topics
        check(topic.error_code, f"topic {name!r}")
        return topic

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader. Raises Rejected when the partition is unknown or has none."""
        if (topic, partition) not in self._leaders:
            self.topic(topic)
        leader = self._leaders.get((topic, partition))
        if leader is None:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}[{partition}]", "there is no such partition")
        if leader < 0:
            del self._leaders[topic, partition]
            raise Rejected(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}[{partition}]")
        return leader

    def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """The node id of the broker that looks after a consumer group, or a transactional id."""
        if (key_type, key) not in self._coordinators:
            answer = self.ask(FindCoordinatorRequest(key=key, key_type=key_type), FindCoordinatorResponse)
            check(answer.error_code, f"group {key!r}" if key_type == GROUP else repr(key), answer.error_message)
            self._brokers[answer.node_id] = Address(answer.host, answer.port)
            self._coordinators[key_type, key] = answer.node_id
        return self._coordinators[key_type, key]

    def connection(self, node: int = ANY_BROKER) -> Connection:
        """The connection to a broker, or to any. Raises BrokerUnreachable, or Rejected for an unknown one."""
        if node in self._connections:
            return self._connections[node]
        if node == ANY_BROKER:
            return self._any_connection()
        if node not in self._brokers:
            self.metadata([])
        if node not in self._brokers:
            known = ", ".join(str(each) for each in sorted(self._brokers))
            raise Rejected(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}", f"the cluster only has broker {known}")
        connection = Connection(self._brokers[node], self._client_id, self.timeout)
        self._connections[node] = connection
        return connection

    def disconnect(self, node: int) -> None:
        """Drop the connection to a broker; the next request makes a new one."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def _any_connection(self) -> Connection:
        reasons: list[str] = []
        addresses = list(dict.fromkeys([*self._bootstrap, *self._brokers.values()]))
        # One that stands still takes connections and answers nothing: the others have to get their turn.
        patience = self.timeout / len(addresses) if len(addresses) > 1 else self.timeout
        for address in addresses:
            try:
                connection = Connection(address, self._client_id, patience)
            except (BrokerUnreachable, TimedOut) as error:
                reasons.append(error.reason if isinstance(error, BrokerUnreachable) else str(error))
                continue
            self._reached = True
            self._connections[ANY_BROKER] = connection
            return connection
        raise BrokerUnreachable([str(each) for each in addresses], ", ".join(dict.fromkeys(reasons)))


def check(code: int, subject: str, detail: str | None = None) -> None:
    """Raise Rejected for any error code but NONE."""
    if code != ErrorCode.NONE:
        raise Rejected(ErrorCode.of(code), subject, detail)
