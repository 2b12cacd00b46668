"""Reads ranges of offsets: the next part is fetched while the last one is decoded."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence

from raftlog.client.core.errors import Rejected, TimedOut
from raftlog.client.core.fetch_session import Wanted
from raftlog.client.core.fetched import Slice
from raftlog.client.core.fetching import EARLIEST, LATEST, Fetching, Received
from raftlog.client.core.metadata import ClusterMetadata, TopicPartition
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.fetcher import Fetcher
from raftlog.client.offsets import offsets_at
from raftlog.pipeline.session import Session, session
from raftlog.pipeline.source.options import SourceOptions
from raftlog.pipeline.source.ranges import DataLoss, Range
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import PartitionData

EVERYTHING = 1 << 62
RECORD_BYTES = 1024
"""What an offset is taken for before the first ones have come; then for what those had."""
SPARE_BYTES = 64 * 1024


def read_ranges(options: SourceOptions, wanted: Sequence[Range]) -> Iterator[list[Slice]]:
    """The records of ranges of different partitions, one range after the other, as they came. Raises DataLoss, if the
    options say so, and KafkaError.
    """
    running = session(options.connection)
    reader = TaskReader(running, options, wanted)
    try:
        while not reader.done:
            if found := running.run(reader.next()):
                yield found
    finally:
        if not reader.done:
            running.run(reader.close())


class TaskReader:
    """The ranges of one task. To be used in the session's event loop; when it is done, it is closed."""

    def __init__(self, running: Session, options: SourceOptions, wanted: Sequence[Range]) -> None:
        settings = ConsumerSettings(
            auto_offset_reset="none",
            isolation_level="read_committed" if options.read_committed else "read_uncommitted",
            max_partition_fetch_bytes=options.fetch_bytes,
            fetch_max_bytes=options.fetch_bytes,
            check_crcs=options.check_crcs,
            client_rack=options.rack,
        )
        fetching = FetchingRanges(settings, wanted)
        self.done = False
        self._fetcher = Fetcher(running.router, fetching, settings)
        self._left = deque(RangeReader(running, options, each, fetching, self._fetcher) for each in wanted)

    async def next(self) -> list[Slice]:
        """The next records of the first range; if those are its last, what is there of the ranges behind it, too."""
        found: list[Slice] = []
        while self._left and (not found or self._left[0].has_records):
            part = await self._left[0].next()
            if part is not None:
                found.append(part)
            if not self._left[0].done:
                break
            self._left.popleft()
        if not self._left:
            await self.close()
        return found

    async def close(self) -> None:
        self.done = True
        await self._fetcher.stop()


