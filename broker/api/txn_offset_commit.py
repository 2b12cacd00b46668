"""TxnOffsetCommit (key 28), v0 to v5: remember how far a group has come once the transaction commits (KIP-98).

Fenced by member, generation and instance (KIP-447, v3). The transaction is verified with its coordinator; from v5 on
the partition of `__consumer_offsets` is added to it by that (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlog.broker.api.commits import commit_in_parts
from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, coordinator_error
from raftlog.broker.core.group.transactional_offsets import (
    commit_in_transaction,
    commits_nothing,
    refuse_in_transaction,
)
from raftlog.broker.core.log.verification import NOT_REQUIRED, VerificationGuard
from raftlog.broker.runtime.coordinator_host import Producer
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.runtime.transaction_verifier import ClientAbility, Guards, Transaction
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_ABORTABLE_KNOWN_FROM = 4
_ADDS_PARTITIONS_FROM = 5
_NO_SEQUENCE = -1


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> None:
    """Answered when the offsets are committed to the log; they count when the transaction is."""
    commit_in_parts(context, request, partial(_commit, context))


def _commit(
    context: RequestContext, request: TxnOffsetCommitRequest, answer: Callable[[TxnOffsetCommitResponse], None]
) -> None:
    services, version = context.services, context.api_version

    def refuse(error: ErrorCode) -> None:
        image = services.controller.image
        answer(refuse_in_transaction(request, coordinator_error(error), version, image))

    def verified(guard: VerificationGuard | None) -> None:
        producer = Producer(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch), guard)

        def commit(host: GroupHost) -> None:
            image = services.controller.image
            decision = commit_in_transaction(host.shard, request, version, image, host.now())
            host.commit_in_transaction(decision, producer, answer, refuse)

        services.groups.run(request.group_id, commit, refuse)

    if commits_nothing(request, services.controller.image):
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif not request.group_id:
        refuse(ErrorCode.INVALID_GROUP_ID)
    else:
        _verify(context, request, verified, refuse)


def _verify(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    verified: Callable[[VerificationGuard | None], None],
    refuse: Callable[[ErrorCode], None],
) -> None:
    """Ask the transaction's coordinator if this is its first commit in the partition of the group (KIP-890)."""
    services = context.services
    index = services.groups.partition_of(request.group_id)
    if index is None:
        refuse(ErrorCode.NOT_COORDINATOR)
        return
    partition = services.partitions.find(GROUP_TOPIC, None, index)
    if isinstance(partition, ErrorCode):
        refuse(partition)
        return
    ability = _ability(context.api_version)
    producer_id, epoch = ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    if partition.has_open_transaction(producer_id, epoch):
        verified(None)
        return
    if not services.verifier.is_needed(ability):
        verified(NOT_REQUIRED)
        return
    bumps_epoch = ability is ClientAbility.ADDS_PARTITIONS
    key = (GROUP_TOPIC, index)

    def begin() -> Guards:
        now_ms = services.clock.now_ms()
        return {
            key: partition.begin_verification(producer_id, epoch, _NO_SEQUENCE, now_ms, bumps_epoch=bumps_epoch)
        }

    def answered(guards: Guards) -> None:
        guard = guards[key]
        if isinstance(guard, ErrorCode):
            refuse(guard)
        else:
            verified(guard)

    transaction = Transaction(request.transactional_id, producer_id, epoch)
    services.verifier.verify_patiently(transaction, begin, ability, answered)


def _ability(version: int) -> ClientAbility:
    if version >= _ADDS_PARTITIONS_FROM:
        return ClientAbility.ADDS_PARTITIONS
    return ClientAbility.KNOWS_ABORTABLE if version >= _ABORTABLE_KNOWN_FROM else ClientAbility.OLD
