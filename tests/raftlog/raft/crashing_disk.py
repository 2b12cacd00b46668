"""A disk in memory that can crash at any operation and forgets what was not synced, in the ways real disks do.

After a crash a file keeps what was synced and any part of the rest: none, a prefix, or all of it with a hole of
zeros; names that were made, replaced or removed since the directory was synced are there or not, each on its own.
"""

from __future__ import annotations

import errno
import random
import threading
from dataclasses import dataclass, field


class Crashed(Exception):
    """The machine lost its power in the middle of an operation."""


@dataclass
class _File:
    durable: bytes = b""
    volatile: bytes = b""


@dataclass
class CrashingDisk:
    """raftlog.raft.disk.Disk. `crash_at`: the number of the operation at which the power goes."""

    rng: random.Random
    crash_at: int | None = None
    fail: dict[str, int] = field(default_factory=dict)
    operations: int = 0
    names: dict[str, _File] = field(default_factory=dict)
    durable_names: dict[str, _File] = field(default_factory=dict)
    descriptors: dict[int, _File] = field(default_factory=dict)
    locked: set[str] = field(default_factory=set)
    is_open: set[int] = field(default_factory=set)

    def reboot(self) -> CrashingDisk:
        """The disk as the next process finds it."""
        after = CrashingDisk(self.rng)
        for name in sorted({*self.names, *self.durable_names}):
            old, new = self.durable_names.get(name), self.names.get(name)
            file = self.rng.choice([old, new]) if old is not new else new
            if file is not None:
                content = self._survives(file)
                after.names[name] = after.durable_names[name] = _File(content, content)
        return after

    def _survives(self, file: _File) -> bytes:
        if not file.volatile.startswith(file.durable):
            return self.rng.choice([file.durable, file.volatile])  # a truncation that was not synced
        rest = file.volatile[len(file.durable) :]
        kept = rest[: self.rng.randint(0, len(rest))]
        if kept and self.rng.random() < 0.3:
            hole = self.rng.randrange(len(kept))
            size = self.rng.randint(1, 16)
            kept = kept[:hole] + bytes(len(kept[hole : hole + size])) + kept[hole + size :]
        return file.durable + kept

    def _step(self, operation: str) -> None:
        if self.fail.get(operation, 0) > 0:
            self.fail[operation] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self.operations += 1
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise Crashed

    # -- Disk ----------------------------------------------------------------------------------------

    def lock(self, path: str) -> int:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        self.locked.add(path)
        return -1

    def make_directory(self, path: str, *, durable: bool = False) -> None:
        pass

    def list_directory(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.names)

    def open(self, path: str, *, create: bool = False) -> int:
        if create:
            self._step("open")
            self.names.setdefault(path, _File())
        descriptor = len(self.descriptors)
        self.descriptors[descriptor] = self.names[path]
        self.is_open.add(descriptor)
        return descriptor

    def read_at(self, descriptor: int, length: int, position: int) -> bytes:
        return self.descriptors[descriptor].volatile[position : position + length]

    def size(self, descriptor: int) -> int:
        return len(self.descriptors[descriptor].volatile)

    def write_at(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        file = self.descriptors[descriptor]
        assert position == len(file.volatile), "the journal writes at the end"
        try:
            self._step("write")
        except (Crashed, OSError):
            file.volatile += bytes(data[: self.rng.randint(0, len(data))])
            raise
        file.volatile += bytes(data)
        return len(data)

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        file = self.descriptors[descriptor]
        file.durable = file.volatile

    def truncate(self, descriptor: int, length: int) -> None:
        self._step("truncate")
        file = self.descriptors[descriptor]
        file.volatile = file.volatile[:length]

    def close(self, descriptor: int) -> None:
        self.is_open.discard(descriptor)

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        self.names[new] = self.names.pop(old)

    def remove(self, path: str) -> None:
        if path in self.names:
            self._step("remove")
            del self.names[path]

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory")
        self.durable_names = dict(self.names)


class StandingStill(CrashingDisk):
    """A disk whose syncs wait until it goes on."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.stands_still = False
        self.is_standing = threading.Event()
        self.goes_on = threading.Event()

    def sync(self, descriptor: int) -> None:
        if self.stands_still:
            self.is_standing.set()
            self.goes_on.wait(10)
        super().sync(descriptor)
