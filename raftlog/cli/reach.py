"""Brokers as a client finds them: does the address resolve, who answers there, and what does he say of himself?"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raftlog.client.cluster import THE_QUORUM
from raftlog.client.connection import TOOL_CLIENT_ID, Connection
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.sync import SyncClient
from raftlog.client.topics import ResourceType
from raftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from raftlog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from raftlog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

MIN_ISR = "min.insync.replicas"
TOPICS_ASKED_MAX = 1_000
"""Of so many topics settings are asked for at a time."""
FULL_BYTES = 4 << 20
FULL_PERCENT = 1.0
"""With less than both of these free a broker's disk counts as full (`broker/runtime/disk_room.py`)."""


@dataclass(frozen=True)
class DiskLook:
    """One data directory; sizes in bytes, -1 where the broker did not say. `error`: it is offline."""

    path: str
    total: int
    usable: int
    error: bool

    @property
    def free_percent(self) -> float | None:
        return self.usable * 100 / self.total if self.total > 0 and self.usable >= 0 else None

    @property
    def is_full(self) -> bool:
        percent = self.free_percent
        return percent is not None and (percent < FULL_PERCENT or self.usable < FULL_BYTES)


FREE_PERCENT = {
    "critical": ("raftlog.disk.free.critical.percent", 3),
    "warning": ("raftlog.disk.free.warning.percent", 10),
}
"""The setting of a broker, and what it is where a broker does not say."""


def state_of(disk: DiskLook, settings: Mapping[str, str]) -> str:
    """`offline`, `critical`, `warning` or `ok`, by the settings of its broker."""
    if disk.error:
        return "offline"
    for state, (name, default) in FREE_PERCENT.items():
        if disk.free_percent is not None and disk.free_percent < float(settings.get(name, default)):
            return state
    return "ok"


