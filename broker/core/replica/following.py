"""How a follower follows: what it does about each response of its leader, and where it truncates its log when they
differ (KIP-101, KIP-279, KIP-320, KIP-595).

    state       event                                             next
    Fetching    records                                           Fetching, behind them
    Fetching    the logs diverge (epoch, end offset)              Fetching, from where the log was truncated
    Fetching    OFFSET_OUT_OF_RANGE                               Locating: the leader is asked where its log lies
    Fetching    the leader is not ready, or is none yet           Waiting, a little longer each time
    Fetching    FENCED_LEADER_EPOCH                               Fenced, until the metadata bring the next epoch
    Locating    start and end of the leader's log                 Fetching, from where the logs meet
    Locating    the same, and our end is between the two          Waiting, a little longer each time
    Fetching,   a truncation for which much must be read          Truncating: the log is as it was, nothing is fetched
      Locating
    Truncating  that was read                                     Fetching, from where the log was truncated
    Waiting     the time has passed                               Fetching
    any         the own log failed                                Failed, until the broker starts again
    any         another leader or another leader epoch            Fetching

A truncation for which nothing must be read needs no state: a fetch carries the epoch of the last record that the
follower has, and a leader whose log has not that epoch up to there answers where the logs diverge, without records.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from raftlog.wire.errors import ErrorCode

UNDEFINED = -1


class ReplicaState(Enum):
    """The states of a followed partition."""

    FETCHING = "fetching"
    LOCATING = "locating"
    TRUNCATING = "truncating"
    WAITING = "waiting"
    FENCED = "fenced"
    FAILED = "failed"


_REACTIONS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: ReplicaState.LOCATING,
    ErrorCode.FENCED_LEADER_EPOCH: ReplicaState.FENCED,
}


def state_after(error: ErrorCode) -> ReplicaState:
    """The state after an answer with an error. What is not listed may pass: the leader has not heard of its epoch, of
    the topic, of us, or has trouble with its disk.
    """
    return _REACTIONS.get(error, ReplicaState.WAITING)


class Backoff:
    """How long to wait before trying again: from `ms_min` on, twice as long each time, up to `ms_max`.

    A leader that has not heard of its election yet hears of it within milliseconds, so the first wait is short.
    """

    __slots__ = ("_ms_max", "_ms_min", "_next_ms", "failures")

    def __init__(self, ms_min: int, ms_max: int) -> None:
        # In a row.
        self.failures = 0
        self._ms_min = ms_min
        self._ms_max = ms_max
        self._next_ms = ms_min

    def next_ms(self) -> int:
        """How long to wait this time."""
        self.failures += 1
        wait_ms = min(self._next_ms, self._ms_max)
        self._next_ms = min(2 * wait_ms, self._ms_max)
        return wait_ms

    def reset(self) -> None:
        """It worked."""
        self.failures = 0
        self._next_ms = self._ms_min


class EpochsOfLog(Protocol):
    """What is asked of the follower's own log."""

    @property
    def log_end_offset(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch up to `epoch`, its end offset), (-1, -1) if none is known."""


def truncation_offset(log: EpochsOfLog, fetch_offset: int, epoch: int, end_offset: int) -> int:
    """Where to truncate when the leader says that its largest epoch up to ours is `epoch` and ends at `end_offset`.

    If we do not know that epoch either, this is a step: the next answer says more (KIP-279). Both -1: the leader does
    not know.
    """
    if end_offset == UNDEFINED:
        return min(fetch_offset, log.log_end_offset)
    if epoch == UNDEFINED:
        return min(end_offset, log.log_end_offset)
    own_epoch, own_end = log.end_offset_for_epoch(epoch)
    if own_end == UNDEFINED:
        return min(end_offset, log.log_end_offset)
    if own_epoch != epoch:
        return min(own_end, log.log_end_offset)
    return min(own_end, end_offset, log.log_end_offset)


class OffsetTruncation(NamedTuple):
    """How a follower outside its leader's log comes into it. One of the three says what to do with the own log."""

    fetch_offset: int
    truncate_to: int = UNDEFINED
    restart_at: int = UNDEFINED


def handle_out_of_range(leader_start: int, leader_end: int, own_end: int) -> OffsetTruncation:
    """Where to fetch after OFFSET_OUT_OF_RANGE.

    If the leader's log ends before ours, there was an unclean election, and what is above is cut. If it begins behind
    our end, our records are all expired, and we begin again at its start.
    """
    if leader_end < own_end:
        return OffsetTruncation(leader_end, truncate_to=leader_end)
    if leader_start > own_end:
        return OffsetTruncation(leader_start, restart_at=leader_start)
    return OffsetTruncation(own_end)


def is_diverging(known_epoch: int, known_end: int, last_fetched_epoch: int, fetch_offset: int) -> bool:
    """The leader's side: whether a follower with `last_fetched_epoch` before `fetch_offset` has what the leader has
    not. `known_epoch` and `known_end` are the leader's largest epoch up to that one, and its end.
    """
    return known_epoch < last_fetched_epoch or known_end < fetch_offset
