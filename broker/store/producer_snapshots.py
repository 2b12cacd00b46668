"""The producer snapshot files of one log (`%020d.snapshot`): what a start need not learn from the batches again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raftlog.broker.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.ports import Disk
from raftlog.broker.store.files import read_whole, write_new
from raftlog.broker.store.names import snapshot_name


class ProducerSnapshots:
    """`offsets`: at which log ends there is a snapshot, oldest first. `removed`: whether there ever was one more."""

    __slots__ = ("_directory", "_disk", "offsets", "removed")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)
        self.removed = False

    @property
    def latest(self) -> int:
        """-1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    def path(self, offset: int) -> str:
        return f"{self._directory}/{snapshot_name(offset)}"

    def read(self, offset: int) -> ProducerStates:
        """Raises OSError, CorruptSnapshot."""
        return decode_snapshot(read_whole(self._disk, self.path(offset)), offset)

    def write(self, offset: int, producers: ProducerStates) -> str:
        """Add a snapshot above all others, to be synced later; its path. Raises OSError."""
        path = self.path(offset)
        write_new(self._disk, path, encode_snapshot(producers), sync=False)
        self.offsets.append(offset)
        return path

    def remove(self, chosen: Callable[[int], bool]) -> None:
        """Remove those whose offset is `chosen`. Raises OSError."""
        for offset in [offset for offset in self.offsets if chosen(offset)]:
            self._disk.remove(self.path(offset))
            self.offsets.remove(offset)
            self.removed = True
