"""One index file of a segment: sparse entries that rise in key and value, searched by key.

Knows which entries are in the file and which ones still wait in memory. Refuses to know what keys and values mean
(`broker/core/log/index.py`) and when an entry is due.

Entries are written in blocks, when the log is flushed or rolled, and not one by one: after a crash they are made anew
from the batches above the recovery point, so nothing is lost and an append costs no second system call.
"""

from __future__ import annotations

from struct import Struct

from raftlog.broker.core.log.index import OFFSET_ENTRY, TIME_ENTRY, Entry, floor_entry, valid_prefix
from raftlog.broker.ports import Disk
from raftlog.broker.store.files import OpenFiles, read_exactly, write_all

WAITING_BYTES = 4096
"""Entries waiting in memory are written when they fill a page."""
SEARCH_BLOCK = 256
"""Once this many entries are left to search they are read at once."""

UNKNOWN = -1


class IndexFile:
    """`count` entries, of which `written` are in the file and the others in `_waiting`."""

    __slots__ = ("_disk", "_last", "_waiting", "_written", "file", "layout")

    def __init__(self, disk: Disk, files: OpenFiles, path: str, layout: Struct, *, new: bool) -> None:
        self._disk = disk
        self.file = files.file(path)
        self.layout = layout
        self._written = 0 if new else UNKNOWN
        self._waiting = bytearray()
        self._last: Entry | None = None

    @property
    def written(self) -> int:
        """Entries in the file, learned from its size when first asked."""
        if self._written < 0:
            try:
                size, _ = self._disk.stat(self.file.path)
            except FileNotFoundError:
                size = 0
            self._written = size // self.layout.size
        return self._written

    @property
    def count(self) -> int:
        return self.written + len(self._waiting) // self.layout.size

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self.count * self.layout.size

    def append(self, key: int, value: int) -> None:
        """Add an entry; the caller keeps keys and values rising. Never fails: entries that cannot be written wait."""
        self._waiting += self.layout.pack(key, value)
        self._last = (key, value)
        if len(self._waiting) % WAITING_BYTES < self.layout.size:
            try:
                self.write_out()
            except OSError:
                # The batch is in the log already. A disk that is full or broken is reported by the next flush.
                pass

    def write_out(self) -> None:
        """Bring the waiting entries into the file, made if it is absent. Raises OSError and keeps them waiting."""
        fd = self.file.open(create=True).fd
        if self._waiting:
            write_all(self._disk, fd, self._waiting, self.written * self.layout.size)
            self._written = self.count
            self._waiting.clear()

    def sync(self) -> None:
        self.write_out()
        self._disk.sync(self.file.open().fd)

    def entry(self, number: int) -> Entry:
        """Entry by number, from 0."""
        size = self.layout.size
        written = self.written
        if number >= written:
            key, value = self.layout.unpack_from(self._waiting, (number - written) * size)
        else:
            key, value = self.layout.unpack(self._read(number, 1))
        return key, value

    def last(self) -> Entry | None:
        """The last entry; None if there is none."""
        if self._last is None and self.count:
            self._last = self.entry(self.count - 1)
        return self._last

    def floor(self, key: int) -> Entry | None:
        """The last entry whose key is `key` or less; None if there is none. Raises OSError."""
        number = self.count_up_to(key)
        return self.entry(number - 1) if number else None

    def count_up_to(self, key: int) -> int:
        """How many entries have a key of `key` or less. Raises OSError."""
        layout, written = self.layout, self.written
        number = floor_entry(self._waiting, layout, key)
        if number >= 0:
            return written + number + 1
        low, high = 0, written
        while high - low > SEARCH_BLOCK:
            middle = (low + high) >> 1
            if self.entry(middle)[0] <= key:
                low = middle
            else:
                high = middle
        block = self._read(low, high - low) if high > low else b""
        return low + floor_entry(block, layout, key) + 1

    def keep(self, count: int) -> None:
        """Drop all entries behind the first `count`; in the file at once. Raises OSError."""
        self.write_out()
        if count < self.written:
            self._disk.truncate(self.file.open().fd, count * self.layout.size)
            self._written = count
        self._last = None

    def keep_trusted(self, *, key_end: int, value_end: int) -> int:
        """Drop what cannot be right after a crash and what is not below the ends; how many entries are left."""
        kept = valid_prefix(self.read_all(), self.layout, key_end=key_end, value_end=value_end)
        self.keep(kept)
        return kept

    def read_all(self) -> bytes:
        """All entries as bytes; those of the file only up to its last whole entry."""
        return self._read(0, self.written) + bytes(self._waiting)

    def _read(self, number: int, count: int) -> bytes:
        if not self.file.descriptor and not count:
            return b""
        size = self.layout.size
        return read_exactly(self._disk, self.file.open().fd, count * size, number * size)

    def close(self) -> None:
        self.file.close()


def offset_index(disk: Disk, files: OpenFiles, path: str, *, new: bool) -> IndexFile:
    """Key: relative last offset of a batch; value: its position."""
    return IndexFile(disk, files, path, OFFSET_ENTRY, new=new)


def time_index(disk: Disk, files: OpenFiles, path: str, *, new: bool) -> IndexFile:
    """Key: a timestamp; value: relative last offset of the batch that brought it."""
    return IndexFile(disk, files, path, TIME_ENTRY, new=new)
