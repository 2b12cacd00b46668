"""Heartbeats of classic groups that are answered when there is news: members hear at once that they have to join again.

A member is told so only in answer to a heartbeat, of which it sends one in three seconds. librdkafka and raftlog.client
go on with everything else while a heartbeat is not answered; other clients may wait for the answer before they do more
(KafkaJS processes no messages meanwhile), and get it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

from raftlog.broker.runtime.timer_wheel import TimedWait, TimerWheel
from raftlog.wire.errors import ErrorCode

HOLD_SECONDS_MAX = 2.8
"""A little less than the usual time between two heartbeats: librdkafka sends none while the last is not answered."""
SESSION_PART = 3
"""And no longer than this part of the member's session, which begins anew for the client with each answer."""
_GO_ON = ("rdkafka", "raftlog-client")


def goes_on_meanwhile(software: str) -> bool:
    """Whether a client of this name and version (KIP-511) does not wait for answers to heartbeats. Those that are built
    on librdkafka have a name of their own, and say in the version what they are built on."""
    return any(name in software for name in _GO_ON)


class HeldHeartbeats:
    """Those of one coordinator's groups; a member has one at the most."""

    def __init__(self, timers: TimerWheel) -> None:
        self._timers = timers
        self._held: dict[str, dict[str, TimedWait]] = {}

    def hold(self, group_id: str, member_id: str, session_ms: int, answer: Callable[[], None]) -> Callable[[], None]:
        """Call `answer` once: when the group's members have to join again, after a time, or when what is returned is
        called before.
        """
        held = self._held.setdefault(group_id, {})

        def end(_: ErrorCode) -> None:
            if held.get(member_id) is wait:
                del held[member_id]
                if not held and self._held.get(group_id) is held:
                    del self._held[group_id]
            answer()

        wait = TimedWait(self._timers, min(HOLD_SECONDS_MAX, session_ms / 1000 / SESSION_PART), end)
        earlier, held[member_id] = held.get(member_id), wait
        if earlier is not None:
            earlier.done(ErrorCode.NONE)
        return partial(wait.done, ErrorCode.NONE)

    def take(self, group_id: str, *, but: Container[str] = ()) -> list[Callable[[], None]]:
        """Give up those of a group, `but` of these members: they are answered by whoever takes them, by calling each
        once.
        """
        held = self._held.get(group_id, {})
        return [partial(wait.done, ErrorCode.NONE) for member_id, wait in held.items() if member_id not in but]

    def answer_all(self) -> None:
        """There is no coordinator any more."""
        for group_id in list(self._held):
            for answer in self.take(group_id):
                answer()
