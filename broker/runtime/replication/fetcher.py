"""All partitions that this broker follows under one leader: one connection, one fetch session (KIP-227).

One request is under way nearly always, delayed at the leader until there is something to fetch. As soon as its answer
is taken the next one goes out: that is the acknowledgement of what was appended. Anything else to be told (a new
partition, one that may be tried again) does not wait for the answer: a second request goes out, and the leader answers
the first one when it sees the second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.core.replica.following import Backoff, ReplicaState
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.link import Link
from raftlog.broker.runtime.replication.locating import Locator
from raftlog.broker.runtime.replication.partition_fetch_state import PartitionFetchState, is_diverging
from raftlog.broker.runtime.replication.settings import FetcherSettings
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import BrokerId, LeaderEpoch
from raftlog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from raftlog.wire.messages.fetch import ReplicaState as FetchingReplica

if TYPE_CHECKING:
    from raftlog.broker.core.log.producers import ProducerStates
    from raftlog.broker.core.replica.throttle import Throttles
    from raftlog.broker.runtime.partition import Partition

log = logging.getLogger("raftlog.replication")

VERSION = 17
"""Of Fetch, between brokers."""

REQUESTS_MAX = 2
"""Requests under way at once: the one that waits for records, and one that has something to tell."""

BACKOFF_MS_MIN = 5
OVERDUE_SECONDS = 0.2
"""By so much more than what a fetch may wait its answer is late when the leader comes back into contact."""
HELD_BACK_MS_MAX = 1000
"""After this time a throttled partition is looked at again: the rate may have changed."""
_EPOCH_MAX = 2**31 - 1


class Fetcher:
    """Invariants: `_changed` are the partitions that may be fetched and of which the leader must be told; at most
    REQUESTS_MAX requests are under way, and only one of a session that the leader has not answered yet.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: BrokerId,
        leader_id: BrokerId,
        settings: FetcherSettings,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self.leader_id = leader_id
        self._settings = settings
        self._broker_epoch = broker_epoch
        self.throttles: Throttles | None = None
        self._partitions: dict[tuple[bytes, int], PartitionFetchState] = {}
        self._in_session = 0
        self._changed: dict[PartitionFetchState, None] = {}
        self._forgotten: dict[tuple[bytes, int], None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._session = 0  # grows with each new session: answers of older ones are passed over
        self._session_broker_epoch = -1
        self._requests = 0  # grows with each request: what it tells is not yet known in answers to earlier ones
        self._under_way = 0
        self._outdated = 0  # of those under way: of earlier sessions
        self._holds = 0
        self._pumping = False
        # The same one each time, but for the session and what is named.
        self._request = FetchRequest(
            replica_state=FetchingReplica(replica_id=node_id),
            max_wait_ms=settings.fetch_wait_max_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
        )
        self.link = Link(
            loop,
            str(leader_id),
            f"raftlog-replica-{node_id}",
            backoff=Backoff(BACKOFF_MS_MIN, settings.fetch_backoff_ms),
            on_open=self._on_open,
            on_lost=self._on_lost,
        )
        self._locator = Locator(self.link, node_id, self._located)

    def __len__(self) -> int:
        return len(self._partitions)

    # Which partitions --------------------------------------------------------------------------------

    def add_partition(self, partition: Partition, leader_epoch: LeaderEpoch) -> PartitionFetchState:
        """Fetch a partition from now on, from where its log ends."""
        backoff = Backoff(BACKOFF_MS_MIN, self._settings.fetch_backoff_ms)
        followed = PartitionFetchState(partition, self.leader_id, leader_epoch, backoff)
        self._partitions[followed.key] = followed
        self._mark_changed(followed)
        return followed

    def remove_partition(self, followed: PartitionFetchState) -> None:
        """Fetch a partition no more."""
        followed.stop()
        if self._partitions.get(followed.key) is followed:
            del self._partitions[followed.key]
        self._leave_session(followed)
        self._pump_soon()

    def _mark_changed(self, followed: PartitionFetchState) -> None:
        self._changed[followed] = None
        self._forgotten.pop(followed.key, None)
        self._pump_soon()

    def _leave_session(self, followed: PartitionFetchState) -> None:
        """Take it out of the session: the leader would answer its error again and again."""
        self._changed.pop(followed, None)
        if followed.in_session:
            followed.in_session = False
            self._in_session -= 1
            self._forgotten[followed.key] = None

    # Requests ----------------------------------------------------------------------------------------

    def _on_open(self) -> None:
        self._new_session()
        self._pump()

    def _on_lost(self) -> None:
        self._under_way = 0
        self._new_session()

    def _new_session(self) -> None:
        self._session += 1
        self._outdated = self._under_way
        self._session_id = self._session_epoch = 0
        self._in_session = 0
        self._forgotten.clear()
        self._changed.clear()
        for followed in self._partitions.values():
            followed.in_session = False
            if followed.state is ReplicaState.LOCATING:
                # Whom it was asked may be gone; asked again it answers again.
                followed.state = ReplicaState.FETCHING
            if followed.state is ReplicaState.FETCHING:
                self._changed[followed] = None

    def _pump_soon(self) -> None:
        """Once per turn of the loop: metadata may bring thousands of partitions at once."""
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send a request if there is something to fetch or to tell."""
        self._pumping = False
        if self._session_epoch and self._broker_epoch() != self._session_broker_epoch:
            # This broker has registered anew; the leader knows the session as one of its earlier life.
            self._new_session()
        if not self.link.is_open or self._holds or self._under_way >= REQUESTS_MAX:
            return
        if self._under_way and (self._session_epoch == 0 or not (self._changed or self._forgotten)):
            return
        if self.throttles is not None and not self.throttles.is_idle and self._changed:
            self._hold_back(self.throttles)
        if not self._changed and not self._in_session:
            return
        self._send()

    def _hold_back(self, throttles: Throttles) -> None:
        """Leave out what is throttled, while more was fetched than the rate allows (KIP-73)."""
        wait_ms = throttles.followers.wait_ms(int(self._loop.time() * 1000))
        if wait_ms > 0:
            for followed in [followed for followed in self._changed if self._is_throttled(throttles, followed)]:
                self._delay(followed, min(wait_ms, HELD_BACK_MS_MAX))

    def _is_throttled(self, throttles: Throttles, followed: PartitionFetchState) -> bool:
        partition = followed.partition
        return self._node_id not in partition.isr and throttles.on_follower(
            partition.topic, partition.index, self._node_id
        )

    def _send(self) -> None:
        settings = self._settings
        self._requests += 1
        named: dict[bytes, list[FetchPartition]] = {}
        for followed in self._changed:
            if not followed.in_session:
                self._in_session += 1
            followed.sent_in = self._requests
            named.setdefault(followed.partition.topic_id, []).append(followed.position(settings.fetch_max_bytes))
        self._changed.clear()
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        request = self._request
        self._session_broker_epoch = request.replica_state.replica_epoch = self._broker_epoch()
        request.session_id, request.session_epoch = self._session_id, self._session_epoch
        request.topics = [FetchTopic(topic_id=topic_id, partitions=named[topic_id]) for topic_id in named]
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=topic_id, partitions=forgotten[topic_id]) for topic_id in forgotten
        ]
        self._under_way += 1
        if self._session_epoch:
            self._session_epoch = 1 if self._session_epoch >= _EPOCH_MAX else self._session_epoch + 1
        self.link.send(request, VERSION, partial(self._answered, self._session, self._requests))

    # Answers -----------------------------------------------------------------------------------------

    def _answered(self, session: int, request: int, response: FetchResponse) -> None:
        self._under_way -= 1
        if session != self._session:
            self._outdated -= 1
            self._pump()
            return
        if response.error_code:
            log.info("leader=%d a new fetch session: %s", self.leader_id, ErrorCode.of(response.error_code).name)
            self._new_session()
            self._pump_later()
            return
        if self._session_epoch == 0:
            self._session_id = response.session_id
            self._session_epoch = 1 if response.session_id else 0
        for topic in response.responses:
            for fetched in topic.partitions:
                self._process(topic.topic_id, fetched, request)
        if self._session_epoch == 0:
            self._new_session()
        self._pump()

    def _pump_later(self) -> None:
        self._loop.call_later(BACKOFF_MS_MIN / 1000, self._pump)

    def _process(self, topic_id: bytes, fetched: PartitionData, request: int) -> None:
        followed = self._partitions.get((topic_id, fetched.partition_index))
        if followed is None or not followed.in_session or followed.state is not ReplicaState.FETCHING:
            return
        if request < followed.sent_in:
            # It answers from where we were; the answer to the later request is on its way.
            return
        if self.throttles is not None and not self.throttles.is_idle and self._is_throttled(self.throttles, followed):
            self.throttles.followers.used(len(fetched.records or b""), int(self._loop.time() * 1000))
        state = followed.process(fetched)
        if self._partitions.get(followed.key) is not followed:
            # Its log has failed behind what was appended.
            return
        if state is ReplicaState.FETCHING:
            if followed.is_dirty:
                self._changed[followed] = None
                if followed.partition.log.flush_due:
                    self._hold_until_flushed(followed)
            elif is_diverging(fetched):
                # The leader has nothing to add, nor have we anything to truncate: it would answer the same again.
                self._delay(followed)
            return
        followed.state = state
        self._leave_session(followed)
        if state is ReplicaState.WAITING:
            self._delay(followed)
        elif state is ReplicaState.LOCATING:
            self._locator.ask(followed)
        elif state is ReplicaState.TRUNCATING:
            self._truncate(followed)

    def _truncate(self, followed: PartitionFetchState) -> None:
        """Read in a thread what is needed before the log is truncated; nothing is fetched meanwhile."""
        assert followed.truncation is not None
        log.info("partition=%r reads %d bytes before it is truncated", followed, followed.truncation.plan.size)
        reading = self._loop.run_in_executor(None, followed.truncation.plan.run)
        reading.add_done_callback(partial(self._finish_truncation, followed))

    def _finish_truncation(self, followed: PartitionFetchState, reading: asyncio.Future[ProducerStates]) -> None:
        error = None if reading.cancelled() else reading.exception()
        if self._partitions.get(followed.key) is not followed or followed.state is not ReplicaState.TRUNCATING:
            return
        if isinstance(error, Exception):
            followed.state = followed.truncation_failed(error)
        else:
            followed.state = followed.finish_truncation(reading.result())
        if followed.state is ReplicaState.WAITING:
            self._delay(followed)
        elif followed.state is ReplicaState.FETCHING:
            self._mark_changed(followed)

    def _delay(self, followed: PartitionFetchState, wait_ms: int | None = None) -> None:
        followed.state = ReplicaState.WAITING
        self._leave_session(followed)
        followed.stop()
        seconds = (followed.backoff.next_ms() if wait_ms is None else wait_ms) / 1000
        followed.timer = self._loop.call_later(seconds, self._try_again, followed)

    def _try_again(self, followed: PartitionFetchState) -> None:
        followed.timer = None
        followed.state = ReplicaState.FETCHING
        self._mark_changed(followed)

    def _located(self, followed: PartitionFetchState, start: int, end: int) -> None:
        """Where the leader's log begins and ends; -1 if it did not say."""
        if self._partitions.get(followed.key) is not followed or followed.state is not ReplicaState.LOCATING:
            return
        if start < 0 or end < 0:
            self._delay(followed)
            return
        followed.state = followed.located(start, end)
        if followed.state is ReplicaState.FETCHING:
            self._mark_changed(followed)
        elif followed.state is ReplicaState.TRUNCATING:
            self._truncate(followed)
        elif followed.state is ReplicaState.WAITING:
            self._delay(followed)

    # Flushing before an acknowledgement (flush.messages) ---------------------------------------------

    def _hold_until_flushed(self, followed: PartitionFetchState) -> None:
        """A fetch says that what is below its offset is safe: the next one waits for the disk, as in Kafka."""
        self._holds += 1
        partition = followed.partition
        partition.wait(Mark.FLUSHED, partition.log.log_end_offset, self._release)

    def _release(self, _: ErrorCode) -> None:
        self._holds -= 1
        self._pump()

    def in_contact(self) -> None:
        """The leader is heard of again. An answer that should be here by now is on a connection that may be silent for
        much longer: a new one is made, at once.
        """
        if self.link.is_overdue(self._settings.fetch_wait_max_ms / 1000 + OVERDUE_SECONDS):
            self.link.give_up("the leader is in contact again, and has not answered")
        self.link.connect_now()

    def check_time(self) -> None:
        """Called now and then: an answer that is long overdue ends the connection."""
        if self.link.is_overdue(self._settings.socket_timeout_ms / 1000):
            self.link.give_up(f"no answer within {self._settings.socket_timeout_ms} ms")

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        for followed in self._partitions.values():
            followed.check_invariants()
        in_session = sum(followed.in_session for followed in self._partitions.values())
        if in_session != self._in_session:
            raise InvariantViolation(f"{in_session} partitions in the session, counted as {self._in_session}")
        for followed in self._changed:
            if self._partitions.get(followed.key) is not followed or followed.state is not ReplicaState.FETCHING:
                raise InvariantViolation(f"{followed!r} is to be named while it is {followed.state.value}")
        if not 0 <= self._outdated <= self._under_way <= REQUESTS_MAX:
            raise InvariantViolation(f"{self._under_way} requests under way, {self._outdated} of earlier sessions")
        if self._under_way - self._outdated > (REQUESTS_MAX if self._session_epoch else 1):
            raise InvariantViolation(f"{self._under_way} requests under way, session epoch {self._session_epoch}")

    def close(self) -> None:
        """Stop all of it."""
        for followed in list(self._partitions.values()):
            followed.stop()
        self._partitions.clear()
        self.link.close()
