"""Asking a leader where its log begins and ends, for followers that are outside of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from raftlog.broker.runtime.link import Link
    from raftlog.broker.runtime.replication.partition_fetch_state import PartitionFetchState

VERSION = 9
_LATEST = -1
_EARLIEST_LOCAL = -4
_UNKNOWN = -1


class Locator:
    """`located(followed, start, end)` is called with each answer; -1 for what the leader did not say."""

    def __init__(self, link: Link, node_id: int, located: Callable[[PartitionFetchState, int, int], None]) -> None:
        self._link = link
        self._node_id = node_id
        self._located = located

    def ask(self, followed: PartitionFetchState) -> None:
        """Ask for one partition: its start, then its end."""
        self._send(followed, _EARLIEST_LOCAL, partial(self._got_start, followed))

    def _got_start(self, followed: PartitionFetchState, start: int) -> None:
        if start < 0:
            self._located(followed, _UNKNOWN, _UNKNOWN)
        else:
            self._send(followed, _LATEST, partial(self._located, followed, start))

    def _send(self, followed: PartitionFetchState, timestamp: int, then: Callable[[int], None]) -> None:
        partition = ListOffsetsPartition(
            partition_index=followed.partition.index,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[ListOffsetsTopic(name=followed.partition.topic, partitions=[partition])],
        )
        self._link.send(request, VERSION, partial(self._answered, then))

    @staticmethod
    def _answered(then: Callable[[int], None], answer: ListOffsetsResponse) -> None:
        for topic in answer.topics:
            for found in topic.partitions:
                then(found.offset if found.error_code == ErrorCode.NONE else _UNKNOWN)
                return
        then(_UNKNOWN)
