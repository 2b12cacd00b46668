"""DescribeTransactions (key 65), v0: transactional ids with their transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.core.transaction.decision import Decision
from raftlog.broker.core.transaction.records import by_topic
from raftlog.broker.core.transaction.state import STATE_NAMES
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> None:
    """Each id as it is, or with an error of its own."""

    def done(described: list[TransactionState]) -> None:
        context.respond(DescribeTransactionsResponse(transaction_states=described))

    # One asked for a thousand times is described once.
    gather(context, list(dict.fromkeys(request.transactional_ids)), partial(_describe, context), done)


def _describe(context: RequestContext, transactional_id: str, answer: Callable[[TransactionState], None]) -> None:
    def describe(host: TransactionHost) -> None:
        host.execute(Decision(_state(host, transactional_id), []), answer, refuse)

    def refuse(error: ErrorCode) -> None:
        answer(TransactionState(transactional_id=transactional_id, error_code=error))

    if not transactional_id:
        refuse(ErrorCode.INVALID_REQUEST)
    else:
        context.services.transactions.run(transactional_id, describe, refuse)


def _state(host: TransactionHost, transactional_id: str) -> TransactionState:
    known = host.shard.transactions.get(transactional_id)
    if known is None:
        return TransactionState(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[known.state],
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(host.unfinished_partitions(transactional_id)).items()
        ],
    )
