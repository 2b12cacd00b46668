"""Producer ids without transactions: asked for once, with a new epoch after a record that could not be stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any

from raftlog.client.core.errors import KafkaError, check
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.producer_batch import ProducerIdentity
from raftlog.client.core.producer_id import ProducerIds
from raftlog.client.router import Router
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class IdempotentNumbering:
    """See `Sender`'s Numbering."""

    transactional_id: str | None = None
    produce_version_max: int | None = None

    def __init__(self, router: Router, in_trouble: Callable[[KafkaError], None]) -> None:
        self._router = router
        self._in_trouble = in_trouble
        self._ids = ProducerIds()
        self._failure: KafkaError | None = None

    @property
    def identity(self) -> ProducerIdentity | None:
        return self._ids.identity

    @property
    def held(self) -> Collection[TopicPartition]:
        return ()

    def check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure

    def prepare(self) -> Coroutine[Any, Any, None] | None:
        return self._introduce() if self._ids.identity is None and self._failure is None else None

    def lost(self, partition: TopicPartition, failure: KafkaError, gap: bool) -> None:
        if gap:
            self._ids.next_epoch()

    async def _introduce(self) -> None:
        try:
            answer = await self._router.retrying(self._ask)
        except KafkaError as error:
            if not error.retriable:
                self._failure = error
            raise
        self._ids.given(answer.producer_id, answer.producer_epoch)

    async def _ask(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            answer = await self._router.ask(request, InitProducerIdResponse)
            check(answer.error_code, "asking for a producer id")
        except KafkaError as error:
            self._in_trouble(error)
            raise
        return answer
