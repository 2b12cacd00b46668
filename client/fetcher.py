"""Fetches ahead for a consumer: one request at a time to each broker, in a session (KIP-227)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from raftlog.client.core.errors import KafkaError, Rejected, TimedOut
from raftlog.client.core.fetch_session import FetchSession, SessionRequest, Wanted
from raftlog.client.core.fetching import COMMITTED, Fetching, Received
from raftlog.client.core.metadata import NO_LEADER, TopicPartition
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.offsets import READ_COMMITTED, by_topic, committed_offsets, offsets_at
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

LANE = "fetch"
BY_NAME = 12
"""The last version of Fetch in which topics have their names, not their ids."""
RETRY_SECONDS = 0.1
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The next request begins another session."""
METADATA_SECONDS = 3.0
SLOW_SECONDS = 3.0
"""A broker silent for so long beyond what it was allowed may have been replaced."""
HURRY_SECONDS = 0.1
"""How long a fetch may wait at the broker while other partitions are full: they are not in it."""


class Fetcher:
    """`wake` after anything changed; `arrived` is set when there is something to take."""

    def __init__(self, router: Router, fetching: Fetching, settings: ConsumerSettings) -> None:
        self.arrived = asyncio.Event()
        self.on_set_back: Callable[[TopicPartition], None] = lambda _: None
        """Called for a partition of which something that was handed out is gone: made anew, or cut."""
        self.failure: KafkaError | None = None
        self._router = router
        self._fetching = fetching
        self._settings = settings
        self._sessions: dict[int, FetchSession] = {}
        self._under_way: dict[int, tuple[asyncio.Task[None], float]] = {}
        self._looking_up: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._stopped = False
        self._trouble_since: float | None = None

    def wake(self) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._step)

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task, _ in self._under_way.values()]
        tasks += [task for task in (self._looking_up, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check_invariants(self) -> None:
        """Raises InvariantViolation if a session does not keep what it promises."""
        for session in self._sessions.values():
            session.check_invariants()

    def _step(self) -> None:
        self._timer = None
        if self._stopped:
            return
        now = time.monotonic()
        loop = asyncio.get_running_loop()
        if self._fetching.to_reset() and self._looking_up is None:
            self._looking_up = loop.create_task(self._look_up())
            self._looking_up.add_done_callback(self._ended)
        wanted, unled = self._fetching.wanted(now, self._router.known)
        while self._fetching.set_back:
            self.on_set_back(self._fetching.set_back.pop())
            self.arrived.set()
        for node, partitions in wanted.items():
            if node not in self._under_way:
                task = loop.create_task(self._fetch(node, partitions))
                self._under_way[node] = (task, now)
                task.add_done_callback(self._ended)
        slow_after = self._settings.fetch_max_wait + SLOW_SECONDS
        is_slow = any(now - since > slow_after for _, since in self._under_way.values())
        if (unled or is_slow) and self._refreshing is None:
            self._refreshing = loop.create_task(self._learn_leaders())
            self._refreshing.add_done_callback(self._ended)
        later = self._fetching.retry_at(now)
        delay = min(slow_after, later - now) if later is not None else slow_after
        self._timer = loop.call_later(max(delay, 0.001), self._step)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way = {node: each for node, each in self._under_way.items() if each[0] is not task}
        self._looking_up = None if self._looking_up is task else self._looking_up
        self._refreshing = None if self._refreshing is task else self._refreshing
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = KafkaError(f"the fetcher failed: {error!r}")
            failure.__cause__ = error
            self.fail(failure)
        self.wake()

    def fail(self, error: KafkaError) -> None:
        self.failure = error
        self.arrived.set()

    async def _fetch(self, node: int, wanted: Mapping[TopicPartition, Wanted]) -> None:
        session = self._sessions.setdefault(node, FetchSession())
        asked = session.request(wanted)
        request = self._request(asked)
        settings = self._settings
        try:
            reply = await self._router.ask(
                request,
                FetchResponse,
                node=node,
                lane=LANE,
                timeout=settings.request_timeout,
                highest=None if asked.uses_ids else BY_NAME,
            )
        except KafkaError as error:
            session.lost()
            self._in_trouble(error)
            self._refused(wanted, ErrorCode.NETWORK_EXCEPTION)
            return
        except BaseException:
            session.lost()
            raise
        self._trouble_since = None
        code = ErrorCode.of(reply.error_code)
        session.answered(code, reply.session_id)
        if code == ErrorCode.NONE:
            self._take_in(wanted, reply)
        elif code not in SESSION_ERRORS:
            self._refused(wanted, code)

    def _refused(self, wanted: Iterable[TopicPartition], code: ErrorCode) -> None:
        """A whole request came to nothing."""
        now = time.monotonic()
        for partition in wanted:
            state = self._fetching.partitions.get(partition)
            if state is not None:
                state.retry_at, state.replica = now + RETRY_SECONDS, -1
                state.refused(code, now)
            self._router.known.forget_leader(partition)

    def _take_in(self, wanted: Mapping[TopicPartition, Wanted], reply: FetchResponse) -> None:
        now = time.monotonic()
        names = {each.topic_id: topic for (topic, _), each in wanted.items()}
        answers = [
            ((each.topic or names.get(bytes(each.topic_id), ""), data.partition_index), data)
            for each in reply.responses
            for data in each.partitions
        ]
        has_moved = False
        for partition, data in answers:
            if partition not in wanted:
                continue
            received = self._fetching.received(partition, wanted[partition], data, now)
            has_moved = has_moved or received is Received.RECORDS
            if received is Received.MOVED and data.preferred_read_replica not in self._router.known.nodes:
                hint = data.current_leader
                if not self._router.known.leader_moved(partition, hint.leader_id, hint.leader_epoch):
                    self._router.known.forget_leader(partition)
        # A position also moves over batches that nobody is to see: who reads up to an offset waits for that.
        if has_moved or self._fetching.has_records():
            self.arrived.set()

    def _request(self, asked: SessionRequest) -> FetchRequest:
        settings = self._settings
        is_crowded = any(
            state.buffered >= settings.max_partition_fetch_bytes for state in self._fetching.partitions.values()
        )
        wait = min(settings.fetch_max_wait, HURRY_SECONDS) if is_crowded else settings.fetch_max_wait
        topics = []
        for name, indexes in by_topic(asked.partitions).items():
            partitions = []
            for index in indexes:
                each = asked.partitions[name, index]
                partitions.append(
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=each.leader_epoch,
                        fetch_offset=each.offset,
                        last_fetched_epoch=each.last_epoch,
                        partition_max_bytes=each.max_bytes,
                    )
                )
            topics.append(
                FetchTopic(topic=name, topic_id=asked.partitions[name, indexes[0]].topic_id, partitions=partitions)
            )
        return FetchRequest(
            max_wait_ms=int(wait * 1000),
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=READ_COMMITTED if settings.is_read_committed else 0,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=topics,
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=topic_id, partitions=[index])
                for (name, index), topic_id in asked.forgotten
            ],
            rack_id=settings.client_rack or "",
        )

    async def _look_up(self) -> None:
        """Find positions by time, for partitions that have none."""
        led: dict[object, dict[TopicPartition, int]] = {}
        wanted = self._fetching.to_reset()
        # Before anybody else has a turn, in which the group may take partitions away.
        before = {each: self._fetching.partitions[each] for each in wanted}
        seeks = {each: state.seeks for each, state in before.items()}

        def is_as_before(partition: TopicPartition) -> bool:
            state = self._fetching.partitions.get(partition)
            return state is before[partition] and state.seeks == seeks[partition]

        for partition, timestamp in wanted.items():
            if timestamp == COMMITTED:
                continue
            leader = self._router.known.leader(partition)
            led.setdefault(partition if leader == NO_LEADER else leader, {})[partition] = timestamp
        work = [self._look_up_of(asked, is_as_before) for asked in led.values()]
        if committed := sorted(each for each, timestamp in wanted.items() if timestamp == COMMITTED):
            work.append(self._look_up_committed(committed, is_as_before))
        if not all(await asyncio.gather(*work)):
            await asyncio.sleep(RETRY_SECONDS)

    async def _look_up_committed(
        self, partitions: Sequence[TopicPartition], is_as_before: Callable[[TopicPartition], bool]
    ) -> bool:
        """Where the group stands in partitions that it has not given."""
        assert self._settings.group is not None
        try:
            found = await committed_offsets(self._router, self._settings.group, partitions, require_stable=True)
        except KafkaError as error:
            self.fail(error)
            return False
        self._fetching.begin(list(filter(is_as_before, partitions)), found)
        self.arrived.set()
        return True

    async def _look_up_of(
        self, asked: Mapping[TopicPartition, int], is_as_before: Callable[[TopicPartition], bool]
    ) -> bool:
        """Those of one leader, or one whose leader is to be found: the others do not wait for it."""
        now, refused = time.monotonic(), dict[TopicPartition, Rejected]()
        committed = self._settings.is_read_committed
        try:
            found = await offsets_at(self._router, asked, read_committed=committed, refused=refused)
        except KafkaError as error:
            self._not_found(asked, error)
            return False
        self._trouble_since = None
        for partition, offset in found.items():
            if is_as_before(partition):
                self._fetching.partitions[partition].move(offset)
        for partition, refusal in refused.items():
            if is_as_before(partition):
                self._fetching.partitions[partition].refused(refusal.code, now)
            self._not_found([partition], refusal)
        self.arrived.set()  # who waits for positions
        return not refused

    def _not_found(self, partitions: Iterable[TopicPartition], error: KafkaError) -> None:
        if error.retriable:
            self._in_trouble(error)
        else:
            self.fail(error)
        for partition in partitions:
            self._router.known.forget_leader(partition)

    async def _learn_leaders(self) -> None:
        topics = sorted({topic for topic, _ in self._fetching.partitions})
        try:
            async with asyncio.timeout(METADATA_SECONDS):
                await self._router.metadata(topics)
        except TimeoutError:
            self._router.disconnect(-1)
            self._in_trouble(TimedOut(f"no broker told who leads within {METADATA_SECONDS:g} s"))
        except KafkaError as error:
            self._in_trouble(error)
        else:
            self._leave_replaced()
        await asyncio.sleep(RETRY_SECONDS)

    def _in_trouble(self, error: KafkaError) -> None:
        """Brokers come back; but who reads is told when none has answered for the client's timeout."""
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
        elif now - self._trouble_since >= self._router.timeout:
            self._trouble_since = None
            self.fail(error)

    def _leave_replaced(self) -> None:
        """A silent broker that leads nothing any more of what it was asked for is not waited for."""
        now = time.monotonic()
        slow_after = self._settings.fetch_max_wait + SLOW_SECONDS
        for node, (_, since) in self._under_way.items():
            states = self._fetching.partitions.items()
            asked = [partition for partition, state in states if state.node == node]
            if now - since > slow_after and all(self._router.known.leader(each) != node for each in asked):
                self._router.disconnect(node, lane=LANE)
