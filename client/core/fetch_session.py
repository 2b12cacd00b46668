"""The client's half of a fetch session (KIP-227): only what changed is asked, and only what has news is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raftlog.client.core.metadata import TopicPartition
from raftlog.wire.errors import ErrorCode

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


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    partitions: Mapping[TopicPartition, Wanted]
    forgotten: list[TopicPartition]


class FetchSession:
    """With one broker, over one connection. A request is answered, or lost, before the next one is built."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """What to send so that exactly `wanted` is fetched."""
        if self.epoch == FIRST_EPOCH:
            self._known = dict(wanted)
            return SessionRequest(self.session_id, self.epoch, wanted, [])
        changed = {partition: each for partition, each in wanted.items() if self._known.get(partition) != each}
        forgotten = [partition for partition in self._known if partition not in wanted]
        self._known = dict(wanted)
        return SessionRequest(self.session_id, self.epoch, changed, forgotten)

    def answered(self, code: ErrorCode, session_id: int) -> None:
        """An error, or a session that the broker did not make or keep, begins from the start."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or session_id == 0:
            self.session_id, self.epoch = 0, FIRST_EPOCH
        elif code != ErrorCode.NONE:
            self.epoch = FIRST_EPOCH  # a full request that also closes the old one
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def lost(self) -> None:
        """No answer came: the next request says all again."""
        self.epoch = FIRST_EPOCH