class FetchingRanges(Fetching):
    """All ranges at once, as far as their records have room, and of each as many bytes as it may have: small ranges of
    a long log would be fetched with all that comes behind them.
    """

    def __init__(self, settings: ConsumerSettings, ranges: Sequence[Range]) -> None:
        super().__init__(settings)
        self._record_bytes = RECORD_BYTES
        self._bytes_max = settings.fetch_max_bytes
        self._order = [each.topic_partition for each in ranges]
        for each in ranges:
            self.assign(each.topic_partition, each.start, each.end)

    def wanted(
        self, now: float, known: ClusterMetadata
    ) -> tuple[dict[int, dict[TopicPartition, Wanted]], list[TopicPartition]]:
        found, unled = super().wanted(now, known)
        if sum(state.buffered for state in self.partitions.values()) >= self._bytes_max:
            # The others' records wait for the first one's, which are fetched when it has none.
            first = next(each for each in self._order if each in self.partitions)
            has_none = not self.partitions[first].pieces
            found = {node: {first: parts[first]} for node, parts in found.items() if has_none and first in parts}
        return {
            node: {partition: self._with_bytes(partition, wanted) for partition, wanted in partitions.items()}
            for node, partitions in found.items()
        }, unled

    def received(self, partition: TopicPartition, sent: Wanted, data: PartitionData, now: float) -> Received:
        received = super().received(partition, sent, data, now)
        state = self.partitions.get(partition)
        if data.records and state is not None and state.fetched_to > sent.offset:
            self._record_bytes = -(-len(data.records) // (state.fetched_to - sent.offset))
        return received

    def _with_bytes(self, partition: TopicPartition, wanted: Wanted) -> Wanted:
        likely = (self.partitions[partition].end - wanted.offset) * self._record_bytes + SPARE_BYTES
        return wanted._replace(max_bytes=min(wanted.max_bytes, likely))


class RangeReader:
    """One range. To be used in the session's event loop."""

    def __init__(
        self, running: Session, options: SourceOptions, wanted: Range, fetching: FetchingRanges, fetcher: Fetcher
    ) -> None:
        self.done = False
        """Whether all that there is has been given."""
        self._router = running.router
        self._options = options
        self._wanted = wanted
        self._partition = wanted.topic_partition
        self._fetching = fetching
        self._fetcher = fetcher
        self._given_to = wanted.start

    @property
    def has_records(self) -> bool:
        """Whether the next ones are there."""
        return bool(self._fetching.partitions[self._partition].pieces)

    async def next(self) -> Slice | None:
        """The next records, None if it turns out that there are no more."""
        timeout = self._options.connection.timeout
        deadline = time.monotonic() + timeout
        while not self.done:
            self._fetcher.arrived.clear()
            if self._fetcher.failure is not None:
                failure, self._fetcher.failure = self._fetcher.failure, None
                raise failure
            state = self._fetching.partitions[self._partition]
            if state.position is not None and state.position < self._given_to:
                self._pass_over_what_was_given(state.position)
            if state.position is not None and state.position >= self._wanted.end and not state.pieces:
                self._end()
                return None
            before = state.position
            try:
                found = self._take()
            except Rejected as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_ID and state.position == self._wanted.start:
                    # The topic was made anew since this process has read of it, perhaps long before this range.
                    self._fetching.assign(self._partition, self._wanted.start, self._wanted.end)
                    continue
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                await self._go_on_behind_what_is_lost(state.fetched_to)
                continue
            if found is not None:
                self._given_to = found.end
                if not self.done:
                    self._fetcher.wake()
                return found
            if state.position != before:
                deadline = time.monotonic() + timeout
            self._fetcher.wake()
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                    await self._fetcher.arrived.wait()
            except TimeoutError:
                await self._missing(state.fetched_to, timeout)
        return None

    def _take(self) -> Slice | None:
        """What is there."""
        slices = self._fetching.take(EVERYTHING, [self._partition])
        if not slices:
            return None
        (found,) = slices
        if found.end >= self._wanted.end:
            self._end()
        return found

    def _end(self) -> None:
        self.done = True
        self._fetching.unassign(self._partition)

    async def _go_on_behind_what_is_lost(self, position: int) -> None:
        name = f"{self._wanted.topic}[{self._wanted.partition}]"
        first = (await offsets_at(self._router, {self._partition: EARLIEST}))[self._partition]
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{name}: offset {position} was to be read, and the first one that is left is {first}")
        if first <= position:
            self._end()  # the log ends before: nothing more of the range is there
        else:
            self._fetching.partitions[self._partition].move(min(first, self._wanted.end))

    def _pass_over_what_was_given(self, position: int) -> None:
        """The log was cut after an unclean election, to before what was read of it: no offset is given twice."""
        if self._options.fail_on_data_loss:
            name = f"{self._wanted.topic}[{self._wanted.partition}]"
            raise DataLoss(f"{name} was cut to offset {position}, and was read to {self._given_to} before")
        self._fetching.partitions[self._partition].move(self._given_to)

    async def _missing(self, position: int, timeout: float) -> None:
        name = f"{self._wanted.topic}[{self._wanted.partition}]"
        # What was fetched last may be long ago, or of a leader that does not know yet how much is committed.
        try:
            end = (await offsets_at(self._router, {self._partition: LATEST}, read_committed=False))[self._partition]
        except Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            lost = f"{name} is not there any more"
        else:
            if position < end:
                raise TimedOut(f"{name}: offset {position} did not come within {timeout:g} s")
            lost = f"{name} ends at offset {end}, and {self._wanted.end} was to be read"
        if self._options.fail_on_data_loss:
            raise DataLoss(lost)
        self._end()
