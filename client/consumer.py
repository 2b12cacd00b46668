"""Reading records: alone or in a group, from a position that can be moved, committing what is done."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType

from raftlog.client.batch import Batch
from raftlog.client.core.classic_member import ClassicMember
from raftlog.client.core.consumer_member import ConsumerMember
from raftlog.client.core.errors import Closed, KafkaError, Rejected, TimedOut, WrongState
from raftlog.client.core.fetched import ConsumerRecord, Slice
from raftlog.client.core.membership import Partitions
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Position
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.group_runner import GroupRunner, Listener, tell
from raftlog.client.offsets import GroupMember, commit_offsets, committed_offsets
from raftlog.client.positions import LOOK_SECONDS, Positions
from raftlog.client.router import Router, TopicIds
from raftlog.client.subscription import Subscription
from raftlog.wire.errors import ErrorCode

ASK_SECONDS = 1.0
"""How often to ask where the group stands, when it cannot be told."""
NO_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH)


class Consumer(Positions):
    """Made by `Client.consumer`, used as `async with`: leaving the block commits what is done, and leaves the group.

    `on_assigned`, `on_revoked` (what was read of these can still be committed) and `on_lost` (it cannot) may be set to
    functions, also async ones, that get a set of (topic, partition).
    """

    def __init__(
        self, router: Router, settings: ConsumerSettings, topics: Sequence[str], *, pattern: str | None = None
    ) -> None:
        super().__init__(router, settings)
        self.on_assigned: Listener | None = None
        self.on_revoked: Listener | None = None
        self.on_lost: Listener | None = None
        self._subscription = Subscription(router, settings, topics, pattern)
        self._runner: GroupRunner | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._polled_at = time.monotonic()
        self._polling = False
        self._committing = asyncio.Lock()
        self._started = False
        self._assignments = 0
        self._reader: tuple[int, str] | None = None
        self._closed = False
        self._fetcher.on_set_back = self._set_back

    async def __aenter__(self) -> Consumer:
        try:
            await self.start()
        except BaseException:
            await self.close()  # nobody else would
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to read, or to join the group. `async with` does it."""
        if self._started:
            return
        self._started = True
        try:
            await self._subscription.look()
        except BaseException:
            self._started = False
            raise
        if self.settings.group is not None and self._subscription:
            self._join()
        elif topics := self._subscription.names():
            self.assign(self._router.known.partitions_of(sorted(topics)))
        self._begin_housekeeping()

    async def close(self) -> None:
        """Commit what is done, leave the group, and stop. Never takes longer than the client's timeout."""
        if self._closed:
            return
        self._closed = True
        self._fetcher.arrived.set()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        try:
            await self._commit_quietly(None)
        finally:
            if self._runner is not None:
                await self._runner.stop()
            await self._fetcher.stop()
            await self._router.close()

    # Reading.

    async def poll(self, max_records: int = 500, *, timeout: float | None = None, wait: float = 0.0) -> Batch:
        """Up to `max_records` as soon as there are any; an empty batch after `timeout` seconds (the client's if None).

        `wait`: seconds to wait for more once some are there. Raises KafkaError, with the position as it was.
        """
        if not self._started:
            raise WrongState("the consumer is not started: use it in a `with` block")
        if not isinstance(max_records, int) or max_records < 1:  # other clients' first argument is a time
            raise ValueError(f"poll({max_records!r}): at least one record is asked for, as in poll(500, timeout=1)")
        deadline = time.monotonic() + (self._router.timeout if timeout is None else timeout)
        self._polled_at = time.monotonic()
        self._polling = True
        slices: list[Slice] = []
        try:
            self._rejoin_after_pause()
            slices = await self._take(max_records, deadline)
            self._reader = self._runner.member_now() if self._runner is not None else None
            self._progress.begin_poll()
            more = time.monotonic() + wait
            while slices and wait and (count := _count(slices)) < max_records:
                moves = self._progress.moves
                found = await self._take(max_records - count, more)
                slices = self._progress.not_moved(slices, moves) + found
                wait = wait if found else 0.0
        except BaseException:
            self._fetching.give_back(slices)  # nobody was given these
            raise
        finally:
            self._polling = False
            self._polled_at = time.monotonic()
        if slices:
            self._fetcher.wake()
        return Batch(slices, self._fetching, self._progress)

    async def batches(self, max_records: int = 500, *, wait: float = 0.0) -> AsyncIterator[Batch]:
        """Batches without end, none of them empty. Call `done()` on each when its work is done."""
        while not self._closed:
            batch = await self.poll(max_records, wait=wait)
            if batch:
                yield batch

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. To ask for it says that the one before is done."""
        self.finish_current()
        self._polled_at = time.monotonic()
        while (found := self._next_unread()) is None:
            if self._closed:
                raise StopAsyncIteration
            batch = await self.poll()
            # Counted record by record from here on.
            batch.withdraw()
            self._keep_unread(batch.parts())
        record, position = found
        self._current = self._progress.hand_out_one((record.topic, record.partition), position)
        return record

    async def _take(self, limit: int, deadline: float) -> list[Slice]:
        while True:
            self._fetcher.arrived.clear()
            if self._closed:
                raise Closed("the consumer is closed")
            if self._fetcher.failure is not None:
                failure, self._fetcher.failure = self._fetcher.failure, None
                raise failure
            if self._runner is not None and self._runner.failure is not None:
                raise self._runner.failure
            slices = self._fetching.take(limit)
            if slices:
                return slices
            self._fetcher.wake()
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            try:
                async with asyncio.timeout(left):
                    await self._fetcher.arrived.wait()
            except TimeoutError:
                return self._fetching.take(limit)

    # Which partitions, and where.

    @property
    def assignments(self) -> int:
        """How often the group has given this member its partitions."""
        return self._assignments

    @property
    def assigned_generation(self) -> int:
        """The generation (or epoch) in which the group told what is owned; -1 while a newer one has not told it."""
        return -1 if self._runner is None else self._runner.member.assigned_generation

    @property
    def member(self) -> GroupMember:
        """Who this was in its group when it last handed out records, for `Producer.send_offsets`.

        The group may have gone on since, and given the partitions to another, who reads the same records. Raises
        Rejected with UNKNOWN_MEMBER_ID when it had gone on already.
        """
        if self.settings.group is None or self._runner is None:
            raise WrongState("this consumer is in no group")
        generation, member_id = self._reader or self._runner.member_now()
        self._check_member(generation)
        return GroupMember(self.settings.group, generation, member_id, self.settings.group_instance_id)

    def _check_member(self, generation: int) -> None:
        """Without a generation it would be a commit from outside: taken by a group without members, and always when it
        is part of a transaction, as of clients that do not know KIP-447.
        """
        if generation < 0:
            text = "this member is not in the group at present"
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.settings.group!r}", text)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without dividing them with a group. With a group, its committed offsets count."""
        if self._runner is not None:
            raise WrongState("the group divides the partitions of this consumer")
        wanted = frozenset(partitions)
        self._drop_all(self.assignment - wanted)
        self._add(wanted - self.assignment, None if self.settings.group is not None else {})

    async def assigned(self, timeout: float | None = None) -> Partitions:
        """Wait until there are partitions to read. Raises TimedOut."""
        deadline = time.monotonic() + (self._router.timeout if timeout is None else timeout)
        while not self._fetching.partitions:
            if self._fetcher.failure is not None:
                raise self._fetcher.failure
            if time.monotonic() > deadline:
                raise TimedOut("no partitions were assigned in time")
            await asyncio.sleep(LOOK_SECONDS)
        return self.assignment

    # Committing.

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, member: GroupMember | None = None
    ) -> None:
        """Commit what is done, or these offsets (the next to read), as the `member` that read them if it is told.

        Raises KafkaError, for example when the group has gone on without it, or has taken away a partition since.
        """
        if self.settings.group is None:
            raise WrongState("this consumer is in no group")
        if offsets is None:
            self.finish_current()
            await self._commit()
        elif member is None:
            await self._commit({each: Position(offset) for each, offset in offsets.items()})
        else:
            await self._commit_of(member, {each: Position(offset) for each, offset in offsets.items()})

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Where the group stands in these partitions, or in the assigned ones."""
        if self.settings.group is None:
            raise WrongState("this consumer is in no group")
        wanted = partitions or sorted(self.assignment)
        found = await committed_offsets(self._router, self.settings.group, wanted, require_stable=True)
        return {each: position.offset for each, position in found.items()}

    async def _commit(
        self, chosen: dict[TopicPartition, Position] | None = None, partitions: Partitions | None = None
    ) -> None:
        """What is chosen, else what is done, of some partitions or all."""
        group = self.settings.group
        assert group is not None
        deadline = time.monotonic() + self._router.timeout
        async with self._committing:
            while True:
                if chosen is not None:
                    self._check_owned(chosen)
                positions = self._progress.to_commit(partitions) if chosen is None else chosen
                if not positions or await self._commit_as_member(group, positions, deadline):
                    self._progress.committed(positions)
                    return
                await asyncio.sleep(LOOK_SECONDS)  # a heartbeat is about to bring the new epoch

    def _check_owned(self, chosen: Iterable[TopicPartition]) -> None:
        """Raises Rejected for what the group has taken away: whoever has it now has gone on."""
        if not self._subscription:
            return
        for topic, index in chosen:
            where = (topic, index)
            if where not in self._fetching.partitions or self._progress.was_taken(where):
                text = "the group has taken it from this member since it was read"
                raise Rejected(ErrorCode.ILLEGAL_GENERATION, f"{topic}[{index}]", text)

    async def _commit_as_member(
        self, group: str, positions: dict[TopicPartition, Position], deadline: float
    ) -> bool:
        """False if the group has gone on with this member meanwhile, and there is time for another try."""
        runner, instance = self._runner, None
        generation, member_id = -1, ""
        if runner is not None:
            generation, member_id = runner.member_now()
            instance = self.settings.group_instance_id
            self._check_member(generation)
        try:
            await self._commit_of(GroupMember(group, generation, member_id, instance), positions)
        except Rejected as error:
            went_on = runner is not None and runner.member_now() not in ((generation, member_id), (-1, member_id))
            is_old = error.code == ErrorCode.STALE_MEMBER_EPOCH or (error.code in NO_MEMBER and went_on)
            if is_old and time.monotonic() < deadline:
                return False
            if not went_on:
                self._refused(error)
            raise
        return True

    async def _commit_of(self, member: GroupMember, positions: dict[TopicPartition, Position]) -> None:
        await commit_offsets(self._router, member, positions, topic_ids=self._fetching.topic_ids())

    def _refused(self, error: Rejected) -> None:
        if self._runner is None:
            return
        if error.code in NO_MEMBER:
            self._runner.member.fenced(keeps_name=error.code == ErrorCode.ILLEGAL_GENERATION)
        elif error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._runner.member.rejoin("a commit met a rebalance")
        self._runner.wake()

    async def _commit_quietly(self, partitions: Partitions | None) -> None:
        """As part of something else that goes on without it: what is not committed is read again."""
        if not self.settings.enable_auto_commit or self.settings.group is None:
            return
        try:
            async with asyncio.timeout(self._router.timeout):
                await self._commit(partitions=partitions)
        except (KafkaError, TimeoutError):
            pass

    # The group.

    def _join(self) -> None:
        group = self.settings.group
        assert group is not None
        known, topics = self._router.known, self._subscription.names()
        member: ClassicMember | ConsumerMember
        if self.settings.protocol == "consumer":
            ids = TopicIds(self._router)
            member = ConsumerMember(
                group, self.settings, topics, member_id=str(uuid.uuid4()), names=known.names, ids=ids
            )
            if self._subscription.pattern is not None:
                member.match(self._subscription.pattern)
        else:
            member = ClassicMember(group, self.settings, topics)
        self._checked.append(member)
        self._runner = GroupRunner(self._router, group, member)
        self._runner.on_assigned = self._take_up
        self._runner.on_revoked = self._give_up
        self._runner.on_gone = self._drop_all
        self._runner.on_lost = self._lose
        self._runner.on_failure = self._fetcher.fail
        self._runner.start()

    async def _take_up(self, partitions: Partitions) -> None:
        group, runner = self.settings.group, self._runner
        assert group is not None and runner is not None
        losses = runner.losses
        positions: dict[TopicPartition, Position] | None = None
        while positions is None and runner.losses == losses:
            partitions -= runner.leaving  # whoever gets them next does not wait for what stands in the way here
            try:
                await self._learn({topic for topic, _ in partitions})
                positions = await self._committed(group, partitions)
            except KafkaError as error:
                self._fetcher.fail(error)  # who reads is told; the group stands somewhere, and it is asked on
                await asyncio.sleep(ASK_SECONDS)
        if positions is None or runner.losses != losses:
            return
        self._add(partitions, positions)
        self._assignments += 1
        await tell(self.on_assigned, partitions, self._fetcher.fail)

    async def _committed(self, group: str, partitions: Partitions) -> dict[TopicPartition, Position]:
        if not partitions:
            return {}
        return await committed_offsets(self._router, group, sorted(partitions), require_stable=True)

    async def _give_up(self, partitions: Partitions) -> None:
        """Nothing more of them is given out; what is out gets the time to be finished."""
        deadline = time.monotonic() + self.settings.rebalance_timeout / 2
        partitions &= self.assignment  # others were never read from
        for each in partitions:
            self._fetching.partitions[each].leaves = True
        self._forget_unread(partitions)
        while self._is_busy(partitions) and time.monotonic() < deadline and not self._closed:
            await asyncio.sleep(LOOK_SECONDS)
        await tell(self.on_revoked, partitions, self._fetcher.fail)
        await self._commit_quietly(partitions)
        self._drop_all(partitions)

    def _is_busy(self, partitions: Partitions) -> bool:
        """Whether work on them goes on. Who never calls `done` has finished when it asks for more."""
        return self._progress.is_busy(partitions) and (self._progress.is_told or not self._polling)

    async def _lose(self, partitions: Partitions) -> None:
        self._drop_all(partitions)
        await tell(self.on_lost, partitions, self._fetcher.fail)

    def _add(self, partitions: Partitions, positions: Mapping[TopicPartition, Position] | None) -> None:
        """`positions`: where the group stands, None to ask for it."""
        for each in sorted(partitions):
            self._fetching.assign(each, None)
        if positions is None:
            self._fetching.ask_committed(partitions)
        else:
            self._fetching.begin(sorted(partitions), positions)
        self._fetcher.arrived.set()
        self._fetcher.wake()

    def _drop(self, partition: TopicPartition) -> None:
        self._fetching.unassign(partition)
        self._progress.take(partition)

    def _drop_all(self, partitions: Partitions) -> None:
        self._forget_unread(partitions)
        for each in partitions:
            self._drop(each)

    def _set_back(self, partition: TopicPartition) -> None:
        """What was read of a topic that is gone does not count for the one that has its name, nor what was cut off."""
        self._forget_unread([partition])
        self._progress.forget(partition)

    # What goes on beside.

    def _begin_housekeeping(self) -> None:
        self._housekeeping = asyncio.get_running_loop().create_task(self._keep_house())
        self._housekeeping.add_done_callback(self._housekeeping_ended)

    def _housekeeping_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if not self._closed:
                self._begin_housekeeping()  # somebody cancels whatever tasks there are
        elif (error := task.exception()) is not None:
            failure = KafkaError(f"the consumer's housekeeping failed: {error!r}")
            failure.__cause__ = error
            self._fetcher.fail(failure)

    async def _keep_house(self) -> None:
        """Commit now and then, look for new partitions, and leave the group when nobody asks for records any more."""
        looked = time.monotonic()
        committed = looked
        step = min(self.settings.auto_commit_interval, self.settings.metadata_max_age, self.settings.max_poll_interval)
        while True:
            await asyncio.sleep(max(step / 2, LOOK_SECONDS))
            now = time.monotonic()
            if now - committed >= self.settings.auto_commit_interval:
                committed = now
                await self._commit_quietly(None)
            if now - looked >= self.settings.metadata_max_age:
                looked = now
                await self._look_for_partitions()
            if self._is_given_up() and self._runner is not None:
                await self._commit_quietly(None)
                if self._is_given_up():
                    # Before the farewell is answered, another poll may have joined anew.
                    runner, self._runner, gone = self._runner, None, self.assignment
                    self._drop_all(gone)
                    await runner.stop()
                    await tell(self.on_lost, gone, self._fetcher.fail)

    def _is_given_up(self) -> bool:
        """Whether nobody has asked for records in `max_poll_interval`."""
        return not self._polling and time.monotonic() - self._polled_at > self.settings.max_poll_interval

    def _rejoin_after_pause(self) -> None:
        if self._runner is None and self.settings.group is not None and self._subscription:
            self._join()

    async def _look_for_partitions(self) -> None:
        try:
            before = await self._subscription.look()
        except KafkaError:
            return
        known = self._router.known
        if self._runner is not None:
            self._runner.member.subscribe(self._subscription.names())
            if any(known.partition_count(name) != count for name, count in before.items()):
                self._runner.member.changed("the number of partitions changed")
            self._runner.wake()
        elif self.settings.group is None and (topics := self._subscription.names()):
            fresh = frozenset(known.partitions_of(sorted(topics))) - self.assignment
            self._add(frozenset(each for each in fresh if each[1] >= before.get(each[0], 0)), {})

    async def _learn(self, topics: set[str]) -> None:
        unknown = sorted(topic for topic in topics if topic not in self._router.known.topics)
        if unknown:
            await self._router.retrying(lambda: self._router.metadata(unknown))


def _count(slices: Sequence[Slice]) -> int:
    return sum(piece.count_max for each in slices for piece in each.pieces)
