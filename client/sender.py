"""Takes batches out of the accumulator and brings them to the leaders, until each has an outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from raftlog.client.core.accumulator import NEVER, Accumulator
from raftlog.client.core.errors import KafkaError, NotKafka, Rejected
from raftlog.client.core.metadata import NO_LEADER, TopicPartition
from raftlog.client.core.partition_queue import LEADER_UNKNOWN, Verdict, refusal, too_late
from raftlog.client.core.producer_batch import ProducerBatch, ProducerIdentity
from raftlog.client.core.settings import ProducerSettings
from raftlog.client.delivery import until_done
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raftlog.wire.schema import ZERO_UUID

LANE = "produce"
BY_NAME = 12
"""The last version of Produce in which topics have their names, not their ids."""
LOOK_SECONDS = 1.0
"""How often to look for what is too late, while anything is on its way."""
SLOW_SECONDS = 2.0
"""A leader that is silent for so long may have been replaced: others are asked who leads."""
METADATA_SECONDS = 3.0


class Numbering(Protocol):
    """Where the producer's id and epoch come from, and what follows when a record could not be stored."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def produce_version_max(self) -> int | None:
        """The newest version of Produce to use, None for any."""

    @property
    def identity(self) -> ProducerIdentity | None: ...

    @property
    def held(self) -> Collection[TopicPartition]:
        """Partitions that have to wait (for the transaction to know them)."""

    def check_usable(self) -> None:
        """Raise the KafkaError for which nothing can be sent any more."""

    def prepare(self) -> Coroutine[Any, Any, None] | None:
        """Work to be done before more can be sent, if there is any; `Sender` runs one at a time, then looks again."""

    def lost(self, partition: TopicPartition, failure: KafkaError, gap: bool) -> None:
        """A batch failed; `gap`: with it went a sequence number."""


