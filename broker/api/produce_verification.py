"""Batches of a produce request that begin a transaction: may they be appended? (KIP-890, part 1 and 2)

From v12 on the question also adds the partition to the transaction; before, it must have been added. What older clients
would not try again they are told as NOT_ENOUGH_REPLICAS, which makes each of them send the batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.validation import producer_of
from raftlog.broker.core.log.verification import NOT_REQUIRED, VerificationGuard
from raftlog.broker.runtime.transaction_verifier import ClientAbility, Transaction
from raftlog.wire.errors import ErrorCode, RemoteProtocolError

if TYPE_CHECKING:
    from raftlog.broker.api.context import Services
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.transaction_verifier import Guards as GuardsByPartition

_ADDS_PARTITIONS_FROM = 12
_KNOWS_ABORTABLE_FROM = 11

Guards: TypeAlias = "list[VerificationGuard | AppendResult]"
"""For each batch what it is to be appended with, or why it is refused."""

_TOLD_AS_NOT_ENOUGH_REPLICAS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def verify(
    services: Services,
    version: int,
    transactional_id: bytes,
    batches: Sequence[tuple[Partition, memoryview]],
    verified: Callable[[Guards], None],
) -> None:
    """`verified` gets a guard or a refusal for each batch, now or later. Raises RemoteProtocolError."""
    try:
        name = transactional_id.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a transactional id is not UTF-8: {error.reason}") from error
    producers = [producer_of(records) for _, records in batches]
    if len({(producer_id, epoch) for producer_id, epoch, _ in producers}) > 1:
        verified([AppendResult.refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING) for _ in batches])
        return
    ability = _ability(version)
    if not services.verifier.is_needed(ability):
        verified([NOT_REQUIRED for _ in batches])
        return
    adds = ability is ClientAbility.ADDS_PARTITIONS

    def begin() -> GuardsByPartition:
        now_ms = services.clock.now_ms()
        return {
            (partition.topic, partition.index): partition.begin_verification(
                producer_id, epoch, sequence, now_ms, bumps_epoch=adds
            )
            for (partition, _), (producer_id, epoch, sequence) in zip(batches, producers, strict=True)
        }

    def answered(guards: GuardsByPartition) -> None:
        found = [guards[partition.topic, partition.index] for partition, _ in batches]
        verified([_refused(guard, ability) if isinstance(guard, ErrorCode) else guard for guard in found])

    producer_id, epoch, _ = producers[0]
    services.verifier.verify_patiently(Transaction(name, producer_id, epoch), begin, ability, answered)


def _ability(version: int) -> ClientAbility:
    if version >= _ADDS_PARTITIONS_FROM:
        return ClientAbility.ADDS_PARTITIONS
    return ClientAbility.KNOWS_ABORTABLE if version >= _KNOWS_ABORTABLE_FROM else ClientAbility.OLD


def _refused(error: ErrorCode, ability: ClientAbility) -> AppendResult:
    if error is ErrorCode.INVALID_TXN_STATE:
        return AppendResult.refused(error, "Partition was not added to the transaction")
    is_concurrent = error is ErrorCode.CONCURRENT_TRANSACTIONS and ability is not ClientAbility.ADDS_PARTITIONS
    if is_concurrent or error in _TOLD_AS_NOT_ENOUGH_REPLICAS:
        reason = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        return AppendResult.refused(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    return AppendResult.refused(error)
