"""Administration: topics, configs, groups, offsets, brokers, replicas and the metadata quorum, as plain values.

Every call raises KafkaError; Rejected carries the broker's error code and message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raftlog.client.cluster import ClusterAdmin
from raftlog.client.core.errors import check
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.groups import GroupAdmin
from raftlog.client.offsets import by_topic, offline_logs, offsets_at
from raftlog.client.router import Router
from raftlog.client.topics import TopicAdmin
from raftlog.client.transaction_admin import TransactionAdmin
from raftlog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from raftlog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


class Admin(TopicAdmin, GroupAdmin, ClusterAdmin, TransactionAdmin):
    """Made by `Client.admin`."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Brokers, and these topics or all."""
        return await self._router.retrying(lambda: self._router.metadata(topics))

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic's metadata. Raises Rejected, for example with UNKNOWN_TOPIC_OR_PARTITION."""
        return await self._router.retrying(lambda: self._router.topic(name, create=create))

    async def coordinator(self, group: str) -> int:
        """The node id of the broker that looks after a group."""
        return await self._router.retrying(lambda: self._router.coordinator(group))

    async def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp: int, *, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time (ms since 1970, or LATEST or EARLIEST); the end where there is none."""
        return await offsets_at(self._router, dict.fromkeys(partitions, timestamp), read_committed=read_committed)

    async def offline_logs(self, led: Mapping[int, Sequence[TopicPartition]]) -> frozenset[TopicPartition]:
        """Of partitions by their leader those whose log is offline. Leaders that do not answer are passed over."""
        return await offline_logs(self._router, led)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below these offsets (-1: all that are committed). Returns where each log begins then."""

        async def attempt() -> dict[TopicPartition, int]:
            leaders: dict[int, list[TopicPartition]] = {}
            for topic, index in before:
                leaders.setdefault(await self._router.leader(topic, index), []).append((topic, index))
            starts: dict[TopicPartition, int] = {}
            for node, theirs in leaders.items():
                request = DeleteRecordsRequest(
                    topics=[
                        DeleteRecordsTopic(
                            name=name,
                            partitions=[
                                DeleteRecordsPartition(partition_index=index, offset=before[name, index])
                                for index in indexes
                            ],
                        )
                        for name, indexes in by_topic(theirs).items()
                    ],
                    timeout_ms=int(self._router.timeout * 1000),
                )
                answer = await self._router.ask(request, DeleteRecordsResponse, node=node)
                for answered in answer.topics:
                    for each in answered.partitions:
                        check(each.error_code, f"{answered.name}[{each.partition_index}]")
                        starts[answered.name, each.partition_index] = each.low_watermark
            return starts

        return await self._router.retrying(attempt)
