"""How far groups are behind: the leaders of the partitions are asked, this broker too, when somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from raftlog.broker.runtime.broker_requests import RequestFailure
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.broker_requests import RequestSender
    from raftlog.metadata.image import MetadataImage
    from raftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

LIST_OFFSETS_VERSION = 11
LATEST = -1
TIMEOUT_SECONDS = 2.0
"""A leader that does not answer in that time is left out: its partitions have no lag that is known."""

PARTITIONS_IN_A_REQUEST = 100
"""A leader looks up a batch for each that is behind, at some 20 us: the event loop is held for 2 ms."""

POSITIONS_MAX = 10_000
"""How many are looked at for one request; those beyond have no lag that is known."""

REMEMBERED_MAX, REMEMBERED_SECONDS = 20_000, 1.0
"""Whoever watches groups asks again and again; in that time the answer is the same."""

Position: TypeAlias = tuple[str, int, int]
"""Topic, partition, and the offset that a group has committed there."""


class PartitionLag(NamedTuple):
    """The ends of a partition, and since when its first record that is not consumed waits (ms since 1970, the largest
    timestamp of its batch); -1 when there is none."""

    high_watermark: int
    last_stable_offset: int
    waiting_since_ms: int

    def milliseconds(self, now_ms: int) -> int:
        """How long the oldest record that is not consumed has waited; 0 when there is none."""
        return max(now_ms - self.waiting_since_ms, 0) if self.waiting_since_ms >= 0 else 0


Lags: TypeAlias = dict[Position, PartitionLag]


class GroupLags:
    """Asks, and remembers for a moment."""

    def __init__(self, image: Callable[[], MetadataImage], sender: RequestSender, clock: Clock) -> None:
        self._image = image
        self._sender = sender
        self._clock = clock
        # With the time until which it counts; the oldest first.
        self._remembered: dict[Position, tuple[float, PartitionLag]] = {}

    def find(self, positions: Sequence[Position], respond: Callable[[Lags], None]) -> None:
        """`respond` gets what is known of the positions, now or later: none of partitions that cannot be asked for."""
        now = self._clock.monotonic()
        found: Lags = {}
        asked: dict[BrokerId, list[Position]] = {}
        image = self._image()
        for position in list(dict.fromkeys(positions))[:POSITIONS_MAX]:
            until, lag = self._remembered.get(position, (0.0, None))
            if lag is not None and until > now:
                found[position] = lag
                continue
            topic, index, _ = position
            partition = image.partition(topic, index)
            if partition is not None and partition.leader >= 0:
                asked.setdefault(partition.leader, []).append(position)
        chunks = [(leader, chunk) for leader, each in asked.items() for chunk in _chunks(each)]
        waiting = len(chunks)

        def take(chunk: Sequence[Position], answer: ListOffsetsResponse | RequestFailure) -> None:
            nonlocal waiting
            waiting -= 1
            if not isinstance(answer, RequestFailure):
                self._take(chunk, answer, found)
            if not waiting:
                respond(found)

        for leader, chunk in chunks:
            self._sender.send(leader, _request(chunk), LIST_OFFSETS_VERSION, partial(take, chunk))
        if not chunks:
            respond(found)

    def _take(self, chunk: Sequence[Position], answer: ListOffsetsResponse, found: Lags) -> None:
        until = self._clock.monotonic() + REMEMBERED_SECONDS
        remembered = self._remembered
        # In the order of the question, one topic for each position.
        for position, topic in zip(chunk, answer.topics, strict=False):
            for partition in topic.partitions:
                if partition.error_code != ErrorCode.NONE or (topic.name, partition.partition_index) != position[:2]:
                    continue
                lag = PartitionLag(partition.offset, partition.last_stable_offset, partition.consumed_timestamp)
                found[position] = lag
                remembered.pop(position, None)
                remembered[position] = until, lag
        while len(remembered) > REMEMBERED_MAX:
            del remembered[next(iter(remembered))]


def _chunks(positions: Sequence[Position]) -> Iterator[list[Position]]:
    """Each with no partition twice: a leader refuses that."""
    chunk: dict[tuple[str, int], Position] = {}
    for position in positions:
        if len(chunk) == PARTITIONS_IN_A_REQUEST or position[:2] in chunk:
            yield list(chunk.values())
            chunk = {}
        chunk[position[:2]] = position
    if chunk:
        yield list(chunk.values())


def _request(chunk: Sequence[Position]) -> ListOffsetsRequest:
    # Imported here: a broker starts without it.
    from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST, consumed_offset=offset)],
            )
            for topic, index, offset in chunk
        ],
    )
