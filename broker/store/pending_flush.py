"""What a flush has to sync, so that it can be done in a thread while the log goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raftlog.broker.ports import Disk
from raftlog.broker.store.files import Descriptor


class PendingFlush:
    """What must be synced before the offsets below `end_offset` are safe. `sync` may run in a thread of its own.

    `generation` is the log's when the flush was begun: it says nothing of one that was truncated or closed since.
    """

    __slots__ = ("_descriptors", "_directories", "_disk", "_write_epochs", "end_offset", "generation")

    def __init__(
        self,
        disk: Disk,
        generation: object,
        end_offset: int,
        *,
        descriptors: Sequence[Descriptor] = (),
        directories: Sequence[str] = (),
        write_epochs: Callable[[], None] | None = None,
    ) -> None:
        self._disk = disk
        self.generation = generation
        self.end_offset = end_offset
        self._descriptors = descriptors
        self._directories = directories
        self._write_epochs = write_epochs

    def sync(self) -> None:
        """Return when all of it is on stable storage. Raises OSError."""
        for descriptor in self._descriptors:
            self._disk.sync(descriptor.fd)
        if self._write_epochs is not None:
            self._write_epochs()
        for directory in self._directories:
            self._disk.sync_directory(directory)
