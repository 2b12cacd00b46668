"""A produce request of which some batches cannot be appended at once: they begin a transaction, and its coordinator is
asked (KIP-890), or they take long to be checked, and a thread does that.

Until that is done nothing more that this client asks is looked at: its batches shall not pass each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.api.produce_appending import Postponed, Terms, Waits, append_to, must_wait
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.core.log.results import TAKES_LONG, AppendResult
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.log.validation import BatchVerdict
    from raftlog.broker.core.log.verification import VerificationGuard


class PostponedProduce:
    """Holds the request's connection from the beginning until `answer` is called with the place of the response."""

    def __init__(
        self,
        services: Services,
        raw: RawRequest,
        terms: Terms,
        waits: Waits,
        answer: Callable[[PendingReply], None],
    ) -> None:
        """What is appended, and is not safe enough yet, is added to `waits`."""
        self._services = services
        self._terms = terms
        self._waits = waits
        self._answer = answer
        self._connection = raw.connection
        self._place = raw.connection.reserve_place()
        self._long: list[Postponed] = []
        raw.connection.hold()
        # What was received into is used again as soon as this request was looked at.
        raw.frame = memoryview(b"")

    def begin(self, postponed: Sequence[Postponed]) -> None:
        """Append these when it is possible. Raises RemoteProtocolError."""
        copied = [each._replace(records=memoryview(bytearray(each.records))) for each in postponed]
        unverified = [each for each in copied if each.begins]
        self._long = [each for each in copied if not each.begins]
        if unverified:
            self._verify(unverified)
        else:
            self._check()

    def _verify(self, unverified: Sequence[Postponed]) -> None:
        # Imported here: a broker without transactions starts without it.
        from raftlog.broker.api.produce_verification import verify

        def verified(guards: list[VerificationGuard | AppendResult]) -> None:
            for each, guard in zip(unverified, guards, strict=True):
                if isinstance(guard, AppendResult):
                    each.complete(guard)
                else:
                    self._append(each._replace(guard=guard))
            self._check()

        _, version, transactional_id = self._terms
        assert transactional_id is not None
        batches = [(each.partition, each.records) for each in unverified]
        verify(self._services, version, transactional_id, batches, verified)

    def _check(self) -> None:
        """Have those checked that take long, and answer."""
        long, self._long = self._long, []
        if not long:
            self._answer(self._place)
            self._connection.release()
            return

        def checked(verdicts: list[BatchVerdict]) -> None:
            for each, verdict in zip(long, verdicts, strict=True):
                self._append(each, verdict)
            self._check()

        batches = [(each.records, each.partition.log.config) for each in long]
        self._services.batch_checks.check(batches, self._services.clock.now_ms(), checked, self._connection.fail)

    def _append(self, each: Postponed, checked: BatchVerdict | None = None) -> None:
        partition = each.partition
        current = partition if partition.error is ErrorCode.NONE else partition.error
        now_ms = self._services.clock.now_ms()
        result = append_to(current, each.records, self._terms, now_ms, each.guard, checked=checked)
        if result is TAKES_LONG:
            self._long.append(each)
            return
        each.complete(result)
        if result.error is not ErrorCode.NONE:
            index, _ = each.results[each.place]
            self._services.refused_firsts.note(each.topic, index, each.records, result.error, now_ms)
        elif must_wait(partition, result, self._terms[0]):
            self._waits.append((partition, each.results, each.place))
