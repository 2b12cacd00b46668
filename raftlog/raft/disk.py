"""What the journal asks of a disk, and files as a whole. The broker's `Disk` port (`broker/ports.py`) has all of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

TEMPORARY_SUFFIX = ".tmp"
"""Of a file that is to take the place of another one; a restart removes what was left of it."""

RESERVE_SUFFIX = ".reserve"
"""Of a file that holds nothing but room, for when the disk is full: removing it makes some."""


class Disk(Protocol):
    """The part of `broker/ports.py`'s Disk that is used here; see there. All of it raises OSError."""

    def open(self, path: str, *, create: bool = False) -> int: ...

    def close(self, descriptor: int) -> None: ...

    def write_at(self, descriptor: int, data: bytes | memoryview, position: int, /) -> int: ...

    def read_at(self, descriptor: int, length: int, position: int, /) -> bytes: ...

    def size(self, descriptor: int, /) -> int: ...

    def truncate(self, descriptor: int, length: int, /) -> None: ...

    def sync(self, descriptor: int, /) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def list_directory(self, path: str) -> list[str]: ...

    def make_directory(self, path: str, *, durable: bool = False) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def lock(self, path: str) -> int: ...


def read_file(disk: Disk, path: str) -> bytes:
    """The whole file."""
    descriptor = disk.open(path)
    try:
        data = b""
        while part := disk.read_at(descriptor, disk.size(descriptor) - len(data), len(data)):
            data = data + part if data else part
        return data
    finally:
        disk.close(descriptor)


def append(disk: Disk, descriptor: int, data: bytes) -> None:
    """Write all of `data` at the end of a file; when that fails, a part of it may be there."""
    position, rest = disk.size(descriptor), memoryview(data)
    while rest:
        written = disk.write_at(descriptor, rest, position)
        position, rest = position + written, rest[written:]


def truncate_file(disk: Disk, path: str, size: int) -> None:
    """Cut the file to `size` bytes and return when that is on the disk."""
    descriptor = disk.open(path)
    try:
        disk.truncate(descriptor, size)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def replace_file(disk: Disk, path: str, pieces: Iterable[bytes]) -> None:
    """Put a file in the place of another one at once, and return when that is on the disk. On failure the old one is as
    it was.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        descriptor = disk.open(temporary, create=True)
        try:
            disk.truncate(descriptor, 0)  # what an earlier one left that failed
            for piece in pieces:
                append(disk, descriptor, piece)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.remove(temporary)  # on a full disk it would keep the room that others need
        raise
    disk.sync_directory(path.rpartition("/")[0])
