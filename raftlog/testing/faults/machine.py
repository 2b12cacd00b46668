"""The disk and the clock of a broker that faults may happen to: the broker's ports (`broker/ports.py`)."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from random import Random

from raftlog.broker.platform import SystemClock
from raftlog.broker.ports import Buffer
from raftlog.broker.store.disk import OsDisk
from raftlog.testing.faults.spec import FaultSpec


class FaultyClock(SystemClock):
    """The wall clock is `offset_ms` off, and goes `rate` times as fast since it was set."""

    __slots__ = ("_since", "offset_ms", "on_read", "rate")

    def __init__(self) -> None:
        self.offset_ms = 0.0
        self.rate = 1.0
        self._since = 0.0
        self.on_read: Callable[[], None] | None = None

    def set(self, offset_ms: float, rate: float, on_read: Callable[[], None] | None) -> None:
        """`on_read`: called when the clock is read for the first time from now on."""
        self.offset_ms, self.rate, self.on_read = offset_ms, rate, on_read
        self._since = time.time() * 1000

    def now_ms(self) -> int:  # type: ignore[override]
        """See Clock."""
        now = time.time_ns() // 1_000_000
        if not self.offset_ms and self.rate == 1.0:
            return now
        if self.on_read is not None:
            on_read, self.on_read = self.on_read, None
            on_read()
        return int(now + self.offset_ms + (self.rate - 1.0) * (now - self._since))


NEW_FILE_BYTES = 4096
"""What a new file takes of a disk."""


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


class _File:
    """What a power cut would leave of a file: `durable` bytes of it, with `undo` put back where it was overwritten."""

    __slots__ = ("durable", "undo")

    def __init__(self, durable: int) -> None:
        self.durable = durable
        self.undo: list[tuple[int, bytes]] = []


class FaultyDisk(OsDisk):
    """The disk of the system, that fails when told to, and knows what of its files was synced.

    After a power cut names are as they were; contents are as they were when each file was last synced.
    """

    def __init__(self, happened: Callable[[FaultSpec, int, float], None]) -> None:
        """`happened(fault, bytes, ms)` is called whenever a fault has had an effect, from any thread."""
        self._happened = happened
        self._faults: dict[str, list[FaultSpec]] = {}
        self._paths: dict[int, str] = {}
        self._files: dict[str, _File] = {}
        # What was freed since the disk is full, as far as nobody has used it.
        self._freed_bytes = 0

    def install(self, specs: Sequence[FaultSpec]) -> None:
        """These faults are in force. Those of a kind happen together: slow ones add up."""
        was_full = "full-disk" in self._faults
        found: dict[str, list[FaultSpec]] = {}
        for spec in specs:
            found.setdefault(spec.kind, []).append(spec)
        self._faults = found
        if not was_full:
            self._freed_bytes = 0

    def _fails(self, kind: str, number: int, size: int = 0) -> None:
        faults = self._faults.get(kind, ())
        for fault in faults:
            self._happened(fault, size, 0.0)
        if faults:
            raise OSError(number, os.strerror(number))

    def _slowed(self) -> None:
        for slow in self._faults.get("slow-disk", ()):
            time.sleep(slow.seconds)
            self._happened(slow, 0, slow.seconds * 1000)

    def _grow(self, size: int) -> None:
        if "full-disk" in self._faults:
            if size > self._freed_bytes:
                self._fails("full-disk", errno.ENOSPC, size)
            self._freed_bytes -= size

    # -- files -------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        """See Disk."""
        if create and not os.path.exists(path):
            self._grow(NEW_FILE_BYTES)
            self._files[path] = _File(0)
        descriptor = super().open(path, create=create)
        self._paths[descriptor] = path
        if path not in self._files:
            self._files[path] = _File(os.fstat(descriptor).st_size)
        return descriptor

    def close(self, descriptor: int) -> None:
        """See Disk."""
        self._paths.pop(descriptor, None)
        os.close(descriptor)

    def write_at(self, descriptor: int, data: Buffer, position: int, /) -> int:
        """See Disk."""
        if self._faults:
            self._grow(max(0, position + len(data) - os.fstat(descriptor).st_size))
        file = self._files.get(self._paths.get(descriptor, ""))
        if file is not None and position < file.durable:
            # In the place of what was synced: that is what a power cut would leave.
            file.undo.append((position, os.pread(descriptor, min(len(data), file.durable - position), position)))
        return os.pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, length: int, /) -> None:
        """See Disk."""
        self._freed_bytes += max(0, os.fstat(descriptor).st_size - length)
        os.ftruncate(descriptor, length)
        file = self._files.get(self._paths.get(descriptor, ""))
        if file is not None:
            file.durable = min(file.durable, length)

    def allocate(self, descriptor: int, length: int, /) -> None:
        """See Disk."""
        self._grow(max(0, length - os.fstat(descriptor).st_size))
        super().allocate(descriptor, length)

    def sync(self, descriptor: int, /) -> None:
        """See Disk."""
        self._fails("sync-error", errno.EIO)
        self._slowed()
        size = os.fstat(descriptor).st_size
        super().sync(descriptor)
        self._synced(self._paths.get(descriptor, ""), size)

    def sync_filesystem(self, descriptor: int, /) -> bool:
        """See Disk."""
        self._fails("sync-error", errno.EIO)
        self._slowed()
        sizes = {path: os.path.getsize(path) for path in list(self._files) if os.path.exists(path)}
        if not super().sync_filesystem(descriptor):
            return False
        for path, size in sizes.items():
            self._synced(path, size)
        return True

    def _synced(self, path: str, size: int) -> None:
        file = self._files.get(path)
        if file is not None:
            file.durable = size
            file.undo.clear()

    def rename(self, old: str, new: str) -> None:
        """See Disk."""
        freed = _size_of(new)
        super().rename(old, new)
        self._freed_bytes += freed
        # A copy: files are opened in other threads meanwhile.
        moved = {path: file for path, file in self._files.copy().items() if path == old or path.startswith(old + "/")}
        for path, file in moved.items():
            self._files.pop(path, None)
            self._files[new + path.removeprefix(old)] = file
        for descriptor, path in self._paths.copy().items():
            if path in moved:
                self._paths[descriptor] = new + path.removeprefix(old)

    def remove(self, path: str) -> None:
        """See Disk."""
        freed = _size_of(path)
        super().remove(path)
        self._freed_bytes += freed
        self._files.pop(path, None)

    def remove_directory(self, path: str) -> None:
        """See Disk."""
        freed = sum(_size_of(f"{path}/{name}") for name in self.list_directory(path)) if self.exists(path) else 0
        super().remove_directory(path)
        self._freed_bytes += freed
        for gone in [each for each in self._files.copy() if each.startswith(path + "/")]:
            self._files.pop(gone, None)

    # -- a power cut -------------------------------------------------------------------------------

    def lose_what_was_not_synced(self, random: Random | None) -> int:
        """How many bytes are gone. `random`: a part of what was appended last to each file has survived."""
        lost = 0
        for path, file in sorted(self._files.copy().items()):
            try:
                descriptor = os.open(path, os.O_RDWR)
            except FileNotFoundError:
                continue
            size = os.fstat(descriptor).st_size
            for position, before in reversed(file.undo):
                lost += len(before)
                os.pwrite(descriptor, before, position)
            if size > file.durable:
                kept = file.durable if random is None else random.randint(file.durable, size - 1)
                lost += size - kept
                os.ftruncate(descriptor, kept)
            os.close(descriptor)
        return lost
