"""Which sockets of clients have something to read: an epoll of their own, which the event loop watches.

Each is told of once when something has come (edge-triggered). So those that wait for a later turn, or are not read,
cost nothing meanwhile; with the loop's own means 4,000 that were ready at once stopped everything for 60 ms.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable

from raftlog.broker.server.limits import READY_ASKED_MAX, READY_AT_ONCE
from raftlog.broker.server.turns import Turns

OnReadable = Callable[[int], None]

if sys.platform == "linux":
    _EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
    _ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
    _Edges = select.epoll
else:
    _EVENTS = select.KQ_EV_ADD | select.KQ_EV_CLEAR
    _ENDS = select.KQ_EV_EOF | select.KQ_EV_ERROR

    class _Edges:
        """A kqueue, as an epoll."""

        def __init__(self) -> None:
            self._kqueue = select.kqueue()
            self.fileno = self._kqueue.fileno
            self.close = self._kqueue.close

        @property
        def closed(self) -> bool:
            return self._kqueue.closed

        def register(self, fd: int, events: int) -> None:
            self._kqueue.control([select.kevent(fd, select.KQ_FILTER_READ, events)], 0)

        def unregister(self, fd: int) -> None:
            self._kqueue.control([select.kevent(fd, select.KQ_FILTER_READ, select.KQ_EV_DELETE)], 0)

        def poll(self, timeout: float, count: int) -> list[tuple[int, int]]:
            return [(event.ident, event.flags) for event in self._kqueue.control(None, count, timeout)]


class Readiness:
    """`on_readable(ends)` of each socket is called when there is more to read; `ends` is not 0 when that is the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self._turns = turns
        self._edges = _Edges()
        self._poll = self._edges.poll
        self._sockets: dict[int, OnReadable] = {}
        loop.add_reader(self._edges.fileno(), self._tell)

    def watch(self, fd: int, on_readable: OnReadable) -> None:
        """Tell of this socket from now on, and of what it has already."""
        self._edges.register(fd, _EVENTS)
        self._sockets[fd] = on_readable

    def forget(self, fd: int) -> None:
        """Before the socket is closed, whether it was watched or not."""
        if self._sockets.pop(fd, None) is not None:
            self._edges.unregister(fd)

    def _tell(self) -> None:
        # Of all, or who comes from another address than most would wait until it is heard of: see Turns.
        sockets = self._sockets
        self._turns.heard()
        for _ in range(READY_ASKED_MAX):
            ready = self._poll(0, READY_AT_ONCE)
            for fd, events in ready:
                # One that was served before it may have had others closed.
                if fd in sockets:
                    sockets[fd](events & _ENDS)
            if len(ready) < READY_AT_ONCE:
                return

    def close(self) -> None:
        """Tell of none any more."""
        if not self._edges.closed:
            self._loop.remove_reader(self._edges.fileno())
            self._edges.close()
