"""ListTransactions (key 66), v0 to v2: the transactional ids that this broker coordinates (KIP-664).

Filters on state and producer id, on duration (KIP-994, v1), and on ids by a regular expression (KIP-1152, v2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.parts import in_parts
from raftlog.broker.core.group.regular_expressions import (
    InvalidRegularExpression,
    check_regular_expression,
    resolve_regular_expressions,
)
from raftlog.broker.core.transaction.decision import Decision
from raftlog.broker.core.transaction.listing import TransactionFilter, list_transactions, states_by_name
from raftlog.broker.core.transaction.state import STATE_NAMES
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from raftlog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost

_Part = tuple[ErrorCode, list[TransactionState]]


def handle(context: RequestContext, request: ListTransactionsRequest) -> None:
    """All transactional ids that pass the filters; none at all while some cannot be told."""
    states, unknown = states_by_name(request.state_filters)
    wanted = TransactionFilter(
        producer_ids=frozenset(ProducerId(producer_id) for producer_id in request.producer_id_filters),
        has_states=bool(request.state_filters),
        states=states,
        duration_ms=request.duration_filter,
    )

    def done(parts: list[_Part]) -> None:
        error = next((error for error, _ in parts if error is not ErrorCode.NONE), ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            context.respond(ListTransactionsResponse(error_code=error))
            return
        found = {state.transactional_id: state for _, states in parts for state in states}
        if not request.transactional_id_pattern:
            context.respond(_listed(unknown, found.values()))
        else:
            context.respond_with(_of_matching_ids(request.transactional_id_pattern, unknown, found))

    in_parts(context.services.transactions.partitions_in_use(), partial(_list, context, wanted), done)


async def _of_matching_ids(
    pattern: str, unknown: list[str], found: dict[str, TransactionState]
) -> ListTransactionsResponse:
    try:
        check_regular_expression(pattern)
    except InvalidRegularExpression:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    steps = resolve_regular_expressions([pattern], list(found))
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return _listed(unknown, [found[name] for name in found if name in done.value[pattern]])
        await asyncio.sleep(0)


def _listed(unknown: list[str], found: Iterable[TransactionState]) -> ListTransactionsResponse:
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=list(found))


def _list(context: RequestContext, wanted: TransactionFilter, index: int, answer: Callable[[_Part], None]) -> None:
    def find(host: TransactionHost) -> None:
        found = [
            TransactionState(
                transactional_id=name, producer_id=known.producer_id, transaction_state=STATE_NAMES[known.state]
            )
            for name, known in list_transactions(host.shard.transactions.items(), wanted, host.now())
        ]
        host.carry_out(Decision((ErrorCode.NONE, found), []), answer, refuse)

    def refuse(error: ErrorCode) -> None:
        answer((error, []))

    context.services.transactions.run_at(index, find, refuse)
