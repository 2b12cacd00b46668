"""ListTransactions (key 66), v0 to v2: the transactional ids that this broker coordinates (KIP-664).

Filters on state and producer id, on duration (KIP-994, v1), and on ids by a regular expression (KIP-1152, v2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext, Response
from raftlog.broker.api.gather import gather
from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.regular_expressions import (
    InvalidRegularExpression,
    check_regular_expression,
    resolve_regular_expressions,
)
from raftlog.broker.core.transaction.decision import Decision
from raftlog.broker.core.transaction.listing import TransactionFilter, list_transactions, states_by_name
from raftlog.broker.core.transaction.state import STATE_NAMES, TransactionMetadata
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from raftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from raftlog.wire.varint import encode_unsigned_varint

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost

TOGETHER = 200
"""Ids that are looked at in one step: a fraction of a millisecond."""

_INT64 = Struct(">q")
_NONE_LISTED = b"\x01\x00"  # a response without transactions ends so: their number and one, and no tagged fields
_NO_TAGS = b"\x00"

_Transactions = Sequence[tuple[str, TransactionMetadata]]
_Part = tuple[ErrorCode, _Transactions]


def handle(context: RequestContext, request: ListTransactionsRequest) -> None:
    """All transactional ids that pass the filters; none at all while some cannot be told."""

    def done(parts: list[_Part]) -> None:
        error = next((error for error, _ in parts if error is not ErrorCode.NONE), ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            context.respond(ListTransactionsResponse(error_code=error))
        else:
            context.respond_with(_listed(context, request, [known for _, part in parts for known in part]))

    gather(context, context.services.transactions.partitions_in_use(), partial(_list, context), done)


def _list(context: RequestContext, index: int, answer: Callable[[_Part], None]) -> None:
    def find(host: TransactionHost) -> None:
        # As they are now: what becomes of an id later is another value.
        found = list(host.shard.transactions.items())
        host.execute(Decision((ErrorCode.NONE, found), []), answer, refuse)

    def refuse(error: ErrorCode) -> None:
        answer((error, []))

    context.services.transactions.run_at(index, find, refuse)


async def _listed(context: RequestContext, request: ListTransactionsRequest, known: _Transactions) -> Response:
    """The response, encoded by hand in small steps: it may tell of a hundred thousand ids."""
    transactions = context.services.transactions
    states, unknown = states_by_name(request.state_filters)
    wanted = TransactionFilter(
        producer_ids=frozenset(ProducerId(producer_id) for producer_id in request.producer_id_filters),
        has_states=bool(request.state_filters),
        states=states,
        duration_ms=request.duration_filter,
    )
    found: list[tuple[str, TransactionMetadata]] = []
    await transactions.in_slices(_filter(known, wanted, transactions.now(), found))
    if request.transactional_id_pattern:
        try:
            check_regular_expression(request.transactional_id_pattern)
        except InvalidRegularExpression:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        await transactions.in_slices(_match(request.transactional_id_pattern, found))
    nobody = encode(ListTransactionsResponse(unknown_state_filters=unknown), context.api_version)
    body = bytearray(nobody.removesuffix(_NONE_LISTED) + encode_unsigned_varint(len(found) + 1))
    await transactions.in_slices(_encode(found, body))
    body += _NO_TAGS
    return bytes(body)


def _filter(
    known: _Transactions, wanted: TransactionFilter, now: Now, found: list[tuple[str, TransactionMetadata]]
) -> Iterator[None]:
    for first in range(0, len(known), TOGETHER):
        found += list_transactions(known[first : first + TOGETHER], wanted, now)
        yield


def _match(pattern: str, found: list[tuple[str, TransactionMetadata]]) -> Iterator[None]:
    matching = (yield from resolve_regular_expressions([pattern], [name for name, _ in found]))[pattern]
    found[:] = [each for each in found if each[0] in matching]


_STATES = {
    state: encode_unsigned_varint(len(name) + 1) + name.encode() + _NO_TAGS for state, name in STATE_NAMES.items()
}
"""The end of an entry."""


def _encode(found: _Transactions, body: bytearray) -> Iterator[None]:
    for first in range(0, len(found), TOGETHER):
        for name, known in found[first : first + TOGETHER]:
            encoded = name.encode()
            body += encode_unsigned_varint(len(encoded) + 1) + encoded
            body += _INT64.pack(known.producer_id) + _STATES[known.state]
        yield
