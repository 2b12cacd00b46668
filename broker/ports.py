"""What the broker asks of the machine it runs on: a clock and a disk."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """Two clocks: the wall's, which may jump, and one that only goes forward."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 (UTC)."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""


class Disk(Protocol):
    """Every file operation of the store. Paths are absolute; positions and lengths are bytes.

    Every method may raise OSError with the errno of the operating system. Descriptors are the operating system's own
    (a reader may hand one to `sendfile`), or, in a test, numbers that only this disk understands.
    """

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing at any position. With `create` an absent file is made, empty."""

    def close(self, descriptor: int) -> None: ...

    def write_at(self, descriptor: int, data: Buffer, position: int, /) -> int:
        """Write at `position`; how many bytes were taken, which may be fewer than given, as with pwrite(2)."""

    def read_at(self, descriptor: int, length: int, position: int, /) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file, as with pread(2) on a regular file."""

    def size(self, descriptor: int, /) -> int: ...

    def truncate(self, descriptor: int, length: int, /) -> None: ...

    def allocate(self, descriptor: int, length: int, /) -> None:
        """Reserve room for `length` bytes from the start; the file grows to that size with zeros."""

    def sync(self, descriptor: int, /) -> None:
        """Return when everything written to the file is on stable storage.

        A failure is EIO whatever its reason (a disk may turn out to be full only now): what was written may be gone.
        """

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory (made, renamed, removed) are on stable storage."""

    def sync_filesystem(self, descriptor: int, /) -> bool:
        """Return when everything that was written to the file system of an open file, names too, is on stable storage.

        False, with nothing done, where that cannot be relied upon. EIO when anything at all could not be written there
        since the descriptor was opened.
        """

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str, *, durable: bool = False) -> None:
        """Make a directory and those above it; no failure when it is there. Until the directory above it is synced, a
        crash may lose it with all that was synced in it; `durable`: that is done when this returns.
        """

    def remove_directory(self, path: str) -> None:
        """Remove a directory of plain files with all that is in it; no failure when it is absent."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name at once, replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file; no failure when it is absent."""

    def exists(self, path: str) -> bool: ...

    def stat(self, path: str) -> tuple[int, int]:
        """(size in bytes, time of the last change in milliseconds since 1970) of a file."""

    def usage(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds the path."""

    def lock(self, path: str) -> int:
        """Make the file and lock it against other processes. BlockingIOError if another one holds it.

        The lock is held until the returned descriptor is closed.
        """
