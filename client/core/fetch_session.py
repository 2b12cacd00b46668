"""The client's half of a fetch session (KIP-227): only what changed is asked, and only what has news is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raftlog.client.core.metadata import TopicPartition
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.schema import ZERO_UUID

FIRST_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = 0x7FFFFFFF


class Wanted(NamedTuple):
    """What is to be fetched of a partition."""

    offset: int
    leader_epoch: int
    last_epoch: int
    """Of the record before `offset`, -1 if unknown: the leader sees whether logs have parted (KIP-595)."""
    max_bytes: int
    topic_id: bytes = ZERO_UUID
    """Zero where brokers tell none."""


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    partitions: Mapping[TopicPartition, Wanted]
    forgotten: list[tuple[TopicPartition, bytes]]
    """With the ids of their topics."""
    uses_ids: bool
    """Topics have their ids in it, not their names (KIP-516)."""


class FetchSession:
    """With one broker, over one connection. A request is answered, or lost, before the next one is built."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}
        self._uses_ids = True
        self._is_asked = False

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """What to send so that exactly `wanted` is fetched."""
        if self._is_asked:
            raise InvariantViolation("a fetch is built before the last one is answered, or lost")
        self._is_asked = True
        uses_ids = all(each.topic_id != ZERO_UUID for each in wanted.values())
        if uses_ids != self._uses_ids:
            self.epoch = FIRST_EPOCH  # a session has names or ids, never both
            self._uses_ids = uses_ids
        known, self._known = self._known, dict(wanted)
        if self.epoch == FIRST_EPOCH:
            return SessionRequest(self.session_id, self.epoch, wanted, [], uses_ids)
        changed = {partition: each for partition, each in wanted.items() if known.get(partition) != each}
        forgotten = [
            (partition, each.topic_id)
            for partition, each in known.items()
            if partition not in wanted or wanted[partition].topic_id != each.topic_id
        ]
        return SessionRequest(self.session_id, self.epoch, changed, forgotten, uses_ids)

    def answered(self, code: ErrorCode, session_id: int) -> None:
        """An error, or a session that the broker did not make or keep, begins from the start."""
        self._is_asked = False
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or session_id == 0:
            self.session_id, self.epoch = 0, FIRST_EPOCH
        elif code != ErrorCode.NONE:
            self.epoch = FIRST_EPOCH  # a full request that also closes the old one
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def lost(self) -> None:
        """No answer came: the next request says all again."""
        self._is_asked = False
        self.epoch = FIRST_EPOCH

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        if not FIRST_EPOCH <= self.epoch <= LAST_EPOCH or (self.epoch != FIRST_EPOCH and not self.session_id):
            raise InvariantViolation(f"epoch {self.epoch} of session {self.session_id}")
        if self._uses_ids != all(each.topic_id != ZERO_UUID for each in self._known.values()):
            raise InvariantViolation(f"a session has names or ids, never both: {self._known}")
