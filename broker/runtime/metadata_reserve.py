"""Room that is kept for the metadata log: on a disk that is full it can still be written, and so hears of the topics
that are deleted to make room.
"""

from __future__ import annotations

from typing import Final

from raftlog.broker.ports import Disk
from raftlog.raft.disk import RESERVE_SUFFIX

PIECE_BYTES: Final = 64 << 10
PIECES_MAX: Final = 16
"""1 MiB: some ten thousand changes of partitions, a piece at a time (`raftlog/raft/journal.py`)."""
VOLUME_SHARE: Final = 100
"""Of a small volume, one part in so many."""


class MetadataReserve:
    """Files beside the metadata log that hold nothing. Whoever finds no room there removes one of them."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk

    def fill(self) -> None:
        """Make those that are missing, as far as there is room for them."""
        try:
            total, _ = self._disk.usage(self.directory)
            for number in range(min(PIECES_MAX, total // VOLUME_SHARE // PIECE_BYTES)):
                self._make(f"{self.directory}/{number:02}{RESERVE_SUFFIX}")
        except OSError:
            return  # who needs the disk will tell

    def _make(self, path: str) -> None:
        if self._disk.exists(path):
            return
        descriptor = self._disk.open(path, create=True)
        try:
            self._disk.allocate(descriptor, PIECE_BYTES)
        except OSError:
            self._disk.remove(path)
            raise
        finally:
            self._disk.close(descriptor)
