"""What a flush has to sync, so that it can be done in a thread while the log goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftlog.broker.store.files import Descriptor

if TYPE_CHECKING:
    from raftlog.broker.store.open_log import OpenLog


class PendingFlush:
    """What must be synced before the offsets below `end_offset` are safe. `sync` may run in a thread of its own."""

    __slots__ = ("_descriptors", "_directories", "_epochs", "_generation", "_opened", "end_offset")

    def __init__(
        self,
        opened: OpenLog,
        end_offset: int,
        descriptors: Sequence[Descriptor],
        directories: Sequence[str],
        epochs: bytes | None,
    ) -> None:
        self._opened = opened
        self._generation = opened.generation
        self.end_offset = end_offset
        self._descriptors = descriptors
        self._directories = directories
        self._epochs = epochs

    def sync(self) -> None:
        """Return when all of it is on stable storage. Raises OSError."""
        disk = self._opened.store.disk
        for descriptor in self._descriptors:
            disk.sync(descriptor.fd)
        if self._epochs is not None:
            self._opened.replace_epochs(self._epochs, self._generation)
        for directory in self._directories:
            disk.sync_directory(directory)

    def is_of(self, opened: OpenLog) -> bool:
        """Whether the log is still the one it was when the ticket was made, and not cut since."""
        return opened is self._opened and opened.generation == self._generation
