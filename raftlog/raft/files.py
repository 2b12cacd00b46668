"""The file operations that the journal needs, as one object that a test or a simulator can replace."""

from __future__ import annotations

import fcntl
import os
from typing import Protocol


class Files(Protocol):
    """Everything that the journal does to a disk. All of them raise OSError."""

    def lock(self, path: str) -> int:
        """A descriptor that holds the lock file for this process alone; raises BlockingIOError when another
        has it.
        """

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; nothing happens when it is there."""

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def read(self, path: str) -> bytes:
        """The whole file."""

    def open_append(self, path: str) -> int:
        """A descriptor that writes at the end of the file, which is created when it is missing."""

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of `data`."""

    def sync(self, descriptor: int) -> None:
        """Return when everything written to the descriptor is on the disk."""

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to `size` bytes and return when that is on the disk."""

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""

    def rename(self, source: str, target: str) -> None:
        """Put one file in the place of another, atomically."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on the disk."""


class OsFiles:
    """The operating system's files."""

    def lock(self, path: str) -> int:
        """See Files."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def make_directory(self, path: str) -> None:
        """See Files."""
        os.makedirs(path, exist_ok=True)

    def list_directory(self, path: str) -> list[str]:
        """See Files."""
        return sorted(os.listdir(path))

    def read(self, path: str) -> bytes:
        """See Files."""
        with open(path, "rb") as file:
            return file.read()

    def open_append(self, path: str) -> int:
        """See Files."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, data: bytes) -> None:
        """See Files."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """See Files."""
        os.fsync(descriptor)

    def truncate(self, path: str, size: int) -> None:
        """See Files."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """See Files."""
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """See Files."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """See Files."""
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        """See Files."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def join(*parts: str) -> str:
    """A path below a directory."""
    return os.path.join(*parts)
