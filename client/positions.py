"""A consumer's partitions: where reading stands in each, and moving it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from raftlog.client.batch import Batch
from raftlog.client.core.errors import DamagedRecords, NoOffset, TimedOut, WrongState
from raftlog.client.core.fetched import ConsumerRecord, Slice
from raftlog.client.core.fetching import EARLIEST, LATEST, Fetching, PartitionState
from raftlog.client.core.membership import Partitions
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Position, Progress
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.fetcher import Fetcher
from raftlog.client.offsets import committed_offsets, offsets_at
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode

LOOK_SECONDS = 0.05


class Checked(Protocol):
    """What has promises that can be looked at."""

    def check_invariants(self) -> None: ...


class Positions:
    """The part of `Consumer` that knows of offsets and nothing of groups."""

    def __init__(self, router: Router, settings: ConsumerSettings) -> None:
        self.settings = settings
        self._router = router
        self._fetching = Fetching(settings)
        self._fetcher = Fetcher(router, self._fetching, settings)
        self._progress = Progress()
        self._checked: list[Checked] = [self._fetching, self._fetcher, self._progress]
        """Whose promises are looked at; a consumer adds its member of a group."""
        self._current: list[tuple[TopicPartition, object]] = []
        """The record that was given out last, which is done when the next one is asked for."""
        self._unread: deque[tuple[Slice, list[ConsumerRecord]]] = deque()
        """What record-wise iteration took and has not given out yet; the records are in reverse order."""

    @property
    def assignment(self) -> Partitions:
        return frozenset(self._fetching.partitions)

    async def position(self, topic: str, partition: int, *, timeout: float | None = None) -> int:
        """The next offset that is read there."""
        deadline = time.monotonic() + (self._router.timeout if timeout is None else timeout)
        while (position := self._state((topic, partition)).position) is None:
            if time.monotonic() > deadline:
                raise TimedOut(f"{topic}[{partition}]: the position could not be found in time")
            await asyncio.sleep(LOOK_SECONDS)
        return position

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each assigned partition, as far as known without asking anybody."""
        states = self._fetching.partitions.items()
        return {each: state.position for each, state in states if state.position is not None}

    def unavailable(self, seconds: float = 3.0) -> dict[TopicPartition, ErrorCode]:
        """Partitions of which nothing could be read for so long, and why. Reading them is tried on and on."""
        return self._fetching.unavailable(time.monotonic(), seconds)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read on from `offset`."""
        if offset < 0:
            raise ValueError(f"{offset} is no offset")
        self._move((topic, partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        await self._seek_to(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        await self._seek_to(partitions, LATEST)

    async def seek_to_time(self, moment: datetime | int, *partitions: TopicPartition) -> None:
        """The first record at or after a moment (a number: ms since 1970), in these partitions or in all."""
        at = moment if isinstance(moment, int) else round(moment.timestamp() * 1000)
        await self._seek_to(partitions, at)

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Where the group stands: what was read of a transaction that was aborted is read again.

        Where it stands nowhere, `auto_offset_reset` says from where. Raises NoOffset when that is "none".
        """
        group, reset = self.settings.group, self.settings.auto_offset_reset
        if group is None:
            raise WrongState("this consumer is in no group")
        states = self._states(partitions)
        found = await committed_offsets(self._router, group, sorted(states), require_stable=True)
        here = self._still_here(states)
        if (missing := [each for each in here if each not in found]) and reset == "none":
            raise NoOffset(missing)
        for each in here:
            if each in found:
                self._move(each, found[each].offset)
            else:
                self._move(each, None, EARLIEST if reset == "earliest" else LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out no records of these until `resume`; the group is not left."""
        for each in partitions or self.assignment:
            self._state(each).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for each in partitions or self.assignment:
            self._state(each).paused = False
        self._fetcher.arrived.set()
        self._fetcher.wake()

    @property
    def paused(self) -> Partitions:
        return frozenset(each for each, state in self._fetching.partitions.items() if state.paused)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind the end that readers may see."""
        ends = await offsets_at(
            self._router, dict.fromkeys(self.assignment, LATEST), read_committed=self.settings.is_read_committed
        )
        found = {}
        for partition, end in ends.items():
            state = self._fetching.partitions.get(partition)
            if state is not None and state.position is not None:
                found[partition] = max(0, end - state.position)
        return found

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the cores promise does not hold (tests and simulator)."""
        for part in self._checked:
            part.check_invariants()

    def _state(self, partition: TopicPartition) -> PartitionState:
        if partition not in self._fetching.partitions:
            raise WrongState(f"{partition[0]}[{partition[1]}] is not assigned to this consumer")
        return self._fetching.partitions[partition]

    def _move(self, partition: TopicPartition, offset: int | None, reset_to: int | None = None) -> None:
        state = self._state(partition)
        self._forget_unread([partition])
        self._progress.forget(partition)
        state.move(offset)
        state.reset_to = reset_to
        self._fetcher.wake()

    async def _seek_to(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        states = self._states(partitions)
        found = await offsets_at(
            self._router, dict.fromkeys(states, timestamp), read_committed=self.settings.is_read_committed
        )
        for each in self._still_here(states):
            if each in found:
                self._move(each, found[each])

    def _states(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Of these, or of all."""
        return {each: self._state(each) for each in partitions or sorted(self.assignment)}

    def _still_here(self, states: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
        """Without what the group has taken away meanwhile, also if it has come back: that begins where the group is."""
        return [each for each, state in states.items() if self._fetching.partitions.get(each) is state]

    def _keep_unread(self, parts: Sequence[Slice]) -> None:
        """To be given out record by record. What is damaged is put in its place again, with all behind it.

        Raises DamagedRecords when nothing comes before it.
        """
        for at, each in enumerate(parts):
            try:
                records = each.records()[::-1]
            except DamagedRecords:
                self._fetching.give_back(parts[at:])
                if self._unread:
                    return
                raise
            if records:
                self._unread.append((each, records))

    def finish_current(self) -> None:
        """The record that was given out last is done."""
        if self._current:
            self._progress.done(self._current)
            self._current = []

    def break_off(self, batch: Batch, given: int) -> None:
        """Only so many of its records were given out: all but the last are done, and the others come again."""
        here = batch.withdraw()
        rest: list[Slice] = []
        for part in batch.parts():
            where = (part.topic, part.partition)
            if where not in here:
                given -= min(given, len(part.records()))
                continue
            if not given:
                rest.append(part)
                continue
            records = part.records()
            for record in records[:given]:
                self.finish_current()
                is_last = record is records[-1]
                position = Position(part.end if is_last else record.offset + 1, part.leader_epoch)
                self._current = self._progress.hand_out_one(where, position)
            if given < len(records):
                rest.append(part._replace(pieces=[part.pieces[0]._replace(first=records[given - 1].offset + 1)]))
            given -= min(given, len(records))
        self._fetching.give_back(rest)

    def _next_unread(self) -> tuple[ConsumerRecord, Position] | None:
        """A record that may be given out, and where to read on behind it."""
        for part, records in self._unread:
            if self._state((part.topic, part.partition)).is_held:
                continue
            record = records.pop()
            if records:
                return record, Position(record.offset + 1, part.leader_epoch)
            self._unread = deque(each for each in self._unread if each[1])
            return record, Position(part.end, part.leader_epoch)
        return None

    def _forget_unread(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._unread = deque(each for each in self._unread if (each[0].topic, each[0].partition) not in gone)
