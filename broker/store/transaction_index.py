"""The transaction index file of one segment (`.txnindex`): the aborted transactions whose marker is in it."""

from __future__ import annotations

from raftlog.broker.core.log.transactions import AbortedTransaction, decode_entries, encode_entry, trusted
from raftlog.broker.ports import Disk
from raftlog.broker.store.files import read_whole, write_all

TRANSACTION_INDEX_SUFFIX = ".txnindex"


class TransactionIndex:
    """Read when it is first asked; most segments have no such file."""

    __slots__ = ("_disk", "_entries", "_stem", "path")

    def __init__(self, disk: Disk, stem: str, suffix: str, *, new: bool) -> None:
        """`stem`: the path up to the file's kind; `suffix`: what follows its name, as in ".cleaned"."""
        self._disk = disk
        self._stem = stem
        self.path = stem + TRANSACTION_INDEX_SUFFIX + suffix
        self._entries: list[AbortedTransaction] | None = [] if new else None

    @property
    def entries(self) -> list[AbortedTransaction]:
        """In order of the markers. Raises OSError."""
        if self._entries is None:
            try:
                self._entries = decode_entries(read_whole(self._disk, self.path))
            except FileNotFoundError:
                self._entries = []
        return self._entries

    def add(self, transaction: AbortedTransaction) -> None:
        """Write an entry behind the others. Raises OSError."""
        data = encode_entry(transaction)
        fd = self._disk.open(self.path, create=True)
        try:
            write_all(self._disk, fd, data, len(self.entries) * len(data))
        finally:
            self._disk.close(fd)
        self.entries.append(transaction)

    def truncate_to(self, end_offset: int) -> None:
        """Drop the transactions whose marker is at `end_offset` or later, and what is none. Raises OSError."""
        kept = trusted(self.entries, end_offset)
        if len(kept) == len(self.entries):
            return
        fd = self._disk.open(self.path, create=True)
        try:
            self._disk.truncate(fd, sum(len(encode_entry(transaction)) for transaction in kept))
        finally:
            self._disk.close(fd)
        self._entries = kept

    def sync(self) -> None:
        """Return when the entries are on stable storage. Raises OSError."""
        if self._entries:
            fd = self._disk.open(self.path)
            try:
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)

    def rename(self, suffix: str) -> None:
        """Change what follows the file's name. Raises OSError."""
        path = self._stem + TRANSACTION_INDEX_SUFFIX + suffix
        if self._disk.exists(self.path):
            self._disk.rename(self.path, path)
        self.path = path

    def remove(self) -> None:
        """Raises OSError."""
        self._disk.remove(self.path)
