"""Who counts as alive: the judgement of the node that leads the metadata quorum.

Reads no clock: every call brings `now_ms` of a monotonic one.

Three ways to be taken for dead, and three guards against being taken so wrongly:

- Not heard for the session time (`broker.session.timeout.ms`): the broker hangs, or is cut off.
- Its connection was lost and is not back after a short grace: a process that died. A broker that merely connected
  anew is back within the grace.
- Nothing is known of it when this node begins to lead: everybody gets a session, less the time for which this node
  has not heard anything of it at all, and one whose connection is known to be missing the grace.

A busy machine stops this node as well as the brokers, and then what they sent lies unread. So time in which this node
did not run does not count: when a tick comes late, all deadlines move by as much.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.wire.ids import BrokerEpoch, BrokerId

DEFAULT_SESSION_MS = 2000
LOST_CONNECTION_GRACE_MS = 120
"""Long enough for a connection that broke to be made again (a few milliseconds, and a busy machine), short beside the
second in which clients shall have a new leader.
"""

FRESH_SESSION_MS_MIN = 600
"""However long a broker was silent when a new leader begins: two heartbeats have to have the time to come."""

TICK_MS = 40
PAUSE_TOLERANCE_MS = 100
"""A tick that comes no later than this is on time: on a loaded machine many are a little late, and if all of that were
forgiven, the dead would live for ever.
"""


class Silence(NamedTuple):
    """A broker that counts as dead, and why."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: str


class _Seen:
    """What is known of one broker. `deadline_ms`: dead from then on. `heard`: over the connection that it has now."""

    __slots__ = ("deadline_ms", "epoch", "grace_ends_ms", "heard", "heard_ms")

    def __init__(self, epoch: BrokerEpoch, heard_ms: int, deadline_ms: int, heard: bool) -> None:
        self.epoch = epoch
        self.heard = heard
        self.heard_ms = heard_ms
        self.deadline_ms = deadline_ms
        self.grace_ends_ms: int | None = None


class Liveness:
    """The brokers that are not fenced, and how long each may still be silent.

    Invariant: a broker is reported once; it is watched again when it is heard again.
    """

    def __init__(self, session_ms: int = DEFAULT_SESSION_MS, grace_ms: int = LOST_CONNECTION_GRACE_MS) -> None:
        self.session_ms = session_ms
        self._grace_ms = grace_ms
        self._seen: dict[BrokerId, _Seen] = {}
        self._disconnected: dict[BrokerId, int] = {}
        self._last_tick_ms: int | None = None

    # -- events ------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """This node leads from now on: nothing that it knew before counts. Connections are told anew."""
        self._seen.clear()
        self._disconnected.clear()
        self._last_tick_ms = now_ms

    def watch(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int, silent_ms: int = 0, *, heard: bool = True
    ) -> None:
        """A broker that is not fenced. Nothing happens if it is watched in this epoch already, or in a newer one.

        `silent_ms`: for how long it is known to have said nothing, not even to this node's quorum. `heard`: whether it
        has told this node that it is there, and not an earlier leader.
        """
        seen = self._seen.get(broker_id)
        if seen is not None and seen.epoch >= broker_epoch:
            return
        session_ms = max(self.session_ms - silent_ms, min(self.session_ms, FRESH_SESSION_MS_MIN))
        seen = self._seen[broker_id] = _Seen(broker_epoch, now_ms - silent_ms, now_ms + session_ms, heard)
        if broker_id in self._disconnected:
            seen.grace_ends_ms = now_ms + self._grace_ms

    def forget(self, broker_id: BrokerId) -> None:
        """It is fenced, or not registered any more."""
        self._seen.pop(broker_id, None)

    def heard(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """A heartbeat came. One of an older epoch proves nothing about the newer one."""
        seen = self._seen.get(broker_id)
        if seen is not None and seen.epoch == broker_epoch:
            seen.heard = True
            seen.heard_ms = now_ms
            seen.deadline_ms = now_ms + self.session_ms

    def connection(self, broker_id: BrokerId, connected: bool, now_ms: int) -> None:
        """The broker's connection to this node came or was lost."""
        seen = self._seen.get(broker_id)
        if connected:
            self._disconnected.pop(broker_id, None)
            if seen is not None:
                seen.grace_ends_ms = None
            return
        self._disconnected.setdefault(broker_id, now_ms)
        if seen is not None:
            seen.heard = False
            if seen.grace_ends_ms is None:
                seen.grace_ends_ms = now_ms + self._grace_ms

    # -- judgement ---------------------------------------------------------------------------------

    def is_alive(self, broker_id: BrokerId, now_ms: int) -> bool:
        """Whether the broker was heard within its session, over the connection that it has now.

        Nodes let nobody connect under the id of a node that they hear: who has the connection is that broker, and if
        it has not been heard in the epoch of its registration, it is another process. When all brokers were killed
        together, a new leader would otherwise take every one of them for a second one, for a whole session.
        """
        seen = self._seen.get(broker_id)
        return seen is not None and seen.heard and broker_id not in self._disconnected and now_ms < seen.deadline_ms

    def silent_ms(self, broker_id: BrokerId, now_ms: int) -> int:
        """For how long the broker has not been heard; 0 when it is not watched."""
        seen = self._seen.get(broker_id)
        return 0 if seen is None else now_ms - seen.heard_ms

    def tick(self, now_ms: int) -> tuple[Silence, ...]:
        """The brokers to be fenced now. To be called every TICK_MS."""
        self._forgive_pause(now_ms)
        silent: list[Silence] = []
        for broker_id in list(self._seen):
            seen = self._seen[broker_id]
            reason = None
            if seen.grace_ends_ms is not None and now_ms >= seen.grace_ends_ms:
                reason = "its connection was lost"
            elif now_ms >= seen.deadline_ms:
                reason = f"not heard for {now_ms - seen.heard_ms} ms"
            if reason is not None:
                silent.append(Silence(broker_id, seen.epoch, reason))
                del self._seen[broker_id]
        return tuple(silent)

    def _forgive_pause(self, now_ms: int) -> None:
        last, self._last_tick_ms = self._last_tick_ms, now_ms
        if last is None:
            return
        pause = now_ms - last - TICK_MS
        if pause <= PAUSE_TOLERANCE_MS:
            return
        for seen in self._seen.values():
            seen.deadline_ms += pause
            if seen.grace_ends_ms is not None:
                seen.grace_ends_ms += pause
