"""Large requests: of each address one is worked on at a time, so that many take no more memory than one.

Decoded, a request takes some fifty times its bytes. Work on it is a matter of seconds: what
waits for followers or members of a group is no work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftlog.broker.core.connection.connection import Connection


class LargeRequests:
    """Who works on one, and who waits, by address."""

    def __init__(self, call_soon: Callable[..., object]) -> None:
        """`call_soon` calls what it is given, with arguments, in a later turn."""
        self._call_soon = call_soon
        self._busy: set[str] = set()
        # In order; who is there twice would be resumed twice.
        self._waiting: dict[str, dict[Connection, None]] = {}

    def begin(self, connection: Connection) -> bool:
        """Whether it may: if another one of this address is worked on, the connection is resumed afterwards."""
        address = connection.peer_host
        if address in self._busy:
            self._waiting.setdefault(address, {})[connection] = None
            return False
        self._busy.add(address)
        return True

    def end(self, connection: Connection) -> None:
        """The work that began has ended."""
        address = connection.peer_host
        self._busy.discard(address)
        if address in self._waiting:
            self._call_soon(self._resume, address)

    def _resume(self, address: str) -> None:
        while address not in self._busy and (waiting := self._waiting.get(address)):
            connection = next(iter(waiting))
            del waiting[connection]
            if not waiting:
                del self._waiting[address]
            connection.resume()
