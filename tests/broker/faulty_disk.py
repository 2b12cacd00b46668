"""A disk in memory that crashes, tears, loses, refuses and counts: the Disk port for tests of the store.

Knows what the operating system has in its cache and what has reached the platter. Refuses to know what is in a file.

Two ways to die: `kill` (the process is gone, its writes are not) and `crash` (the machine is gone: of what was not
synced, any part may have reached the platter, in any order, torn in the middle). Names have a life of their own: a file
that was synced is lost if the directory was not. Within a directory names reach the platter in order, between
directories and files there is no order.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from random import Random

SECTOR = 512


class PowerCut(BaseException):
    """Raised in the middle of an operation when the countdown ends: nothing after it happens."""


@dataclass(eq=False)
class MemoryFile:
    """`content` is what readers see, `durable` what a crash leaves; `pending` leads from one to the other."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    changed_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        _put(self.content, position, data)
        self.pending.append((position, data))

    def truncate(self, length: int) -> None:
        _cut(self.content, length)
        self.pending.append((length, None))

    def sync(self) -> None:
        self.durable = bytearray(self.content)
        self.pending.clear()


def _put(target: bytearray, position: int, data: bytes) -> None:
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _cut(target: bytearray, length: int) -> None:
    if length < len(target):
        del target[length:]
    else:
        target.extend(bytes(length - len(target)))


