"""A record that is on its way: something to wait for that costs little."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.producer_batch import Placed, ProducerBatch
from raftlog.wire.errors import ErrorCode


def until_done(batch: ProducerBatch) -> asyncio.Future[None]:
    """A future of the caller's own: to cancel it disturbs nobody else who waits for the batch."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not future.done():
            future.set_result(None)

    batch.listeners.append(done)
    return future


class Delivery:
    """`await` it to learn where the record is, or to get the KafkaError that it failed with.

    To stop waiting, also by a timeout or cancellation, does not call the record back.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def done(self) -> bool:
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, Placed]:
        if not self._batch.is_done:
            yield from until_done(self._batch)
        outcome = self.outcome()
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def outcome(self) -> Placed | KafkaError:
        """Once it is `done`."""
        batch, index = self._batch.holder(self._index)
        offset = batch.outcome(index)
        topic, partition = batch.partition
        if isinstance(offset, KafkaError):
            return _own_failure(offset, batch, index)
        stamped = batch.log_append_time
        return Placed(topic, partition, offset, stamped if stamped >= 0 else self._timestamp)


def _own_failure(failure: KafkaError, batch: ProducerBatch, index: int) -> KafkaError:
    """A batch may be refused for the sake of one of its records (KIP-467): the others are told so."""
    errors = batch.record_errors
    if not errors or not isinstance(failure, Rejected):
        return failure
    if index in errors:
        return Rejected(ErrorCode.INVALID_RECORD, failure.subject, errors[index])
    return Rejected(ErrorCode.INVALID_RECORD, failure.subject, "refused because of another record of its batch")
