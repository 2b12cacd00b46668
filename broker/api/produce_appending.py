"""What becomes of one batch of a produce request: it is appended, refused, or to come again with what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.validation import check_api_version, is_transactional, producer_of
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.log.validation import BatchVerdict
    from raftlog.broker.core.log.verification import VerificationGuard
    from raftlog.broker.runtime.partition import Partition

ACKS_ALL: Final = -1
_ACKS: Final = (-1, 0, 1)
# Read a dozen times in a request; an enum's attribute costs as much as a call.
_NONE: Final = ErrorCode.NONE

Waits: TypeAlias = "list[tuple[Partition, list[tuple[int, AppendResult]], int]]"
"""What was appended, and is not safe enough yet to be acknowledged: the partition, and its result's place in a list."""

Terms: TypeAlias = "tuple[int, int, bytes | None]"
"""Of a request: acks, its version, the transactional id."""

UNVERIFIED = AppendResult.refused(ErrorCode.INVALID_TXN_STATE)


class Postponed(NamedTuple):
    """A batch that is not appended yet, and its result's place in a list. It begins a transaction in its partition
    (KIP-890), and has no guard yet; or it has what it needs, and takes long to be checked. `topic`: as in requests.
    """

    partition: Partition
    results: list[tuple[int, AppendResult]]
    place: int
    records: memoryview
    topic: bytes
    guard: VerificationGuard | None = None
    begins: bool = False

    def complete(self, result: AppendResult) -> None:
        """This is what became of it."""
        self.results[self.place] = (self.results[self.place][0], result)


def append_to(
    partition: Partition | ErrorCode,
    records: memoryview | None,
    terms: Terms,
    now_ms: int,
    guard: VerificationGuard | None = None,
    *,
    checked: BatchVerdict | None = None,
) -> AppendResult:
    """Append what one partition gets, if a client may; `partition` may be why there is none. UNVERIFIED, TAKES_LONG:
    nothing is appended or refused yet; it begins a transaction and needs a guard, or is to be `checked` elsewhere.
    """
    if isinstance(partition, ErrorCode):
        return AppendResult.refused(partition)
    acks, version, transactional_id = terms
    if records is not None and is_transactional(records) and guard is None:
        if transactional_id is None:
            return AppendResult.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        producer_id, epoch, _ = producer_of(records)
        if producer_id >= 0 and not partition.has_open_transaction(producer_id, epoch):
            return UNVERIFIED
    if acks not in _ACKS:
        return AppendResult.refused(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.internal:
        return AppendResult.refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if acks == ACKS_ALL and partition.isr_size < partition.min_isr:
        return AppendResult.refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    if records is None:
        return AppendResult.refused(ErrorCode.INVALID_RECORD)
    refusal = check_api_version(records, version)
    if refusal is not None:
        return AppendResult.refused(refusal.error, refusal.message)
    return partition.append_from_client(records, now_ms, guard, checked=checked)


def must_wait(partition: Partition, result: AppendResult, acks: int) -> bool:
    """Whether what was appended is not safe enough yet to be acknowledged."""
    return partition.log.high_watermark <= result.last_offset and (acks == ACKS_ALL or partition.flushing)
