"""Asks the brokers which partitions there are and where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from raftlog.client.core.errors import Rejected
from raftlog.client.offsets import EARLIEST, LATEST, committed_offsets, offsets_at, offsets_found
from raftlog.client.router import Router
from raftlog.pipeline.given import BadOption
from raftlog.pipeline.source.offsets import Partition, Position, check_covers
from raftlog.pipeline.source.options import SourceOptions
from raftlog.wire.errors import ErrorCode


class Planner:
    """For one source. Its coroutines run in the session's event loop and raise KafkaError."""

    def __init__(self, router: Router, options: SourceOptions) -> None:
        self._router = router
        self._options = options

    async def partitions(self) -> list[Partition]:
        """Those that are to be read now. Raises BadOption when a topic or partition is not there."""
        options = self._options
        if options.pattern is not None:
            wanted = re.compile(options.pattern)
            answer = await self._router.retrying(self._router.metadata)
            # An internal topic is matched only by its own name, or everybody's `.*` would read offsets of groups.
            return sorted(
                (topic.name or "", partition.partition_index)
                for topic in answer.topics
                for partition in topic.partitions
                if wanted.fullmatch(topic.name or "") and not topic.is_internal
            )
        topics = options.topics or tuple(dict.fromkeys(topic for topic, _ in options.assigned))
        found = []
        for name in topics:
            try:
                topic = await self._router.retrying(partial(self._router.topic, name))
            except Rejected as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise BadOption(f"there is no topic {name!r}: create it, or look whether the name is right") from error
            found += [(name, partition.partition_index) for partition in topic.partitions]
        if not options.assigned:
            return sorted(found)
        missing = sorted(set(options.assigned) - set(found))
        if missing:
            names = ", ".join(f"{topic}[{index}]" for topic, index in missing)
            raise BadOption(f"assign names {names}: there is no such partition")
        return sorted(options.assigned)

    async def first(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return await self._at(partitions, EARLIEST)

    async def last(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Where partitions end: for readers of committed records, before the first open transaction."""
        return await self._at(partitions, LATEST)

    async def first_at(self, partitions: Sequence[Partition], time: int) -> dict[Partition, int]:
        """Offsets before which each record that was there at the time of the call is earlier than `time`, in ms."""
        # The end first: a record that comes between the two questions lies behind it, and is not passed over.
        last = await self.last(partitions)
        committed = self._options.read_committed
        found = await offsets_found(self._router, dict.fromkeys(partitions, time), read_committed=committed)
        return {each: offset if offset >= 0 else last[each] for each, offset in found.items()}

    async def start(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return await self._resolve(partitions, self._options.starting, "startingOffsets", is_start=True)

    async def end(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return await self._resolve(partitions, self._options.ending, "endingOffsets", is_start=False)

    async def _at(self, partitions: Sequence[Partition], special: int) -> dict[Partition, int]:
        if not partitions:
            return {}
        committed = self._options.read_committed
        return await offsets_at(self._router, dict.fromkeys(partitions, special), read_committed=committed)

    async def _resolve(
        self, partitions: Sequence[Partition], position: Position, option: str, *, is_start: bool
    ) -> dict[Partition, int]:
        match position.kind:
            case "earliest":
                return await self.first(partitions)
            case "latest":
                return await self.last(partitions)
            case "committed":
                return await self._committed(partitions)
            case "timestamp":
                return await self._by_time(dict.fromkeys(partitions, position.timestamp), is_start=is_start)
            case "timestamps":
                assert position.values is not None
                check_covers(f"{option}ByTimestamp", position.values, partitions)
                return await self._by_time(dict(position.values), is_start=is_start)
            case _:
                assert position.values is not None
                check_covers(option, position.values, partitions)
                special = {each: offset for each, offset in position.values.items() if offset < 0}
                committed = self._options.read_committed
                found = await offsets_at(self._router, special, read_committed=committed) if special else {}
                return {**position.values, **found}

    async def _by_time(self, times: dict[Partition, int], *, is_start: bool) -> dict[Partition, int]:
        found = await offsets_found(self._router, times, read_committed=self._options.read_committed)
        missing = sorted(partition for partition, offset in found.items() if offset < 0)
        if missing and is_start and not self._options.end_when_no_match:
            names = ", ".join(f"{topic}[{index}] at {times[topic, index]}" for topic, index in missing)
            raise BadOption(
                f"no record is as late as the timestamp asked for: {names}. "
                "startingOffsetsByTimestampStrategy=latest would begin at the end there"
            )
        return found | await self._at(missing, LATEST)

    async def _committed(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """What the group has committed, and the start where it has committed nothing."""
        group = self._options.group
        assert group is not None
        known = await committed_offsets(self._router, group, partitions, require_stable=True)
        rest = [each for each in partitions if each not in known]
        return {each: position.offset for each, position in known.items()} | await self.first(rest)
