"""Kafka's APIs: key, name, versions, and where their messages are.

Of each API what Kafka 4.3 serves, which may be more than a broker of ours does. The message definitions of an API are
loaded when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from types import MappingProxyType

from raftlog.wire.schema import Message


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81


class Api:
    """One API. `flexible_from` is the first version with compact lengths and tagged fields, None if none has.

    `advertised_min` is the lowest version that a broker names in its ApiVersions response. It is `min_version`
    but for Produce: versions of librdkafka stop compressing for a broker that does not advertise version 0,
    which Kafka therefore names and refuses (KAFKA-18659).
    """

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        flexible_from: int | None,
        *,
        advertised_min: int | None = None,
    ) -> None:
        self.key = key
        self.name = "".join(word.capitalize() for word in key.name.split("_"))
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_from = flexible_from
        self.advertised_min = min_version if advertised_min is None else advertised_min

    def __repr__(self) -> str:
        return f"<api {self.key.value} {self.name} v{self.min_version}-{self.max_version}>"

    @cached_property
    def request(self) -> type[Message]:
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response")

    def supports(self, version: int) -> bool:
        """Whether there are messages of this version."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields, 0 without.

        Always 0 for ApiVersions: its reader may not know the version that the broker answers in (KIP-511).
        """
        return 1 if self.is_flexible(version) and self.key != ApiKey.API_VERSIONS else 0

    def _message(self, suffix: str) -> type[Message]:
        module = import_module(f"raftlog.wire.messages.{self.key.name.lower()}")
        message: type[Message] = getattr(module, self.name + suffix)
        return message


def _table(*apis: Api) -> Mapping[int, Api]:
    return MappingProxyType({int(api.key): api for api in apis})


# Key, lowest and highest version, first flexible version.
APIS: Mapping[int, Api] = _table(
    Api(ApiKey.PRODUCE, 3, 13, 9, advertised_min=0),
    Api(ApiKey.FETCH, 4, 18, 12),
    Api(ApiKey.LIST_OFFSETS, 1, 11, 6),
    Api(ApiKey.METADATA, 0, 13, 9),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
    Api(ApiKey.OFFSET_FETCH, 1, 10, 6),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
    Api(ApiKey.JOIN_GROUP, 0, 9, 6),
    Api(ApiKey.HEARTBEAT, 0, 4, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
    Api(ApiKey.SYNC_GROUP, 0, 5, 4),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    Api(ApiKey.LIST_GROUPS, 0, 5, 3),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, None),
    Api(ApiKey.API_VERSIONS, 0, 4, 3),
    Api(ApiKey.CREATE_TOPICS, 2, 7, 5),
    Api(ApiKey.DELETE_TOPICS, 1, 6, 4),
    Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    Api(ApiKey.END_TXN, 0, 5, 3),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
    Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
    Api(ApiKey.ELECT_LEADERS, 0, 2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
    Api(ApiKey.OFFSET_DELETE, 0, 0, None),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0),
    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0),
)
