"""A disk in memory that crashes, tears, loses, rots, refuses, dawdles and counts: the broker's Disk port.

Two ways to die: `kill` (the process is gone, its writes are not) and `crash` (the machine is gone: of what was not
synced, any part may have reached the platter, in any order, torn in the middle). Names have a life of their own: a file
that was synced is lost if the directory was not. Within a directory names reach the platter in order, between
directories and files there is no order; but a directory that is renamed takes along what was done in it before. A new
directory is a name in its parent: if that is lost, all that is in it is, synced or not.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

SECTOR = 512

_descriptors = itertools.count(1 << 40)
"""Descriptors differ between disks, and are none that the operating system would give."""


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
        """Into the cache."""
        _put(self.content, position, data)
        self.pending.append((position, data))

    def truncate(self, length: int) -> None:
        """In the cache."""
        _cut(self.content, length)
        self.pending.append((length, None))

    def sync(self) -> None:
        """To the platter."""
        for position, data in self.pending:
            if data is None:
                _cut(self.durable, position)
            else:
                _put(self.durable, position, data)
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


class NameChange(NamedTuple):
    """What happened to names in a directory: a rename is one step, and so is a directory that was `made`."""

    directory: str
    files: dict[str, MemoryFile | None]
    made: str = ""


def _no_time(operation: str, path: str, size: int) -> None:
    pass


class FaultyDisk:
    """All paths live in memory. `bytes_read` and `operations` only grow; faults are set from outside.

    `full`: new files, reservations and, after half of it, writes that make a file grow raise ENOSPC; with a `quota`
    there are free blocks then. `failing`: operations ("write", "sync", "read", "sync_directory", "rename", "open",
    "truncate", "remove") that raise EIO, by the part of the path that they must be about. `countdown`: so many more
    changes happen; the next one is a PowerCut, with a write done in part, after `on_power_cut` was called.
    `on_operation(operation, path, bytes)` is told of each change and sync, and may take (virtual) time. A disk that is
    `off` does nothing any more: who used it is dead.
    """

    def __init__(self) -> None:
        self.names: dict[str, MemoryFile] = {}
        self.directories: set[str] = {"/"}
        self._durable_names: dict[str, MemoryFile] = {}
        self._name_changes: list[NameChange] = []
        self._crashes = 0
        self._open: dict[int, tuple[MemoryFile, str]] = {}
        self._next = _descriptors
        self.bytes_read = 0
        self.operations = 0
        self.full = False
        self.quota = False
        self.failing: dict[str, str] = {}
        self.countdown: int | None = None
        self.now_ms = 0
        self.off = False
        self.on_power_cut: Callable[[], None] | None = None
        self.on_operation: Callable[[str, str, int], None] = _no_time

    # Faults ------------------------------------------------------------------------------------------

    def _change(self) -> bool:
        """Count a change; True if the power goes in the middle of it."""
        if self.off:
            raise PowerCut
        self.operations += 1
        if self.countdown is None:
            return False
        if self.countdown <= 0:
            return True
        self.countdown -= 1
        return False

    def _power_cut(self) -> PowerCut:
        if self.on_power_cut is not None:
            self.off = True
            self.on_power_cut()
        return PowerCut()

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
            _crash(file, random)
        self.names = survivors
        self._durable_names = dict(survivors)
        self._name_changes.clear()
        self.kill()

    def wipe(self, directory: str = "") -> None:
        """Another disk, with nothing on it; or another one that is mounted at the directory."""
        self.kill()
        if directory:
            within = directory + "/"
            self.names = {name: file for name, file in self.names.items() if not name.startswith(within)}
            self.directories = {name for name in self.directories if not f"{name}/".startswith(within)}
            self._durable_names = {n: file for n, file in self._durable_names.items() if not n.startswith(within)}
            self._name_changes = [
                change for change in self._name_changes if not f"{change.made or change.directory}/".startswith(within)
            ]
            return
        self.names.clear()
        self.directories = {"/"}
        self._durable_names.clear()
        self._name_changes.clear()

    def _surviving_names(self, random: Random) -> dict[str, MemoryFile]:
        names = dict(self._durable_names)
        changes = self._name_changes
        chosen: set[int] = set()
        for directory in sorted({change.directory for change in changes if not change.made}):
            there = [n for n, other in enumerate(changes) if other.directory == directory and not other.made]
            chosen.update(there[: random.randint(0, len(there))])
        chosen |= self._surviving_directories(chosen)
        kept = self._with_sources(chosen)
        for number in kept:
            _rename(names, changes[number].files)
        for number in sorted(set(range(len(changes))).difference(kept)):
            if lost := changes[number].made:
                within = lost + "/"
                names = {name: file for name, file in names.items() if not name.startswith(within)}
                self.directories = {name for name in self.directories if not f"{name}/".startswith(within)}
        return names

    def _surviving_directories(self, chosen: set[int]) -> set[int]:
        """The numbers of the new directories that are there, beside these changes: also those are in order."""
        self._crashes += 1
        # Of its own: what else is lost does not depend on whether there are new directories.
        random = Random(f"directories {self.operations} {self._crashes}")
        found: set[int] = set()
        changes = self._name_changes
        for directory in sorted({change.directory for change in changes if change.made}):
            there = [n for n, other in enumerate(changes) if other.directory == directory]
            last = max((n for n in there if n in chosen), default=-1)
            found.update(n for n in there if n < last and changes[n].made)
            later = [n for n in there if n > last]
            lost = next((place for place, n in enumerate(later) if not changes[n].made), len(later))
            found.update(later[: random.randint(0, lost)])
        return found

    def _with_sources(self, chosen: set[int]) -> list[int]:
        """The numbers of these name changes, and of what was done before in directories that they move."""
        found = set(chosen)
        for number in chosen:
            directory, files, _ = self._name_changes[number]
            moved = {path.rpartition("/")[0] for path, file in files.items() if file is None} - {directory}
            if moved:
                earlier = self._name_changes[:number]
                found |= {n for n, other in enumerate(earlier) if other.directory in moved or other.made in moved}
        return sorted(found)

    def rot(self, random: Random, part: str, within: Callable[[str], int]) -> str | None:
        """Flip one bit that has been on the platter for a while, in a file with `part` in its path; which file.

        `within(path)`: only its first so many bytes.
        """
        found = sorted(path for path, file in self.names.items() if part in path and file.durable and within(path) > 0)
        if not found:
            return None
        path = random.choice(found)
        file = self.names[path]
        place = random.randrange(min(within(path), len(file.durable)))
        bit = 1 << random.randrange(8)
        file.durable[place] ^= bit
        if place < len(file.content):
            file.content[place] ^= bit
        return path

    # The Disk port -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        """See Disk."""
        self._refuse("open", path)
        file = self.names.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._refuse_growth(path)
            if self._change():
                raise self._power_cut()
            file = self._name(path, MemoryFile(changed_ms=self.now_ms))
        descriptor = next(self._next)
        self._open[descriptor] = (file, path)
        return descriptor

    def _name(self, path: str, file: MemoryFile) -> MemoryFile:
        self._rename(path, {path: file})
        return file

    def _rename(self, path: str, change: dict[str, MemoryFile | None]) -> None:
        _rename(self.names, change)
        self._name_changes.append(NameChange(path.rpartition("/")[0], change))
        self.on_operation("name", path, 0)

    def close(self, descriptor: int) -> None:
        """See Disk."""
        self._open.pop(descriptor, None)

    def path_of(self, descriptor: int) -> str:
        """Under which name the descriptor was opened."""
        return self._opened(descriptor)[1]

    def write_at(self, descriptor: int, data: bytes | bytearray | memoryview, position: int, /) -> int:
        """See Disk."""
        file, path = self._opened(descriptor)
        self._refuse("write", path)
        taken = bytes(data)
        if self._change():
            file.write(position, taken[: len(taken) // 2])
            raise self._power_cut()
        if self.full and position + len(taken) > len(file.content):
            file.write(position, taken[: len(taken) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        file.write(position, taken)
        file.changed_ms = self.now_ms
        self.on_operation("write", path, len(taken))
        return len(taken)

    def _opened(self, descriptor: int) -> tuple[MemoryFile, str]:
        if self.off:
            raise PowerCut
        found = self._open.get(descriptor)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(descriptor))
        return found

    def read_at(self, descriptor: int, length: int, position: int, /) -> bytes:
        """See Disk."""
        file, path = self._opened(descriptor)
        self._refuse("read", path)
        data = bytes(file.content[position : position + length])
        self.bytes_read += len(data)
        return data

    def size(self, descriptor: int, /) -> int:
        """See Disk."""
        return len(self._opened(descriptor)[0].content)

    def truncate(self, descriptor: int, length: int, /) -> None:
        """See Disk."""
        if self._change():
            raise self._power_cut()
        file, path = self._opened(descriptor)
        self._refuse("truncate", path)
        file.truncate(length)
        self.on_operation("truncate", path, length)

    def allocate(self, descriptor: int, length: int, /) -> None:
        """See Disk."""
        file, path = self._opened(descriptor)
        if length > len(file.content):
            self._refuse_growth(path)
            self.truncate(descriptor, length)

    def _refuse_growth(self, path: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def sync(self, descriptor: int, /) -> None:
        """See Disk."""
        if self._change():
            raise self._power_cut()
        file, path = self._opened(descriptor)
        part = self.failing.get("sync")
        if part is not None and part in path:
            # As Linux does: the error is told once, and the pages count as clean though they were lost.
            file.pending.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        size = sum(len(data) for _, data in file.pending if data is not None)
        file.sync()
        self.on_operation("sync", path, size)

    def sync_directory(self, path: str) -> None:
        """See Disk."""
        self._refuse("sync_directory", path)
        if self._change():
            raise self._power_cut()
        done = self._with_sources({n for n, change in enumerate(self._name_changes) if change.directory == path})
        for number in done:
            _rename(self._durable_names, self._name_changes[number].files)
        for number in reversed(done):
            del self._name_changes[number]
        self.on_operation("sync_directory", path, 0)

    def sync_filesystem(self, descriptor: int, /) -> bool:
        """See Disk."""
        if self._change():
            raise self._power_cut()
        _, path = self._opened(descriptor)
        unsynced = [name for name, file in self.names.items() if file.pending]
        part = self.failing.get("sync")
        if part is not None and any(part in name for name in unsynced):
            for name in unsynced:
                if part in name:
                    self.names[name].pending.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        for name in unsynced:
            self.names[name].sync()
        for change in self._name_changes:
            _rename(self._durable_names, change.files)
        self._name_changes.clear()
        self.on_operation("sync", path, 0)
        return True

    def list_directory(self, path: str) -> list[str]:
        """See Disk."""
        prefix = path + "/"
        self._refuse("read", prefix)
        inside = [name[len(prefix) :] for name in [*self.names, *self.directories] if name.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in inside if name})

    def make_directory(self, path: str, *, durable: bool = False) -> None:
        """See Disk. It takes no time, and those above are there for good."""
        made = [change for change in self._name_changes if change.made == path]
        if path not in self.directories:
            self._refuse("open", path)
            self._refuse_growth(path)
        if path not in self.directories and not made:
            made = [NameChange(path.rpartition("/")[0] or "/", {}, path)]
            self._name_changes += made
        self.directories.add(path)
        if durable:
            self._name_changes = [change for change in self._name_changes if change not in made]

    def remove_directory(self, path: str) -> None:
        """See Disk."""
        for name in [name for name in self.names if name.startswith(path + "/")]:
            self.remove(name)
        self.directories.discard(path)

    def rename(self, old: str, new: str) -> None:
        """See Disk."""
        self._refuse("rename", old)
        if self._change():
            raise self._power_cut()
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
        """See Disk."""
        if path in self.names:
            self._refuse("remove", path)
            if self._change():
                raise self._power_cut()
            self._rename(path, {path: None})

    def exists(self, path: str) -> bool:
        """See Disk."""
        return path in self.names or path in self.directories

    def stat(self, path: str) -> tuple[int, int]:
        """See Disk."""
        self._refuse("read", path)
        file = self.names.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return len(file.content), file.changed_ms

    def usage(self, path: str) -> tuple[int, int]:
        """See Disk."""
        return 1 << 40, 0 if self.full and not self.quota else 1 << 39

    def lock(self, path: str) -> int:
        """See Disk."""
        for file, _ in self._open.values():
            if file is self.names.get(path):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        return self.open(path, create=True)


def _rename(names: dict[str, MemoryFile], change: dict[str, MemoryFile | None]) -> None:
    """What was moved is gone from where it was, unless a newer file of that name is there: in a directory that was made
    again, and reached the platter before its parent.
    """
    moved = [file for file in change.values() if file is not None]
    for path, file in change.items():
        if file is None:
            if not moved or any(names.get(path) is one for one in moved):
                names.pop(path, None)
        else:
            names[path] = file


def _some_sectors(data: bytes, random: Random) -> bytes:
    """The size reached the platter and the data did not: zeros, or some sectors of it."""
    sectors = bytearray(data)
    for start in range(0, len(sectors), SECTOR):
        if random.random() < 0.5:
            sectors[start : start + SECTOR] = bytes(len(sectors[start : start + SECTOR]))
    return bytes(sectors)


def _crash(file: MemoryFile, random: Random) -> None:
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
            _put(result, position, _some_sectors(data, random))
    file.durable = result
    file.content = bytearray(result)
    file.pending.clear()
