"""What a broker makes of lost contact: with other brokers, and with the quorum.

*Others are suspected*: a broker whose connection was lost is dead in most cases, and will be fenced within a fraction
of a second. A client that asks in between must not be told once more that the dead one leads: it would take that for
an answer, and ask again only a second later. For the moment the partition has no leader, and the client asks on. It
hears of a death as early as this broker does, so the kernel is asked at that moment: the event loop may not know yet.

*Oneself is cut off*: a broker that hears nothing of the quorum for longer than a session has been fenced, if a quorum
is there, and others lead; what it knows is out of date, and nobody can tell it. Where the kernel has ended the
connections with the quorum, this is so sooner: the others have lost them as well, and fence without waiting. A broker
that cannot write its metadata journal takes nothing in either. Clients that still reach it would stay with it for as
long as it lasts. Their connections are ended now and then, so that they look around. If there is no quorum anywhere,
nothing is better elsewhere; therefore ever less often, and nobody is turned away. A client that was cut off as well
heard nothing of that: it is told again as soon as the network is whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raftlog.broker.runtime.readiness import is_cut_off, quorum_silence, reaches_majority
from raftlog.raft.seam import QuorumStatus

log = logging.getLogger("raftlog.contact")

SUSPICION_SECONDS_MAX = 2.0
"""By then a dead broker is fenced; one that is not has another way to the leader."""

SILENCE_SECONDS_MAX = 0.5
"""A leader that has heard nothing of the quorum for longer may have been deposed. Its leader is heard every 0.1 s."""
PEER_SILENCE_SECONDS_MAX = 1.5
"""Connected nodes say something every half second."""
CATCH_UP_SECONDS = 0.5
"""In contact again, it has heard by then what was decided meanwhile."""
STALL_SECONDS = 1.0
"""Between two looks: this process stood still."""
LOOK_SECONDS = 0.25
CUT_OFF_SECONDS = 1.0
"""Without a connection to the quorum for so long, others lead by now: see LOST_CONNECTION_GRACE_MS."""
PAUSE_SECONDS_MAX = 60.0
TOGETHER_SECONDS = 0.1
"""The links of a machine come back at about the same time. Clients are told again once, not before theirs does."""
_NO_SUSPECTS: frozenset[int] = frozenset()
_UNHEARD = "nothing was heard of the metadata quorum"


class Suspects:
    """The brokers whose connection to this one was lost a moment ago."""

    __slots__ = ("_disconnected_peers", "_lost", "_now")

    def __init__(
        self, now: Callable[[], float] | None = None, disconnected_peers: Callable[[], frozenset[int]] = frozenset
    ) -> None:
        """`now`: seconds since some moment; without it nobody is ever suspected. `disconnected_peers`: the brokers
        whose connection is over, as the kernel knows."""
        self._now = now
        self._disconnected_peers = disconnected_peers
        self._lost: dict[int, float] = {}

    def on_peer(self, node_id: int, connected: bool) -> None:
        """A connection was made or lost."""
        if connected:
            self._lost.pop(node_id, None)
        elif self._now is not None:
            self._lost[node_id] = self._now()

    def current(self) -> frozenset[int]:
        """Whom to call no leader at the moment."""
        if self._now is None:
            return _NO_SUSPECTS
        for node_id in self._disconnected_peers():
            self._lost.setdefault(node_id, self._now())
        if not self._lost:
            return _NO_SUSPECTS
        since = self._now() - SUSPICION_SECONDS_MAX
        self._lost = {node_id: lost for node_id, lost in self._lost.items() if lost > since}
        return frozenset(self._lost)


class PeerSilence:
    """The nodes that were connected with this one, and from which nothing comes any more: their process, or the link
    to them, stands still. Time in which this process stood still does not count.
    """

    __slots__ = ("_disconnected", "_status")

    def __init__(self, status: Callable[[], QuorumStatus]) -> None:
        self._status = status
        self._disconnected: set[int] = set()

    def on_peer(self, node_id: int, connected: bool) -> None:
        """A connection was made or lost."""
        (self._disconnected.discard if connected else self._disconnected.add)(node_id)

    def peers(self) -> frozenset[int]:
        """Who is silent now."""
        status = self._status()
        members = (*status.voters, *status.observers)
        silent = [each.node_id for each in members if each.last_contact_seconds > PEER_SILENCE_SECONDS_MAX]
        return frozenset(self._disconnected.union(silent))


class QuorumWatch:
    """Looks whether this broker is in contact with the quorum, and disconnects its clients when it is not.

    `tell_again` is called whenever those of them that could not be reached then may be reached now.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        status: Callable[[], QuorumStatus],
        session_seconds: float,
        disconnect_all: Callable[[str], None],
        tell_again: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._status = status
        self._session_seconds = session_seconds
        self._disconnect_all = disconnect_all
        self._tell_again = tell_again
        # When the quorum was in contact last, as of the latest look that found it so.
        self._heard_at = loop.time()
        self._lost_at: float | None = None
        self._pause = session_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = self._doubtful_until = loop.time()

    def begin(self) -> None:
        """Look from now on."""
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def on_peer(self, _node_id: int, connected: bool) -> None:
        """A connection was made or lost: the first sign that packets arrive again."""
        if connected and reaches_majority(self._status()):
            self._loop.call_later(TOGETHER_SECONDS, self._tell_again)

    def is_in_contact(self) -> bool:
        """Whether the quorum was heard a moment ago, so that this broker would know if others led its partitions."""
        return self._is_in_contact(self._loop.time(), quorum_silence(self._status()))

    def _is_in_contact(self, now: float, silence: float | None) -> bool:
        is_silent = silence is None or silence > SILENCE_SECONDS_MAX
        if is_silent or now - self._looked_at > STALL_SECONDS:
            self._doubtful_until = now + CATCH_UP_SECONDS
        return now >= self._doubtful_until

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        now = self._loop.time()
        status = self._status()
        silence = quorum_silence(status)
        self._is_in_contact(now, silence)
        self._looked_at = now
        if silence is not None and silence < self._session_seconds:
            if self._lost_at is not None:
                log.info("in contact with the metadata quorum again")
                self._tell_again()
            self._lost_at, self._pause, self._heard_at = None, self._session_seconds, now - silence
            return
        if self._lost_at is None:
            # Who has no leader any more has not heard one for a while.
            self._lost_at = self._heard_at
        is_first = self._pause == self._session_seconds
        pause = min(self._pause, CUT_OFF_SECONDS) if is_first and is_cut_off(status) else self._pause
        if now - self._lost_at >= pause:
            self._pause = min(self._pause * 2, self._pause + PAUSE_SECONDS_MAX)
            what = _UNHEARD if status.is_writable else "nothing could be written to the metadata log"
            self._disconnect_all(f"{what} for {now - self._lost_at:.1f} s")
