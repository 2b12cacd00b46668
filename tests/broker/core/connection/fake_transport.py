"""A Transport in memory: takes as many bytes as its window allows, and remembers what it was told."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from raftlog.broker.core.connection.reply import Buffer, FileRange
from raftlog.broker.core.connection.transport import Fault


class Range:
    """A stretch of a file of which byte n is n modulo 251."""

    def __init__(self, position: int, length: int) -> None:
        self.position, self.length = position, length
        self.failure: OSError | None = None

    def fileno(self) -> int:
        return -1

    def failed(self, error: OSError) -> None:
        self.failure = error

    def content(self, start: int) -> bytes:
        return bytes(n % 251 for n in range(self.position + start, self.position + self.length))


class FakeTransport:
    """`window` is how much it takes yet; what `call_soon` was given is in `soon`, `call_later` in `later`."""

    def __init__(self, window: int = 1 << 30) -> None:
        self.window = window
        self.sent = bytearray()
        self.is_reading = True
        self.is_watching = False
        self.soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []
        self.bugs: list[Exception] = []
        self.ended: tuple[str, Fault] | None = None
        self.files_cut = False
        self.disk_fails = False

    def send(self, buffer: Buffer) -> int:
        assert self.ended is None
        taken = min(self.window, len(buffer))
        if not taken:
            raise BlockingIOError
        self.window -= taken
        self.sent += buffer[:taken]
        return taken

    def send_gathered(self, buffers: Sequence[Buffer], *, more: bool) -> int:
        return self.send(b"".join(buffers))

    def send_file(self, file: FileRange, start: int) -> int:
        assert isinstance(file, Range)
        if self.disk_fails:
            raise OSError(errno.EIO, "Input/output error")
        return 0 if self.files_cut else self.send(file.content(start))

    def watch_writable(self, wanted: bool) -> None:
        assert wanted != self.is_watching
        self.is_watching = wanted

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.later.append(callback)

    def bug(self, error: Exception) -> None:
        self.bugs.append(error)

    def close(self, reason: str, fault: Fault) -> None:
        assert self.ended is None
        self.ended = reason, fault

    def pass_time(self) -> None:
        """What was to be called later is due."""
        later, self.later = self.later, []
        for callback in later:
            callback()

    def turn(self) -> None:
        """A turn of the event loop."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()