class FaultyDisk:
    """All paths live in memory. `bytes_read` and `operations` only grow; faults are set by the test.

    `full`: new files, reservations and, after half of it, writes that make a file grow raise ENOSPC. `failing`:
    operations ("write", "sync",
    "read", "sync_directory", "rename", "open") that raise EIO, by the part of the path that they must be about.
    `countdown`: so many more changes happen; the next one is a PowerCut, with a write done in part.
    """

    def __init__(self) -> None:
        self.names: dict[str, MemoryFile] = {}
        self.directories: set[str] = {"/"}
        self._durable_names: dict[str, MemoryFile] = {}
        # What happened in which directory, in order; a rename is one step.
        self._name_changes: list[tuple[str, dict[str, MemoryFile | None]]] = []
        self._open: dict[int, tuple[MemoryFile, str]] = {}
        self._next = 1000
        self.bytes_read = 0
        self.operations = 0
        self.full = False
        self.failing: dict[str, str] = {}
        self.countdown: int | None = None
        self.now_ms = 0

    # Faults ------------------------------------------------------------------------------------------

    def _change(self) -> bool:
        """Count a change; True if the power goes in the middle of it."""
        self.operations += 1
        if self.countdown is None:
            return False
        if self.countdown <= 0:
            return True
        self.countdown -= 1
        return False

    def _refuse(self, operation: str, path: str) -> None:
        part = self.failing.get(operation)
        if part is not None and part in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def kill(self) -> None:
        """The process dies: descriptors are gone, everything that was written stays."""
        self._open.clear()
        self.countdown = None

    def crash(self, random: Random) -> None:
        """The machine dies. Afterwards everything is as it is on the platter."""
        survivors = self._surviving_names(random)
        for file in {id(file): file for file in survivors.values()}.values():
            _settle(file, random)
        self.names = survivors
        self._durable_names = dict(survivors)
        self._name_changes.clear()
        self.kill()

    def _surviving_names(self, random: Random) -> dict[str, MemoryFile]:
        names = dict(self._durable_names)
        directories = sorted({directory for directory, _ in self._name_changes})
        kept = {d: random.randint(0, sum(d == other for other, _ in self._name_changes)) for d in directories}
        for directory, change in self._name_changes:
            if kept[directory] > 0:
                kept[directory] -= 1
                _rename(names, change)
        return names

    # The Disk port -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        self._refuse("open", path)
        file = self.names.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._refuse_growth(path)
            if self._change():
                raise PowerCut
            file = self._name(path, MemoryFile(changed_ms=self.now_ms))
        self._next += 1
        self._open[self._next] = (file, path)
        return self._next

    def _name(self, path: str, file: MemoryFile) -> MemoryFile:
        self._rename(path, {path: file})
        return file

    def _rename(self, path: str, change: dict[str, MemoryFile | None]) -> None:
        _rename(self.names, change)
        self._name_changes.append((path.rpartition("/")[0], change))

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def write_at(self, descriptor: int, data: bytes | bytearray | memoryview, position: int, /) -> int:
        file, path = self._open[descriptor]
        self._refuse("write", path)
        taken = bytes(data)
        if self._change():
            file.write(position, taken[: len(taken) // 2])
            raise PowerCut
        if self.full and position + len(taken) > len(file.content):
            file.write(position, taken[: len(taken) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        file.write(position, taken)
        file.changed_ms = self.now_ms
        return len(taken)

    def read_at(self, descriptor: int, length: int, position: int, /) -> bytes:
        file, path = self._open[descriptor]
        self._refuse("read", path)
        data = bytes(file.content[position : position + length])
        self.bytes_read += len(data)
        return data

    def size(self, descriptor: int, /) -> int:
        return len(self._open[descriptor][0].content)

    def truncate(self, descriptor: int, length: int, /) -> None:
        if self._change():
            raise PowerCut
        self._open[descriptor][0].truncate(length)

    def allocate(self, descriptor: int, length: int, /) -> None:
        file, path = self._open[descriptor]
        if length > len(file.content):
            self._refuse_growth(path)
            self.truncate(descriptor, length)

    def _refuse_growth(self, path: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def sync(self, descriptor: int, /) -> None:
        if self._change():
            raise PowerCut
        file, path = self._open[descriptor]
        part = self.failing.get("sync")
        if part is not None and part in path:
            # As Linux does: the error is told once, and the pages count as clean though they were lost.
            file.pending.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        file.sync()

    def sync_directory(self, path: str) -> None:
        self._refuse("sync_directory", path)
        if self._change():
            raise PowerCut
        waiting = []
        for directory, change in self._name_changes:
            if directory == path:
                _rename(self._durable_names, change)
            else:
                waiting.append((directory, change))
        self._name_changes = waiting

    def list_directory(self, path: str) -> list[str]:
        prefix = path + "/"
        inside = [name[len(prefix) :] for name in [*self.names, *self.directories] if name.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in inside if name})

    def make_directory(self, path: str) -> None:
        self.directories.add(path)

    def remove_directory(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            self.remove(name)
        self.directories.discard(path)

    def rename(self, old: str, new: str) -> None:
        self._refuse("rename", old)
        if self._change():
            raise PowerCut
        if old in self.directories:
            self.directories.remove(old)
            self.directories.add(new)
        change: dict[str, MemoryFile | None] = {}
        for name in list(self.names):
            if name == old or name.startswith(old + "/"):
                change[name] = None
                change[new + name[len(old) :]] = self.names[name]
        if not change and new not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._rename(new, change)

    def remove(self, path: str) -> None:
        if path in self.names:
            if self._change():
                raise PowerCut
            self._rename(path, {path: None})

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def stat(self, path: str) -> tuple[int, int]:
        file = self.names.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return len(file.content), file.changed_ms

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, 0 if self.full else 1 << 39

    def lock(self, path: str) -> int:
        for file, _ in self._open.values():
            if file is self.names.get(path):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        return self.open(path, create=True)


def _rename(names: dict[str, MemoryFile], change: dict[str, MemoryFile | None]) -> None:
    for path, file in change.items():
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def _settle(file: MemoryFile, random: Random) -> None:
    """Let some part of what was not synced reach the platter."""
    result = bytearray(file.durable)
    mode = random.choice(("none", "all", "prefix", "any"))
    prefix = random.randint(0, len(file.pending))
    for number, (position, data) in enumerate(file.pending):
        kept = {"none": False, "all": True, "prefix": number < prefix, "any": random.random() < 0.5}[mode]
        torn = mode == "prefix" and number == prefix
        if data is None:
            if kept:
                _cut(result, position)
        elif kept:
            _put(result, position, data)
        elif torn:
            length = random.randint(0, len(data))
            _put(result, position, data[:length])
        elif mode == "any" and random.random() < 0.5:
            # The size reached the platter and the data did not: zeros, or some sectors of it.
            sectors = bytearray(data)
            for start in range(0, len(sectors), SECTOR):
                if random.random() < 0.5:
                    sectors[start : start + SECTOR] = bytes(len(sectors[start : start + SECTOR]))
            _put(result, position, bytes(sectors))
    file.durable = result
    file.content = bytearray(result)
    file.pending.clear()
