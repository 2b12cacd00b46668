"""A shard's deadlines, which are moved far more often than they are met.

Moving one further away, which every heartbeat does, is two attribute writes; the queue finds out when the old time
comes. They are part of the shard's state, and so pure: what brings the time is the broker's timer wheel, in which the
whole shard has one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from heapq import heapify, heappop, heappush

from raftlog.broker.core.coordinator.shared import NEVER
from raftlog.wire.errors import InvariantViolation

SWEEP_ABOVE_MIN = 1_000
"""With fewer entries than that, nobody looks for those that mean nothing."""


class TimerKind(Enum):
    """What is to be done when the time has come."""

    SESSION = auto()
    """A member sent no heartbeat in time."""
    PENDING_JOIN = auto()
    """A client was given a member id and did not come back with it."""
    JOIN = auto()
    """The join phase has lasted as long as it may."""
    SYNC = auto()
    """The sync phase has."""
    MEMBER_SESSION = auto()
    """A member of a consumer group sent no heartbeat in time."""
    MEMBER_REBALANCE = auto()
    """It did not give up partitions in time."""
    MEMBER_JOIN = auto()
    """One that uses the classic protocol there did not join again in time."""
    MEMBER_SYNC = auto()
    """It joined, and did not ask for its assignment in time."""


class Timer:
    """A deadline with what it belongs to. `queued_ms` is when the queue will look at it next."""

    __slots__ = ("deadline_ms", "group_id", "kind", "member_id", "queued_ms")

    def __init__(self, kind: TimerKind, group_id: str, member_id: str = "") -> None:
        self.kind = kind
        self.group_id = group_id
        self.member_id = member_id
        self.deadline_ms = NEVER
        self.queued_ms = NEVER

    @property
    def is_set(self) -> bool:
        return self.deadline_ms != NEVER

    def cancel(self) -> None:
        """Stop; its place in the queue goes unused when its time comes."""
        self.deadline_ms = NEVER


class MemberTimers:
    """The timers of a member of a consumer group; `revoking_epoch` is the epoch in which it has to give up partitions
    before `rebalance` expires.
    """

    __slots__ = ("join", "rebalance", "revoking_epoch", "session", "sync")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.session = Timer(TimerKind.MEMBER_SESSION, group_id, member_id)
        self.rebalance = Timer(TimerKind.MEMBER_REBALANCE, group_id, member_id)
        self.join = Timer(TimerKind.MEMBER_JOIN, group_id, member_id)
        self.sync = Timer(TimerKind.MEMBER_SYNC, group_id, member_id)
        self.revoking_epoch = -1

    def cancel(self) -> None:
        """Stop them all."""
        for timer in (self.session, self.rebalance, self.join, self.sync):
            timer.cancel()


class TimerQueue:
    """Timers by the time at which each has to be looked at.

    Invariant: a timer that is set has an entry in the heap at `queued_ms` <= `deadline_ms`. Entries of other times, and
    of timers that are not set, are left over from before and mean nothing; when half of the heap may be such, they go.
    """

    __slots__ = ("_heap", "_sequence", "_sweep_above")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._sweep_above = SWEEP_ABOVE_MIN

    def set(self, timer: Timer, deadline_ms: int) -> None:
        """Let `timer` expire at `deadline_ms` and not before. O(1) unless the deadline comes nearer."""
        timer.deadline_ms = deadline_ms
        if deadline_ms < timer.queued_ms:
            self._push(timer, deadline_ms)

    def postpone(self, ms: int) -> None:
        """Let all that is set expire so much later."""
        for timer in {timer for at_ms, _, timer in self._heap if timer.queued_ms == at_ms}:
            timer.queued_ms += ms
            if timer.is_set:
                timer.deadline_ms += ms
        self._heap[:] = [(at_ms + ms, number, timer) for at_ms, number, timer in self._heap]

    def _push(self, timer: Timer, at_ms: int) -> None:
        timer.queued_ms = at_ms
        self._sequence += 1
        heappush(self._heap, (at_ms, self._sequence, timer))
        if len(self._heap) > self._sweep_above:
            self._sweep()

    def _sweep(self) -> None:
        """Let go of what means nothing: whoever comes and goes leaves a time-out of up to half an hour."""
        kept = []
        for entry in self._heap:
            at_ms, _, timer = entry
            if timer.queued_ms == at_ms and timer.is_set:
                kept.append(entry)
            elif timer.queued_ms == at_ms:
                timer.queued_ms = NEVER
        # In place, for `expired` may be at work.
        self._heap[:] = kept
        heapify(self._heap)
        self._sweep_above = max(SWEEP_ABOVE_MIN, 2 * len(kept))

    def next_look_ms(self) -> int:
        """When `expired` should be called next: never after the nearest deadline, perhaps before. NEVER if idle."""
        return self._heap[0][0] if self._heap else NEVER

    def expired(self, now_ms: int) -> Iterator[Timer]:
        """Timers whose deadline is not after `now_ms`, in order of when they were due to be looked at; each is unset.

        Timers may be set while this runs; one that is set to `now_ms` or earlier comes out too.
        """
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at_ms, _, timer = heappop(heap)
            if timer.queued_ms != at_ms:
                continue
            timer.queued_ms = NEVER
            deadline_ms = timer.deadline_ms
            if deadline_ms > now_ms:
                if deadline_ms != NEVER:
                    self._push(timer, deadline_ms)
                continue
            timer.deadline_ms = NEVER
            yield timer

    def __len__(self) -> int:
        """Entries in the heap, left-over ones included."""
        return len(self._heap)

    def check_invariants(self, timers: Iterable[Timer]) -> None:
        """Raises InvariantViolation if one of these is set and not queued, or one that is queued would come late."""
        queued = {timer for at_ms, _, timer in self._heap if timer.queued_ms == at_ms}
        wrong = [timer for timer in queued if timer.queued_ms > timer.deadline_ms]
        wrong += [timer for timer in timers if timer.deadline_ms != NEVER and timer not in queued]
        for timer in wrong:
            when = f"{timer.deadline_ms} and looked at {timer.queued_ms}"
            raise InvariantViolation(f"{timer.kind.name} of {timer.group_id} {timer.member_id} is due {when}")
