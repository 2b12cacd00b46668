"""All partitions that this broker follows under one leader: one connection, one fetch session (KIP-227).

One request is under way nearly always, parked at the leader until there is something to fetch. As soon as its answer
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

from raftlog.broker.core.replica.following import Backoff, Follows
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.replication.fetch_codec import (
    FetcherSettings,
    FetchTerms,
    decode_fetch_answer,
    encode_fetch,
)
from raftlog.broker.runtime.replication.followed import Followed
from raftlog.broker.runtime.replication.link import Link
from raftlog.broker.runtime.replication.locating import Locator
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.log.producers import ProducerStates
    from raftlog.broker.core.replica.throttle import Throttles
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.replication.fetch_codec import FetchedRecords, WantedPartition

log = logging.getLogger("raftlog.replication")

REQUESTS_MAX = 2
"""Requests under way at once: the one that waits for records, and one that has something to tell."""

BACKOFF_MS_MIN = 5
HELD_BACK_MS_MAX = 1000
"""After this time a throttled partition is looked at again: the rate may have changed."""
_EPOCH_MAX = 2**31 - 1


class Fetcher:
    """Invariants: `_changed` are the partitions that may be fetched and of which the leader must be told; at most
    REQUESTS_MAX requests are under way, and only one while there is no session.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        leader_id: int,
        settings: FetcherSettings,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self.leader_id = leader_id
        self._settings = settings
        self._broker_epoch = broker_epoch
        self.throttles: Throttles | None = None
        self._partitions: dict[tuple[bytes, int], Followed] = {}
        self._in_session = 0
        self._changed: dict[Followed, None] = {}
        self._forgotten: dict[tuple[bytes, int], None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._session = 0  # grows with each new session: answers of older ones are passed over
        self._session_broker_epoch = -1
        self._requests = 0  # grows with each request: what it tells is not yet known in answers to earlier ones
        self._under_way = 0
        self._holds = 0
        self._pumping = False
        name = str(leader_id)
        self.link = Link(
            loop,
            name,
            backoff=Backoff(BACKOFF_MS_MIN, settings.fetch_backoff_ms),
            on_open=self._on_open,
            on_lost=self._on_lost,
        )
        self._locator = Locator(self.link, node_id, self._located)

    def __len__(self) -> int:
        return len(self._partitions)

    # Which partitions --------------------------------------------------------------------------------

    def follow(self, partition: Partition, leader_epoch: int) -> Followed:
        """Fetch a partition from now on, from where its log ends."""
        backoff = Backoff(BACKOFF_MS_MIN, self._settings.fetch_backoff_ms)
        followed = Followed(partition, self.leader_id, leader_epoch, backoff)
        self._partitions[followed.key] = followed
        self._tell(followed)
        return followed

    def unfollow(self, followed: Followed) -> None:
        """Fetch a partition no more."""
        followed.stop()
        if self._partitions.get(followed.key) is followed:
            del self._partitions[followed.key]
        self._withdraw(followed)
        self._pump_soon()

    def _tell(self, followed: Followed) -> None:
        self._changed[followed] = None
        self._forgotten.pop(followed.key, None)
        self._pump_soon()

    def _withdraw(self, followed: Followed) -> None:
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
        self._locator.lost()
        self._new_session()

    def _new_session(self) -> None:
        self._session += 1
        self._session_id = self._session_epoch = 0
        self._in_session = 0
        self._forgotten.clear()
        self._changed.clear()
        for followed in self._partitions.values():
            followed.in_session = False
            if followed.state is Follows.LOCATING:
                # Whom it was asked may be gone; asked again it answers again.
                followed.state = Follows.FETCHING
            if followed.state is Follows.FETCHING:
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
                self._wait(followed, min(wait_ms, HELD_BACK_MS_MAX))

    def _is_throttled(self, throttles: Throttles, followed: Followed) -> bool:
        partition = followed.partition
        return self._node_id not in partition.isr and throttles.on_follower(
            partition.topic, partition.index, self._node_id
        )

    def _send(self) -> None:
        settings = self._settings
        self._requests += 1
        wanted: dict[bytes, list[WantedPartition]] = {}
        for followed in self._changed:
            if not followed.in_session:
                self._in_session += 1
            followed.told_in = self._requests
            wanted.setdefault(followed.partition.topic_id, []).append(followed.wanted(settings.fetch_max_bytes))
        self._changed.clear()
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        self._session_broker_epoch = self._broker_epoch()
        terms = FetchTerms(
            b"raftlog-replica-%d" % self._node_id,
            self._node_id,
            self._session_broker_epoch,
            settings.fetch_wait_max_ms,
            settings.fetch_min_bytes,
            settings.fetch_response_max_bytes,
        )
        correlation_id = self.link.next_correlation_id()
        session = (self._session_id, self._session_epoch)
        frame = encode_fetch(terms, correlation_id, session, wanted, forgotten)
        self._under_way += 1
        if self._session_epoch:
            self._session_epoch = 1 if self._session_epoch >= _EPOCH_MAX else self._session_epoch + 1
        self.link.send(correlation_id, frame, partial(self._answered, self._session, self._requests))

    # Answers -----------------------------------------------------------------------------------------

    def _answered(self, session: int, request: int, frame: memoryview) -> None:
        self._under_way -= 1
        answer = decode_fetch_answer(frame)
        if session != self._session:
            self._pump()
            return
        if answer.error:
            log.info("leader=%d a new fetch session: %s", self.leader_id, ErrorCode.of(answer.error).name)
            self._new_session()
            self._pump_later()
            return
        if self._session_epoch == 0:
            self._session_id = answer.session_id
            self._session_epoch = 1 if answer.session_id else 0
        for fetched in answer.partitions:
            self._take(fetched, request)
        if self._session_epoch == 0:
            self._new_session()
        self._pump()

    def _pump_later(self) -> None:
        self._loop.call_later(BACKOFF_MS_MIN / 1000, self._pump)

    def _take(self, fetched: FetchedRecords, request: int) -> None:
        followed = self._partitions.get((fetched.topic_id, fetched.index))
        if followed is None or not followed.in_session or followed.state is not Follows.FETCHING:
            return
        if request < followed.told_in:
            # It answers from where we were; the answer to the later request is on its way.
            return
        if self.throttles is not None and not self.throttles.is_idle and self._is_throttled(self.throttles, followed):
            self.throttles.followers.used(len(fetched.records), int(self._loop.time() * 1000))
        state = followed.take(fetched)
        if state is Follows.FETCHING:
            if followed.has_news:
                self._changed[followed] = None
                if followed.partition.log.flush_due:
                    self._hold_until_flushed(followed)
            elif fetched.diverging is not None:
                # The leader has nothing to add, nor have we anything to cut: it would answer the same again.
                self._wait(followed)
            return
        followed.state = state
        self._withdraw(followed)
        if state is Follows.WAITING:
            self._wait(followed)
        elif state is Follows.LOCATING:
            self._locator.ask(followed)
        elif state is Follows.CUTTING:
            self._cut(followed)

    def _cut(self, followed: Followed) -> None:
        """Read in a thread what is needed before the log is cut; nothing is fetched meanwhile."""
        assert followed.cut is not None
        log.info("partition=%r reads %d bytes before it is cut", followed, followed.cut.plan.size)
        reading = self._loop.run_in_executor(None, followed.cut.plan.run)
        reading.add_done_callback(partial(self._end_cut, followed))

    def _end_cut(self, followed: Followed, reading: asyncio.Future[ProducerStates]) -> None:
        error = None if reading.cancelled() else reading.exception()
        if self._partitions.get(followed.key) is not followed or followed.state is not Follows.CUTTING:
            return
        if isinstance(error, Exception):
            followed.state = followed.cut_failed(error)
        else:
            followed.state = followed.end_cut(reading.result())
        if followed.state is Follows.WAITING:
            self._wait(followed)
        elif followed.state is Follows.FETCHING:
            self._tell(followed)

    def _wait(self, followed: Followed, wait_ms: int | None = None) -> None:
        followed.state = Follows.WAITING
        self._withdraw(followed)
        followed.stop()
        seconds = (followed.backoff.next_ms() if wait_ms is None else wait_ms) / 1000
        followed.timer = self._loop.call_later(seconds, self._try_again, followed)

    def _try_again(self, followed: Followed) -> None:
        followed.timer = None
        followed.state = Follows.FETCHING
        self._tell(followed)

    def _located(self, followed: Followed, start: int, end: int) -> None:
        """Where the leader's log begins and ends; -1 if it did not say."""
        if self._partitions.get(followed.key) is not followed or followed.state is not Follows.LOCATING:
            return
        if start < 0 or end < 0:
            self._wait(followed)
            return
        followed.state = followed.located(start, end)
        if followed.state is Follows.FETCHING:
            self._tell(followed)
        elif followed.state is Follows.CUTTING:
            self._cut(followed)

    # Flushing before an acknowledgement (flush.messages) ---------------------------------------------

    def _hold_until_flushed(self, followed: Followed) -> None:
        """A fetch says that what is below its offset is safe: the next one waits for the disk, as in Kafka."""
        self._holds += 1
        partition = followed.partition
        partition.wait(Mark.FLUSHED, partition.log.log_end_offset, self._release)

    def _release(self, _: ErrorCode) -> None:
        self._holds -= 1
        self._pump()

    def check_time(self) -> None:
        """Called now and then: an answer that is long overdue ends the connection."""
        if self.link.is_overdue(self._settings.socket_timeout_ms / 1000):
            self.link.give_up(f"no answer within {self._settings.socket_timeout_ms} ms")

    def close(self) -> None:
        """Stop all of it."""
        for followed in list(self._partitions.values()):
            followed.stop()
        self._partitions.clear()
        self.link.close()
