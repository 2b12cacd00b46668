"""Connections between brokers end by themselves when nothing comes back from the other machine.

Packets may be lost without a word, and TCP tries again ever less often: ten seconds after a link works again a
connection from before may still be silent. The kernel is told to give up such a connection early. It goes by what the
other machine's kernel takes, not by what the process there does: one that is merely slow, or stopped, keeps its
connections, as long as its kernel has room for what is sent to it (some megabytes). A window that stays shut counts as
silence.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

SILENCE_MS_MAX: Final = 800
"""What was sent is acknowledged within a round trip; for so long the kernel tries again, after 0.2 and 0.6 s."""
PROBE_SECONDS: Final = 1
"""After so long without anything from the other machine it is asked whether it is there, and so often again."""
PROBES: Final = 2

_OPTIONS: Final = (
    ("TCP_USER_TIMEOUT", SILENCE_MS_MAX),
    ("TCP_KEEPIDLE", PROBE_SECONDS),
    ("TCP_KEEPINTVL", PROBE_SECONDS),
    ("TCP_KEEPCNT", PROBES),
)


class HasOptions(Protocol):
    """A socket, or what an event loop shows of it."""

    def setsockopt(self, level: int, name: int, value: int, /) -> object: ...


def end_when_silent(sock: HasOptions | None) -> None:
    """Have the kernel end the connection when the other machine is silent. Where the system has no such option, or
    there is no socket, nothing is changed.
    """
    if sock is None:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            option = getattr(socket, name, None)
            if option is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError:
        return  # it has ended
