"""EndTxn (key 26), v0 to v5: commit or abort a transaction (KIP-98).

PRODUCER_FENCED (KIP-588, v2), an epoch of its own for each transaction (KIP-890, v5). Answered when the decision is
committed; the markers are written after that, and until they are the id has CONCURRENT_TRANSACTIONS for the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.fencing import fencing_error
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.end import EndedTransaction, EndTxn, end_transaction
from raftlog.broker.core.transaction.state import EPOCH_BUMP_FROM, ProducerIdentity
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost

_PRODUCER_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5


def handle(context: RequestContext, request: EndTxnRequest) -> None:
    """How the transaction ends, or why it cannot end so."""
    asked = EndTxn(
        request.transactional_id,
        ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        request.committed,
        EPOCH_BUMP_FROM if context.api_version >= _EPOCH_BUMP_FROM else 0,
    )

    def decide(host: TransactionHost, new_producer_id: ProducerId | None) -> Decision[EndedTransaction] | Undecided:
        return end_transaction(host.shard, asked, host.now(), new_producer_id=new_producer_id)

    def respond(ended: EndedTransaction) -> None:
        context.respond(
            EndTxnResponse(
                error_code=fencing_error(ended.error, context.api_version, _PRODUCER_FENCED_FROM),
                producer_id=ended.producer_id,
                producer_epoch=ended.epoch,
            )
        )

    def refuse(error: ErrorCode) -> None:
        context.respond(EndTxnResponse(error_code=error))

    context.services.transactions.decide(request.transactional_id, decide, respond, refuse)
