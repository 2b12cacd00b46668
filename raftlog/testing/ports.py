"""Ports that a cluster needs before its brokers run: every broker has to know where the others will be.

A reserved port stays bound by this process, without listening, for as long as the reservation lives. Linux lets a
broker of ours bind it beside us (both set SO_REUSEADDR, and only one listens) and gives it to nobody who asks for
any free port, so neither the start of a cluster nor the restart of a killed broker can lose its place to a stranger.
"""

from __future__ import annotations

import socket
import sys


class ReservedPort:
    """One port of a local address, kept until `release`. `port` 0 lets the system choose.

    Raises OSError when a given port is taken.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except BaseException:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            # Elsewhere nobody could listen beside us. A stranger may come in between: it is a matter of milliseconds.
            self._socket.close()

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()
