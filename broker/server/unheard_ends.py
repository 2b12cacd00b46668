"""Clients whose connection was ended while no packet reached them: they are told again when the network is whole.

A broker that is cut off ends its clients' connections. Who is cut off as well does not hear of it: TCP sends the end
again ever less often, ten seconds after a cut of fifteen, and the client sends ever less often too. So the sockets are
kept, shut down, until the client's machine has acknowledged the end; the others are reset when the broker has contact
again, which sends a packet at once. Nothing is read from them, and nothing that was asked over them is answered.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from typing import Final

UNHEARD_MAX: Final = 1_000
"""Sockets kept; each takes a descriptor, and what the kernel has not sent yet."""

UNHEARD_SECONDS_MAX: Final = 120.0
"""By then a client has given up by itself: it waits 30 to 60 s for an answer, and 120 s to deliver a record."""

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_TCP_FIN_WAIT1: Final = 4
"""TCP_INFO's first byte on Linux: the end was sent, and is not acknowledged."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER, on and without time: what closes the socket sends a reset."""


class UnheardEnds:
    """Sockets that were shut down, the oldest first. Where the system does not tell what was acknowledged, none."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[float, socket.socket]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def end(self, sock: socket.socket, now: float) -> None:
        """Shut a socket down, and keep it."""
        with contextlib.suppress(OSError):  # it has ended
            sock.shutdown(socket.SHUT_RDWR)
        self._kept.append((now, sock))
        self.keep_at_most(UNHEARD_MAX)

    def keep_at_most(self, count: int) -> None:
        """Leave the oldest to the kernel, if there are more."""
        while len(self._kept) > count:
            self._kept.popleft()[1].close()

    def look(self, now: float) -> None:
        """Keep only those that may still need it; to be called now and then."""
        kept, self._kept = self._kept, deque()
        for since, sock in kept:
            if now - since < UNHEARD_SECONDS_MAX and _is_unheard(sock):
                self._kept.append((since, sock))
            else:
                sock.close()

    def tell_again(self) -> int:
        """Reset those whose end was not acknowledged, and keep none; how many those were."""
        told = 0
        while self._kept:
            _, sock = self._kept.popleft()
            if _is_unheard(sock):
                told += 1
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()
        return told


def _is_unheard(sock: socket.socket) -> bool:
    return _TCP_INFO is not None and sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] == _TCP_FIN_WAIT1
