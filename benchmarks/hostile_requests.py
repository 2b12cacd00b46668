"""Requests that each name as much as one request may, or that concern all topics of a broker.

`hostile.py` sends them; each needs something to be there first, or nothing.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any, TypeVar

from benchmarks.brokers import Broker
from benchmarks.raw_client import SECONDS_MAX, Asking, frame
from raftlog.metadata.records import ResourceType
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode
from raftlog.wire.headers import parse_response_header
from raftlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raftlog.wire.messages.end_txn import EndTxnRequest
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raftlog.wire.schema import Field, Kind, Struct

S = TypeVar("S", bound=Struct)

ENTRIES = 33_000
"""Names in one request: three elements of arrays each, in some, are as many as it may have."""
PARTITIONS = 49_000
"""Partitions in one request, each in a topic of its own where the request names those."""
TOPICS = 9_000
"""Topics that are there, when it is about those."""
FETCH_VERSION, COMMIT_VERSION, TXN_COMMIT_VERSION, END_TXN_VERSION, OFFSET_FETCH_VERSION = 12, 8, 5, 5, 8
METADATA_VERSION, ELECT_LEADERS_VERSION, ALTER_VERSION = 9, 2, 1
GROUP, TRANSACTIONAL_ID = "many", "many"


def filled(kind: type[S], version: int, count: int, name: str = "") -> S:
    """A struct whose first array has `count` elements, and those arrays one; all that has a name has one of its own."""
    message = kind()
    for field in kind.__fields__:
        if not field.versions.hold(version) or field.tag is not None:
            continue
        if field.kind is Kind.ARRAY:
            setattr(message, field.name, [_element(field, version, number) for number in range(count)])
            count = 0
        elif field.name in ("name", "topic", "resource_name"):
            setattr(message, field.name, name)
        elif field.name == "timestamp":
            setattr(message, field.name, -1)
    return message


def _element(field: Field, version: int, number: int) -> Any:
    if field.element is Kind.STRUCT:
        assert field.struct is not None
        return filled(field.struct, version, 1, f"unknown-{number}")
    return f"unknown-{number}" if field.element is Kind.STRING else number


def many_entries(key: ApiKey) -> Callable[[Broker], list[socket.socket]]:
    """Four connections with a request each about as many unknown topics or groups as one request may name."""

    def attack(broker: Broker) -> list[socket.socket]:
        api = APIS[key]
        version = api.max_version
        request: Any = filled(api.request, version, ENTRIES)
        if key is ApiKey.DESCRIBE_CONFIGS:
            for resource in request.resources:
                resource.resource_type = ResourceType.GROUP
        elif key is ApiKey.METADATA:
            request.allow_auto_topic_creation = False
        elif key is not ApiKey.LIST_OFFSETS and hasattr(request, "timeout_ms"):
            request.timeout_ms = 60_000
        framed = frame(key, version, 1, request)
        connections = [Asking(broker.bootstrap) for _ in range(4)]
        for each in connections:
            each.socket.sendall(framed)
        for each in connections:
            each.receive()
        return [each.socket for each in connections]

    return attack


ENTRIES_OF = {
    "offsets": ApiKey.LIST_OFFSETS,
    "epochs": ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "metadata": ApiKey.METADATA,
    "producers": ApiKey.DESCRIBE_PRODUCERS,
    "records": ApiKey.DELETE_RECORDS,
    "elections": ApiKey.ELECT_LEADERS,
    "moves": ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "deletions": ApiKey.DELETE_TOPICS,
    "growth": ApiKey.CREATE_PARTITIONS,
    "pages": ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    "settings": ApiKey.DESCRIBE_CONFIGS,
}



def _nothing(_: Broker) -> None:
    """Nothing has to be there first."""


# ── about topics that are there ───────────────────────────────────────────────────────────────────────────────


def create_many_topics(broker: Broker) -> None:
    """9,000 topics in one request."""
    topics = [CreatableTopic(name=f"many-{n}", num_partitions=1, replication_factor=1) for n in range(TOPICS)]
    asking = Asking(broker.bootstrap)
    asking.ask(frame(ApiKey.CREATE_TOPICS, 5, 1, CreateTopicsRequest(topics=topics, timeout_ms=60_000)))
    asking.socket.close()


def with_logs(broker: Broker) -> None:
    """9,000 topics whose logs are open."""
    create_many_topics(broker)
    for connection in fetches_that_wait(broker):
        connection.close()


def with_group(broker: Broker) -> None:
    """The same, and a coordinator that has loaded the group, and knows the producer."""
    create_many_topics(broker)
    asking = Asking(broker.bootstrap)
    deadline = time.monotonic() + SECONDS_MAX
    # All answers begin with the throttle time and the error code.
    finding = [FindCoordinatorRequest(key=GROUP, key_type=key_type) for key_type in (0, 1)]
    needed = [frame(ApiKey.FIND_COORDINATOR, 1, 1, request) for request in finding]
    needed.append(frame(ApiKey.INIT_PRODUCER_ID, 1, 1, _producer()))
    while not all(asking.ask(request)[8:10] == b"\0\0" for request in needed):
        if time.monotonic() > deadline:
            raise TimeoutError("no coordinator")
        time.sleep(0.1)
    asking.ask(commit_of(16))
    asking.socket.close()


def _producer() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)


def commit_of(partitions: int) -> bytes:
    """OffsetCommit: the topics that are there again and again, with a text beside each offset."""
    topics = [
        OffsetCommitRequestTopic(
            name=f"many-{number % TOPICS}",
            partitions=[
                OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="x")
            ],
        )
        for number in range(partitions)
    ]
    return frame(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 1, OffsetCommitRequest(group_id=GROUP, topics=topics))


def commits(broker: Broker) -> list[socket.socket]:
    """One OffsetCommit about as many partitions as one request may name."""
    asking = Asking(broker.bootstrap)
    asking.ask(commit_of(PARTITIONS))
    return [asking.socket]


def commits_in_transaction(broker: Broker) -> list[socket.socket]:
    """The same with TxnOffsetCommit, and then the transaction's end."""
    asking = Asking(broker.bootstrap)
    answer = asking.ask(frame(ApiKey.INIT_PRODUCER_ID, 1, 1, _producer()))
    given = decode(InitProducerIdResponse, 1, answer, parse_response_header(ApiKey.INIT_PRODUCER_ID, 1, answer)[1])
    topics = [
        TxnOffsetCommitRequestTopic(
            name=f"many-{number % TOPICS}",
            partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number)],
        )
        for number in range(PARTITIONS)
    ]
    request = TxnOffsetCommitRequest(transactional_id=TRANSACTIONAL_ID, group_id=GROUP, topics=topics)
    request.producer_id, request.producer_epoch = given.producer_id, given.producer_epoch
    asking.ask(frame(ApiKey.TXN_OFFSET_COMMIT, TXN_COMMIT_VERSION, 1, request))
    end = EndTxnRequest(transactional_id=TRANSACTIONAL_ID, committed=True)
    end.producer_id, end.producer_epoch = given.producer_id, given.producer_epoch
    asking.ask(frame(ApiKey.END_TXN, END_TXN_VERSION, 1, end))
    return [asking.socket]


