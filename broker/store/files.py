"""Open files of the store under one limit: a broker has more segments than a process may have descriptors.

A descriptor closes when nobody refers to it any more. So a reply that is being sent keeps its segment readable after
the cache has let go of it, and after retention has removed the file.
"""

from __future__ import annotations

import errno
from typing import Final

from raftlog.broker.ports import Buffer, Disk

MAX_OPEN_FILES = 4096
"""How many segment and index files stay open at once. More are opened when they are used, in place of the longest
unused; the limit of the process (ulimit -n) must leave room for connections beside these."""

FULL_DISK_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

WHOLE_READ_BYTES = 1 << 20
STAGED_SUFFIX = ".tmp"
"""Of a file that is to take the place of another one; a restart removes what was left of it."""


class Descriptor:
    """One open file. Closed when the last reference goes. `failure`: why a range of it could not be sent."""

    __slots__ = ("_disk", "failure", "fd")

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self.fd = fd
        self.failure: OSError | None = None

    def read(self, length: int, position: int, /) -> bytes:
        """`length` bytes, or fewer if the file ends. Raises OSError."""
        return read_exactly(self._disk, self.fd, length, position)

    def __del__(self) -> None:
        self._disk.close(self.fd)


class StoredFile:
    """A file that is opened when it is used. `descriptor` is None while it is closed.

    On the hot paths callers look at `descriptor` themselves and set `used`; everybody else calls `open`.
    """

    __slots__ = ("_files", "descriptor", "path", "used")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self._files = files
        self.path = path
        self.descriptor: Descriptor | None = None
        self.used = False

    def open(self, *, create: bool = False) -> Descriptor:
        """The descriptor, opened now if it was not. Raises OSError."""
        self.used = True
        descriptor = self.descriptor
        if descriptor is None:
            disk = self._files.disk
            descriptor = self.descriptor = Descriptor(disk, disk.open(self.path, create=create))
            self._files.opened(self)
        return descriptor

    def close(self) -> None:
        """Let go of the descriptor; it is opened again if it is needed."""
        self.descriptor = None
        self._files.forget(self)

    def rename(self, path: str) -> None:
        """Give the file another name; an open descriptor stays good. Raises OSError."""
        self._files.disk.rename(self.path, path)
        self.path = path


class OpenFiles:
    """The files that are open. At most `limit`; the one to close is chosen by second chance, near least recently used.

    Second chance costs the hot paths one attribute where an ordered dictionary costs a lookup and two moves.
    """

    __slots__ = ("_open", "disk", "limit")

    def __init__(self, disk: Disk, limit: int = MAX_OPEN_FILES) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[StoredFile, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def file(self, path: str) -> StoredFile:
        return StoredFile(self, path)

    def opened(self, file: StoredFile) -> None:
        self._open[file] = None
        if len(self._open) > self.limit:
            self._close_one()

    def forget(self, file: StoredFile) -> None:
        self._open.pop(file, None)

    def _close_one(self) -> None:
        while True:
            file = next(iter(self._open))
            del self._open[file]
            if not file.used:
                file.descriptor = None
                return
            file.used = False
            self._open[file] = None


def write_all(disk: Disk, fd: int, data: Buffer, position: int) -> None:
    """Write all of `data`, however many calls it takes. Raises OSError, then with part of it written perhaps."""
    view = memoryview(data)
    while view:
        written = disk.write_at(fd, view, position)
        view = view[written:]
        position += written


def read_exactly(disk: Disk, fd: int, length: int, position: int) -> bytes:
    """`length` bytes, or fewer if the file ends."""
    part = disk.read_at(fd, min(length, WHOLE_READ_BYTES), position)
    if len(part) == length or not part:
        return part
    parts = []
    while part:
        parts.append(part)
        position += len(part)
        length -= len(part)
        part = disk.read_at(fd, min(length, WHOLE_READ_BYTES), position) if length else b""
    return b"".join(parts)


def read_whole(disk: Disk, path: str) -> bytes:
    """All of a file. Raises OSError, FileNotFoundError if there is none."""
    fd = disk.open(path)
    try:
        return read_exactly(disk, fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def write_new(disk: Disk, path: str, data: Buffer, *, sync: bool, replacing: bool = True) -> None:
    """Write a file under its final name, replacing what it held if it may be there. Not atomic: for files with a
    checksum inside.
    """
    fd = disk.open(path, create=True)
    try:
        if replacing:
            disk.truncate(fd, 0)
        write_all(disk, fd, data, 0)
        if sync:
            disk.sync(fd)
    finally:
        disk.close(fd)


def replace_whole(disk: Disk, path: str, data: Buffer, *, sync: bool) -> None:
    """Replace a file at once: readers, and a broker that starts after a crash, see the old or the new one.

    With `sync` the new one is on stable storage when this returns.
    """
    temporary = path + STAGED_SUFFIX
    write_new(disk, temporary, data, sync=sync)
    disk.rename(temporary, path)
    if sync:
        disk.sync_directory(path.rpartition("/")[0])
