"""The transaction index file of one segment (`.txnindex`): the aborted transactions whose marker is in it."""

from __future__ import annotations

from raftlog.broker.core.log.results import LogDamaged
from raftlog.broker.core.log.transactions import ENTRY, AbortedTransaction, decode_entries, encode_entry, trusted
from raftlog.broker.ports import Disk
from raftlog.broker.store.files import read_whole, write_all

TRANSACTION_INDEX_SUFFIX = ".txnindex"
_NONE = 2**63


class TransactionIndex:
    """Read when it is first asked; most segments have no such file."""

    __slots__ = ("_disk", "_entries", "_file_bytes", "_first_offset", "_stem", "path", "unchecked")

    def __init__(self, disk: Disk, stem: str, suffix: str, *, new: bool) -> None:
        """`stem`: the path up to the file's kind; `suffix`: what follows its name, as in ".cleaned"."""
        self._disk = disk
        self._stem = stem
        self.path = stem + TRANSACTION_INDEX_SUFFIX + suffix
        self._entries: list[AbortedTransaction] | None = [] if new else None
        self._file_bytes = 0
        self._first_offset: int | None = None
        # Entries that were in the file, and that nobody has compared with the log; None until somebody begins to.
        self.unchecked: set[AbortedTransaction] | None = set() if new else None

    @property
    def entries(self) -> list[AbortedTransaction]:
        """In order of the markers. Raises OSError."""
        if self._entries is None:
            try:
                data = read_whole(self._disk, self.path)
            except FileNotFoundError:
                data = b""
            self._file_bytes = len(data)
            self._entries = decode_entries(data)
        return self._entries

    @property
    def has_more(self) -> bool:
        """Whether the file has whole entries that are none. Raises OSError."""
        return len(self.entries) < self._file_bytes // ENTRY.size

    @property
    def first_offset(self) -> int:
        """Where the first of these transactions began; beyond all offsets if there is none. Raises OSError."""
        if self._first_offset is None:
            self._first_offset = min((each.first_offset for each in self.entries), default=_NONE)
        return self._first_offset

    def add(self, transaction: AbortedTransaction) -> None:
        """Write an entry behind the others. Raises OSError."""
        data = encode_entry(transaction)
        fd = self._disk.open(self.path, create=True)
        try:
            write_all(self._disk, fd, data, len(self.entries) * len(data))
        finally:
            self._disk.close(fd)
        self._first_offset = min(self.first_offset, transaction.first_offset)
        self.entries.append(transaction)
        self._file_bytes = max(self._file_bytes, len(self.entries) * len(data))

    def truncate_to(self, end_offset: int) -> None:
        """Drop the transactions whose marker is at `end_offset` or later, and what is none. Raises OSError, and
        LogDamaged if others are behind that.
        """
        kept = trusted(self.entries, end_offset)
        if any(each.first_offset < each.last_offset < end_offset for each in self.entries[len(kept) + 1 :]):
            raise self.damaged(f"{self.entries[len(kept)]} is out of order, and what is behind it is not")
        size = len(kept) * ENTRY.size
        if self._file_bytes == size:
            return
        fd = self._disk.open(self.path, create=True)
        try:
            self._disk.truncate(fd, size)
        finally:
            self._disk.close(fd)
        self._entries, self._file_bytes, self._first_offset = kept, size, None

    def damaged(self, what: str) -> LogDamaged:
        """The error that takes the partition offline."""
        return LogDamaged(
            f"{self.path}: {what}. It says which transactions were aborted, and readers of committed records would be"
            " told wrong. Restore the file from a replica or a backup, or stop the broker and move the partition's"
            " directory away to have it copied from its leader."
        )

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