class Sender:
    """One for each producer. `look` is called when there is something new; all else it does by itself."""

    def __init__(self, router: Router, accumulator: Accumulator, settings: ProducerSettings) -> None:
        self.numbering: Numbering | None = None
        """None where records are not numbered."""
        self.on_progress: Callable[[], None] = lambda: None
        """Called when batches got an outcome."""
        self.trouble: KafkaError | None = None
        """Why the last attempt to reach a leader failed; None since one was reached."""
        self._router = router
        self._accumulator = accumulator
        self._settings = settings
        self._in_flight: dict[int, dict[asyncio.Task[None], tuple[float, list[ProducerBatch]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = time.monotonic()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._stopped = False

    def check_usable(self) -> None:
        if self.numbering is not None:
            self.numbering.check_usable()

    def in_trouble(self, error: KafkaError) -> None:
        """What stands in the way of all that is to be sent."""
        self.trouble = error

    def look(self, batch: ProducerBatch) -> None:
        """A batch was begun, or has become full."""
        self._wake_at(0.0 if batch.is_full else batch.created + self._settings.linger)

    def flush_begins(self) -> None:
        """What is there now waits no longer for more."""
        self._accumulator.close_open()
        self._wake_at(0.0)

    async def drained(self) -> None:
        """Every batch that is there now has an outcome."""
        self.flush_begins()
        for batch in self._accumulator.batches():
            if not batch.is_done:
                await until_done(batch)

    def stop(self, failure: KafkaError) -> None:
        """End all work; what has no outcome fails."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in [*self._tasks]:
            task.cancel()
        self.fail_all(failure)

    def fail_all(self, failure: KafkaError) -> None:
        self._accumulator.fail_everything(failure)
        self.on_progress()

    def wake(self) -> None:
        self._wake_at(0.0)

    def _wake_at(self, at: float) -> None:
        """Look again at `at`, or earlier. One timer at most is set."""
        if self._stopped:
            return
        now = time.monotonic()
        loop = asyncio.get_running_loop()
        due = max(at, now)
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = loop.call_later(due - now, self._step) if due > now else loop.call_soon(self._step)

    def _step(self) -> None:
        self._timer = None
        if self._stopped:
            return
        now = time.monotonic()
        self._expire(now)
        numbering = self.numbering
        identity = numbering.identity if numbering is not None else None
        if numbering is not None and self._preparing is None and (work := numbering.prepare()) is not None:
            self._preparing = self._start(self._prepare(work))
            self._preparing.add_done_callback(lambda _: work.close())  # it may be cancelled before it begins
        limit = self._settings.max_in_flight
        departure = self._accumulator.depart(
            now,
            self._router.known.leader,
            identity,
            busy_nodes=[node for node, tasks in self._in_flight.items() if len(tasks) >= limit],
            held=numbering.held if numbering is not None else (),
        )
        for node, batches in departure.requests.items():
            task = self._start(self._send(node, batches))
            self._in_flight.setdefault(node, {})[task] = (now, batches)
        is_old = bool(departure.requests) and now - self._refreshed >= self._settings.metadata_max_age
        if departure.unled or is_old or self._is_slow(now):
            self._refresh()
        if departure.requests:
            self._wake_at(0.0)  # a leader may have more than fits into one request
        elif not self._accumulator.is_idle:
            self._wake_at(min(departure.next_at, now + LOOK_SECONDS))
        elif departure.next_at < NEVER:
            self._wake_at(departure.next_at)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        for tasks in self._in_flight.values():
            tasks.pop(task, None)
        if self._preparing is task:
            self._preparing = None
        if self._refreshing is task:
            self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            # A mistake of ours: nobody may wait for ever because of it.
            failure = KafkaError(f"the sender failed: {error!r}")
            failure.__cause__ = error
            self.fail_all(failure)
        if not self._stopped:
            self._wake_at(0.0)

    def _expire(self, now: float) -> None:
        timeout = self._accumulator.limits.delivery_timeout
        for batch in self._accumulator.expire(now):
            if not batch.is_done:  # one that fails may take others of its transaction with it
                self._give_up(batch, too_late(batch, timeout, self.trouble))

    async def _prepare(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaError as error:
            self.in_trouble(error)
            if not error.retriable:
                self._accumulator.fail_unsent(error)
                self.on_progress()
            # The next look asks again.
            await asyncio.sleep(self._settings.retry_backoff)

    async def _send(self, node: int, batches: list[ProducerBatch]) -> None:
        request = self._request(batches)
        highest, timeout = self._highest(request), self._settings.request_timeout
        reply: ProduceResponse | None = None
        try:
            connection = await self._router.connection(node, lane=LANE)
            if request.acks == 0:
                await connection.post(request, timeout, highest=highest)
            else:
                reply = await connection.request(request, ProduceResponse, timeout, highest=highest)
        except NotKafka as error:
            for batch in _open(batches):
                self._give_up(batch, error)
        except KafkaError as error:
            self.trouble = error
            self._again(_open(batches))
        except asyncio.CancelledError:
            if not self._stopped:
                self._again(_open(batches))  # somebody cancels whatever tasks there are: records are not lost by that
            raise
        else:
            self.trouble = None
            if reply is None:
                self._stored_unseen(_open(batches))
            else:
                self._understand(_open(batches), request, reply)
        self.on_progress()

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        settings = self._settings
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, index = batch.partition
            records = batch.encode(settings.codec, settings.compression_level)
            topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
        return ProduceRequest(
            transactional_id=self.numbering.transactional_id if self.numbering is not None else None,
            acks=settings.acks_code,
            timeout_ms=int(settings.request_timeout * 1000),
            topic_data=[
                TopicProduceData(name=name, topic_id=self._router.known.topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )

    def _highest(self, request: ProduceRequest) -> int | None:
        """The newest version for it; before topic ids, if there is one that is not known."""
        highest = self.numbering.produce_version_max if self.numbering is not None else None
        if all(topic.topic_id != ZERO_UUID for topic in request.topic_data):
            return highest
        return BY_NAME if highest is None else min(highest, BY_NAME)

    def _stored_unseen(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            self._accumulator.queues[batch.partition].answered(batch, ErrorCode.NONE, -1, -1)

    def _again(self, batches: list[ProducerBatch]) -> None:
        """No answer came. Whoever leads now is to be asked again."""
        retry_at = time.monotonic() + self._settings.retry_backoff
        for batch in batches:
            self._accumulator.queues[batch.partition].unanswered(batch)
            self._accumulator.retry(batch, retry_at)
            self._router.known.forget_leader(batch.partition)

    def _understand(self, batches: list[ProducerBatch], request: ProduceRequest, reply: ProduceResponse) -> None:
        names = {bytes(topic.topic_id): topic.name for topic in request.topic_data}
        results: dict[TopicPartition, PartitionProduceResponse] = {
            (topic.name or names.get(bytes(topic.topic_id), ""), each.index): each
            for topic in reply.responses
            for each in topic.partition_responses
        }
        retry_at = time.monotonic() + self._settings.retry_backoff
        for batch in batches:
            result = results.get(batch.partition)
            if result is None:
                self._again([batch])
                continue
            code = ErrorCode.of(result.error_code)
            queue = self._accumulator.queues[batch.partition]
            verdict = queue.answered(batch, code, result.base_offset, result.log_append_time_ms)
            if verdict is Verdict.FAILED:
                errors = {each.batch_index: each.batch_index_error_message for each in result.record_errors}
                self._give_up(batch, refusal(batch, code, result.error_message), errors)
            elif verdict is Verdict.AGAIN:
                self.trouble = refusal(batch, code, result.error_message)
                at_once = code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                hint = result.current_leader
                if code in LEADER_UNKNOWN and not self._router.known.leader_moved(
                    batch.partition, hint.leader_id, hint.leader_epoch
                ):
                    self._router.known.forget_leader(batch.partition)
                self._accumulator.retry(batch, 0.0 if at_once else retry_at)

    def _give_up(self, batch: ProducerBatch, failure: KafkaError, errors: dict[int, str | None] | None = None) -> None:
        gap = self._accumulator.queues[batch.partition].give_up(batch, failure, errors)
        if self.numbering is not None:
            self.numbering.lost(batch.partition, failure, gap)
        self.on_progress()

    def _is_slow(self, now: float) -> bool:
        return any(now - since > SLOW_SECONDS for tasks in self._in_flight.values() for since, _ in tasks.values())

    def _refresh(self) -> None:
        if self._refreshing is None:
            self._refreshing = self._start(self._learn_leaders())

    async def _learn_leaders(self) -> None:
        topics = sorted({topic for topic, _ in self._accumulator.queues})
        try:
            async with asyncio.timeout(METADATA_SECONDS):
                await self._router.metadata(topics)
        except (KafkaError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._router.disconnect(-1)
            else:
                self.trouble = error
            if isinstance(error, Rejected) and not error.retriable:
                self.fail_all(error)
        else:
            self._refreshed = time.monotonic()
            self._leave_replaced()
        await asyncio.sleep(self._settings.retry_backoff)

    def _leave_replaced(self) -> None:
        """A silent broker that leads nothing of what it was sent any more is not waited for."""
        now = time.monotonic()
        leader = self._router.known.leader
        for node, tasks in self._in_flight.items():
            sent = [(since, batch) for since, batches in tasks.values() for batch in batches]
            is_slow = any(now - since > SLOW_SECONDS for since, _ in sent)
            if is_slow and all(leader(batch.partition) not in (node, NO_LEADER) for _, batch in sent):
                self._router.disconnect(node, lane=LANE)


def _open(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    """Those without an outcome: what ends a producer fails what is under way, too."""
    return [batch for batch in batches if not batch.is_done]
