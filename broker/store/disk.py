"""The disk of the operating system (the Disk port of `broker/ports.py`)."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable

from raftlog.broker.ports import Buffer
from raftlog.broker.store.filesystem import sync_filesystem

_MODE = 0o644

FILES_MIN = 8
"""With fewer inodes a volume has no room, however many bytes are free. A partition takes up to eight files."""


def _full_sync(descriptor: int) -> None:
    # On macOS fsync only reaches the drive's own cache; this asks the drive to write it out.
    fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]


def _sync_function() -> Callable[[int], None]:
    # fdatasync leaves out times of change but not a changed size, which is all that a log needs.
    if sys.platform == "darwin":
        return _full_sync
    return os.fdatasync


_sync = _sync_function()


class OsDisk:
    """Each call is one system call where there is one; see `broker/ports.py` for what is promised."""

    __slots__ = ()

    # Bound without a wrapper: these are called for each append and each fetch.
    write_at: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    read_at: Callable[[int, int, int], bytes] = staticmethod(os.pread)
    truncate: Callable[[int, int], None] = staticmethod(os.ftruncate)
    close: Callable[[int], None] = staticmethod(os.close)

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, _MODE)

    def sync(self, descriptor: int, /) -> None:
        try:
            _sync(descriptor)
        except OSError as error:
            raise OSError(errno.EIO, f"sync failed: {error.strerror}") from error

    def size(self, descriptor: int, /) -> int:
        return os.fstat(descriptor).st_size

    def allocate(self, descriptor: int, length: int, /) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, length)
        else:
            os.ftruncate(descriptor, length)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_filesystem(self, descriptor: int, /) -> bool:
        return sync_filesystem(descriptor)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str, *, durable: bool = False) -> None:
        above = os.path.dirname(os.path.abspath(path))
        if durable and not os.path.isdir(above):
            self.make_directory(above, durable=True)
        is_new = not os.path.isdir(path)
        os.makedirs(path, exist_ok=True)
        if durable:
            try:
                self.sync_directory(above)
            except OSError:
                # Whoever made it before may have had more rights above it.
                if is_new:
                    raise

    def remove_directory(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            pass

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def stat(self, path: str) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns // 1_000_000

    def usage(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        has_files = found.f_files == 0 or found.f_favail >= FILES_MIN
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize if has_files else 0

    def lock(self, path: str) -> int:
        descriptor = self.open(path, create=True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
