"""What a connection needs of whatever carries its bytes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeGuard

from raftlog.broker.core.connection.reply import Buffer, FileRange


class Fault(Enum):
    """Whose fault it is that a connection ends."""

    NOBODYS = "nobody's"
    THE_PEERS = "the peer's"
    OURS = "ours"


_UNREACHABLE: Final = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN))


def is_unreachable(error: Exception) -> TypeGuard[OSError]:
    """The peer's machine or network is gone: the kernel gives up a connection with one of these instead of a time-out
    when it knows why, and Python has no class for them."""
    return isinstance(error, OSError) and error.errno in _UNREACHABLE


class Transport(Protocol):
    """What carries a connection's bytes. Nothing waits: who cannot send now raises BlockingIOError."""

    def send(self, buffer: Buffer, /) -> int:
        """How many bytes were taken, from the beginning. Raises OSError when the peer is gone."""

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        """The same with several buffers; `more`: a file range follows at once."""

    def send_file(self, file: FileRange, start: int) -> int:
        """The same with a range of a file, from its byte `start` on; 0 when the file ends before the range."""

    def watch_writable(self, wanted: bool) -> None:
        """Call `Connection.writable` whenever something can be sent, or no longer."""

    def pause_reading(self) -> None:
        """Leave what comes in where it is."""

    def resume_reading(self) -> None:
        """Read again."""

    def end_when_silent(self) -> None:
        """End the connection when the other machine acknowledges nothing any more."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call it in a later turn."""

    def bug(self, error: Exception) -> None:
        """A fault of ours came up in serving this connection."""

    def close(self, reason: str, fault: Fault) -> None:
        """Drop the connection at once. Nothing else is called afterwards."""


class _Closed:
    """The transport of a connection that has ended: takes everything, and sends nothing."""

    def send(self, buffer: Buffer) -> int:
        return len(buffer)

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        return sum(len(buffer) for buffer in buffers)

    def send_file(self, file: FileRange, start: int) -> int:
        return file.length - start

    def watch_writable(self, wanted: bool) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def end_when_silent(self) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def bug(self, error: Exception) -> None: ...

    def close(self, reason: str, fault: Fault) -> None: ...


CLOSED = _Closed()