def partitions_by_leader(metadata: MetadataResponse) -> dict[int, list[TopicPartition]]:
    """Those that have one."""
    found: dict[int, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for each in topic.partitions:
            if each.leader_id >= 0:
                found.setdefault(each.leader_id, []).append((topic.name or "", each.partition_index))
    return found


def under_replicated(client: SyncClient, topics: Iterable[MetadataResponseTopic]) -> frozenset[TopicPartition]:
    """Those that miss replicas. The ones that a reassignment is adding are not missed yet (KIP-352)."""
    under_way = client.admin.reassignments()

    def misses(topic: str, partition: MetadataResponsePartition) -> bool:
        move = under_way.get((topic, partition.partition_index))
        adding = move.adding if move is not None else ()
        return len(partition.isr_nodes) < len(set(partition.replica_nodes) - set(adding))

    return frozenset(
        (topic.name or "", each.partition_index)
        for topic in topics
        for each in topic.partitions
        if misses(topic.name or "", each)
    )


def below_min_isr(client: SyncClient, topics: Iterable[MetadataResponseTopic]) -> frozenset[TopicPartition]:
    """Those that have a leader and take no records with acks=all, for too few replicas are in sync."""
    lacking = [topic for topic in topics if any(map(_lacks_replicas, topic.partitions))]
    found: set[TopicPartition] = set()
    for first in range(0, len(lacking), TOPICS_ASKED_MAX):
        asked = lacking[first : first + TOPICS_ASKED_MAX]
        names = [topic.name or "" for topic in asked]
        answers = client.admin.describe_configs(ResourceType.TOPIC, names, [MIN_ISR])
        for topic, answer in zip(asked, answers, strict=True):
            wanted = int(answer.configs[0].value or 1)
            found.update(
                (topic.name or "", each.partition_index)
                for each in topic.partitions
                if each.leader_id >= 0 and len(each.isr_nodes) < min(wanted, len(each.replica_nodes))
            )
    return frozenset(found)


def _lacks_replicas(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)


class Ailing(NamedTuple):
    """Partitions that are not well: see `offline_logs` of the admin client, `under_replicated` and `below_min_isr`."""

    offline_logs: frozenset[TopicPartition]
    under_replicated: frozenset[TopicPartition]
    below_min_isr: frozenset[TopicPartition]


def ailing_partitions(client: SyncClient, metadata: MetadataResponse) -> Ailing:
    """Those of the cluster."""
    return Ailing(
        client.admin.offline_logs(partitions_by_leader(metadata)),
        under_replicated(client, metadata.topics),
        below_min_isr(client, metadata.topics),
    )


def settings_of(client: SyncClient, broker: int) -> Mapping[str, str]:
    """A broker's settings; none of one that is fenced, which is not in the metadata."""
    try:
        (found,) = client.admin.describe_configs(ResourceType.BROKER, [str(broker)])
    except KafkaError:
        return {}
    return {config.name: config.value or "" for config in found.configs}


@dataclass
class Look:
    """What was found at an address. `problem`: why nothing was, in words."""

    address: Address
    problem: str | None = None
    resolved: Sequence[str] = ()
    cluster_id: str | None = None
    disks: Sequence[DiskLook] = ()
    versions: Mapping[int, int] = field(default_factory=dict)
    """The highest version of each API."""
    clock_ahead: float | None = None
    """Seconds by which its clock is ahead of this machine's; None while it knows of no leader of the quorum."""


def look_at(addresses: Sequence[Address], timeout: float) -> list[Look]:
    """All at once, each within `timeout` seconds."""

    async def all_of_them() -> list[Look]:
        return list(await asyncio.gather(*(_look(address, timeout) for address in addresses)))

    return asyncio.run(all_of_them())


async def _look(address: Address, timeout: float) -> Look:
    look = Look(address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        look.problem = f"{address.host} does not resolve within {timeout:g} s"
        return look
    except (OSError, UnicodeError) as error:
        look.problem = f"{address.host} does not resolve: {getattr(error, 'strerror', None) or 'it is no name'}"
        return look
    look.resolved = sorted({str(each[4][0]) for each in found})
    try:
        connection = await Connection.open(address, TOOL_CLIENT_ID, timeout)
    except KafkaError as error:
        look.problem = str(error)
        return look
    try:
        await _ask(connection, look, timeout)
    except KafkaError as error:
        look.problem = f"it answers at {address}, and then: {error}"
    finally:
        connection.close()
    return look


async def _ask(connection: Connection, look: Look, timeout: float) -> None:
    asked = ApiVersionsRequest(client_software_name="raftlog", client_software_version="doctor")
    versions = await connection.request(asked, ApiVersionsResponse, timeout)
    look.versions = {each.api_key: each.max_version for each in versions.api_keys}
    cluster = await connection.request(DescribeClusterRequest(), DescribeClusterResponse, timeout)
    look.cluster_id = cluster.cluster_id
    directories = await connection.request(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse, timeout)
    look.disks = [
        DiskLook(each.log_dir, each.total_bytes, each.usable_bytes, bool(each.error_code))
        for each in directories.results
    ]
    look.clock_ahead = await _clock_ahead(connection, timeout)


async def _clock_ahead(connection: Connection, timeout: float) -> float | None:
    """A broker tells by its own clock when the members of the quorum were last heard of: of the leader that is now."""
    began = time.time()
    answer = await connection.request(DescribeQuorumRequest(topics=[THE_QUORUM]), DescribeQuorumResponse, timeout)
    ((partition,),) = [topic.partitions for topic in answer.topics]
    told = [each.last_fetch_timestamp for each in partition.current_voters if each.replica_id == partition.leader_id]
    return told[0] / 1000 - (began + time.time()) / 2 if told else None


def why_fenced(look: Look, metadata_lag: int | None, quorum_leader: int) -> str:
    """Why a broker leads nothing, as far as one can tell by looking at it."""
    if look.problem is not None:
        return f"not reached: {look.problem}"
    full = [disk.path for disk in look.disks if disk.is_full]
    if full:
        return f"its disk is full ({', '.join(full)}): make room, or delete topics"
    if quorum_leader < 0:
        return "the metadata quorum has no leader: are most of its voters up?"
    if metadata_lag:
        return f"it is {metadata_lag:,} metadata entries behind, and comes back when it has them"
    return f"it runs, and broker {quorum_leader}, which leads the quorum, does not hear of it: is the way between free?"