def fetches_offsets(broker: Broker) -> list[socket.socket]:
    """OffsetFetch of as many partitions by name, and of all that there are."""
    asking = Asking(broker.bootstrap)
    topics = [OffsetFetchRequestTopics(name=f"many-{number}", partition_indexes=[0]) for number in range(PARTITIONS)]
    for wanted in (topics, None):
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)
        asking.ask(frame(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, 1, OffsetFetchRequest(groups=[group])))
    return [asking.socket]


def with_offsets(broker: Broker) -> None:
    """A group that has committed for every topic."""
    with_group(broker)
    asking = Asking(broker.bootstrap)
    asking.ask(commit_of(TOPICS))
    asking.socket.close()


def fetch_of(session_id: int, session_epoch: int, topics: int, max_wait_ms: int = 0) -> bytes:
    """Fetch: one partition of each of so many topics; TOPICS of them are there."""
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20)
    request.session_id, request.session_epoch = session_id, session_epoch
    request.topics = [
        FetchTopic(topic=f"many-{n}", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        for n in range(topics)
    ]
    return frame(ApiKey.FETCH, FETCH_VERSION, 1, request)


def fetches(broker: Broker) -> list[socket.socket]:
    """A Fetch of as many partitions as one request may name, without a session."""
    asking = Asking(broker.bootstrap)
    asking.ask(fetch_of(0, -1, PARTITIONS))
    return [asking.socket]


def fetches_in_session(broker: Broker) -> list[socket.socket]:
    """The same in a session, with what the session is asked next, and its end."""
    asking = Asking(broker.bootstrap)
    answer = asking.ask(fetch_of(0, 0, PARTITIONS))
    # After the correlation id and its tags: the throttle time and the error code.
    (session_id,) = struct.unpack_from(">i", answer, 4 + 1 + 4 + 2)
    for epoch in (1, 2, -1):
        asking.ask(fetch_of(session_id, epoch, 0))
    return [asking.socket]


def fetches_that_wait(broker: Broker) -> list[socket.socket]:
    """A Fetch of all topics that are there, which waits for a second; its session's end."""
    asking = Asking(broker.bootstrap)
    asking.ask(fetch_of(0, -1, TOPICS, 1_000))
    return [asking.socket]


def creates_on_first_use(broker: Broker) -> list[socket.socket]:
    """Metadata about 9,000 topics that are not there yet."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"many-{n}") for n in range(TOPICS)])
    request.allow_auto_topic_creation = True
    asking = Asking(broker.bootstrap)
    asking.ask(frame(ApiKey.METADATA, METADATA_VERSION, 1, request))
    return [asking.socket]


def elects_leaders(broker: Broker) -> list[socket.socket]:
    """ElectLeaders for all topics that are there, by name, and for all that there are."""
    asking = Asking(broker.bootstrap)
    named = [TopicPartitions(topic=f"many-{n}", partitions=[0]) for n in range(TOPICS)]
    for partitions in (named, None):
        request = ElectLeadersRequest(topic_partitions=partitions)
        asking.ask(frame(ApiKey.ELECT_LEADERS, ELECT_LEADERS_VERSION, 1, request))
    return [asking.socket]


def alters_defaults(broker: Broker) -> list[socket.socket]:
    """A setting of all brokers that stands in for one of topics, while there are 9,000."""
    asking = Asking(broker.bootstrap)
    for name, value in (("log.retention.ms", "86400000"), ("min.insync.replicas", "1"), ("log.segment.bytes", "99999")):
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        asking.ask(frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, 1, request))
    return [asking.socket]


Attack = Callable[[Broker], list[socket.socket]]

REQUESTS: dict[str, tuple[Callable[[Broker], None], Attack]] = {
    **{f"many-{name}": (_nothing, many_entries(key)) for name, key in ENTRIES_OF.items()},
    "fetches": (create_many_topics, fetches),
    "fetches-in-session": (create_many_topics, fetches_in_session),
    "fetches-that-wait": (create_many_topics, fetches_that_wait),
    "commits": (with_group, commits),
    "commits-in-transaction": (with_group, commits_in_transaction),
    "offset-fetches": (with_offsets, fetches_offsets),
    "topics-on-first-use": (_nothing, creates_on_first_use),
    "elections": (create_many_topics, elects_leaders),
    "defaults": (with_logs, alters_defaults),
}
"""What has to be there first, and the attack."""
