"""The leader-epoch-checkpoint of one log: written with a flush, when epochs that have records have changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock

from raftlog.broker.core.log.checkpoint_text import format_epochs
from raftlog.broker.core.log.leader_epochs import LeaderEpochs
from raftlog.broker.ports import Disk
from raftlog.broker.store.files import STAGED_SUFFIX, replace_whole, write_new
from raftlog.broker.store.names import LEADER_EPOCHS


class LeaderEpochFile:
    """Writes are numbered: one that waits for a thread does nothing once a later one was done, or the file closed."""

    __slots__ = ("_closed", "_disk", "_epochs", "_lock", "_number", "_path", "_written")

    def __init__(self, disk: Disk, directory: str, epochs: LeaderEpochs) -> None:
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCHS}"
        self._epochs = epochs
        self._lock = Lock()
        self._number = self._written = 0
        self._closed = False

    def write(self, log_end_offset: int) -> None:
        """Bring the epochs of a log that ends there to stable storage. Raises OSError."""
        self._prepare(log_end_offset)()

    def prepare_write(self, log_end_offset: int) -> Callable[[], None] | None:
        """As `write`, to be done in a thread perhaps; None if nothing has changed."""
        return self._prepare(log_end_offset) if self._epochs.differ_from_file(log_end_offset) else None

    def _prepare(self, log_end_offset: int) -> Callable[[], None]:
        self._number += 1
        return partial(self._replace, self._number, format_epochs(self._epochs.save(log_end_offset)).encode())

    def _replace(self, number: int, data: bytes) -> None:
        with self._lock:
            if number > self._written and not self._closed:
                replace_whole(self._disk, self._path, data, sync=True)
                self._written = number

    def stage(self, log_end_offset: int) -> bool:
        """Write the epochs beside their file, not synced, if they have changed; whether they have. Raises OSError."""
        differ = self._epochs.differ_from_file(log_end_offset)
        if differ:
            data = format_epochs(self._epochs.with_records(log_end_offset)).encode()
            write_new(self._disk, self._path + STAGED_SUFFIX, data, sync=False)
        return differ

    def take_staged(self, log_end_offset: int) -> None:
        """Put what was staged, and synced since, in the place of the file. Raises OSError."""
        self._disk.rename(self._path + STAGED_SUFFIX, self._path)
        self._epochs.save(log_end_offset)

    def close(self) -> None:
        """A write that is under way is waited for, a later one does nothing: the directory may be gone."""
        with self._lock:
            self._closed = True
