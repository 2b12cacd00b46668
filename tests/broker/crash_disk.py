"""A disk in memory that forgets: what was not synced may be gone after a crash, in part or in whole.

File contents and directory entries are kept twice, as they are and as they are on stable storage. Entries are
journalled in order, as file systems do, so that after a crash a prefix of the changes since the last sync is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from raftlog.broker.ports import Buffer


class Crash(BaseException):
    """The machine stops here. Not an Exception: nobody may handle it."""


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    stable: bytes = b""
    changed_ms: int = 0


def apply(names: dict[str, Inode], changes: dict[str, Inode | None]) -> None:
    """Carry out changes of names."""
    for name, inode in changes.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


class CrashDisk:
    """The Disk port. `crash_at` is the number of the changing operation that is not carried out any more."""

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.stable_files: dict[str, Inode] = {}
        # Changes of names since the last sync of their directory, each atomic: (directory, inode or None by name).
        self.journal: list[tuple[str, dict[str, Inode | None]]] = []
        self.directories: set[str] = set()
        self.descriptors: dict[int, Inode] = {}
        self.next_descriptor = 1000
        self.operations = 0
        self.crash_at: int | None = None
        self.now_ms = 0

    # What a test does with it ---------------------------------------------------------------------------------

    def copy(self) -> CrashDisk:
        """The same files, not open."""
        return self._rebuilt(dict(self.files), {id(inode): bytes(inode.data) for inode in self.files.values()})

    def after_kill(self) -> CrashDisk:
        """The process was killed: everything it wrote is there."""
        return self.copy()

    def after_power_loss(self, random: Random | None = None) -> CrashDisk:
        """The machine lost its power. Without `random` nothing is left but what was synced."""
        names = dict(self.stable_files)
        kept = random.randrange(len(self.journal) + 1) if random else 0
        for _, changes in self.journal[:kept]:
            apply(names, changes)
        contents: dict[int, bytes] = {}
        for inode in names.values():
            contents[id(inode)] = inode.stable
            if random and random.random() < 0.5:
                contents[id(inode)] = bytes(inode.data[: random.randrange(len(inode.data) + 1)])
        return self._rebuilt(names, contents)

    def _rebuilt(self, names: dict[str, Inode], contents: dict[int, bytes]) -> CrashDisk:
        disk = CrashDisk()
        disk.directories = set(self.directories)
        disk.now_ms = self.now_ms
        for name, inode in names.items():
            data = contents[id(inode)]
            disk.files[name] = Inode(bytearray(data), data, inode.changed_ms)
        disk.stable_files = dict(disk.files)
        return disk

    def _change(self) -> None:
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise Crash
        self.operations += 1

    def _enter(self, changes: dict[str, Inode | None]) -> None:
        apply(self.files, changes)
        self.journal.append((next(iter(changes)).rpartition("/")[0], changes))

    # The port ---------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        inode = self.files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            self._change()
            inode = Inode(changed_ms=self.now_ms)
            self._enter({path: inode})
        self.next_descriptor += 1
        self.descriptors[self.next_descriptor] = inode
        return self.next_descriptor

    def close(self, descriptor: int) -> None:
        self.descriptors.pop(descriptor, None)

    def write_at(self, descriptor: int, data: Buffer, position: int, /) -> int:
        self._change()
        inode = self.descriptors[descriptor]
        if len(inode.data) < position:
            inode.data += bytes(position - len(inode.data))
        inode.data[position : position + len(data)] = data
        inode.changed_ms = self.now_ms
        return len(data)

    def read_at(self, descriptor: int, length: int, position: int, /) -> bytes:
        return bytes(self.descriptors[descriptor].data[position : position + length])

    def size(self, descriptor: int, /) -> int:
        return len(self.descriptors[descriptor].data)

    def truncate(self, descriptor: int, length: int, /) -> None:
        self._change()
        inode = self.descriptors[descriptor]
        del inode.data[length:]
        inode.data += bytes(length - len(inode.data))

    def allocate(self, descriptor: int, length: int, /) -> None:
        self.truncate(descriptor, max(length, self.size(descriptor)))

    def sync(self, descriptor: int, /) -> None:
        self._change()
        inode = self.descriptors[descriptor]
        inode.stable = bytes(inode.data)

    def sync_directory(self, path: str) -> None:
        self._change()
        waiting = []
        for directory, changes in self.journal:
            if directory == path:
                apply(self.stable_files, changes)
            else:
                waiting.append((directory, changes))
        self.journal = waiting

    def list_directory(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted(
            {name[len(prefix) :].partition("/")[0] for name in self.files if name.startswith(prefix)}
            | {name[len(prefix) :].partition("/")[0] for name in self.directories if name.startswith(prefix)}
        )

    def make_directory(self, path: str) -> None:
        self.directories.add(path)

    def remove_directory(self, path: str) -> None:
        self._change()
        for name in [name for name in self.files if name.startswith(path + "/")]:
            self._enter({name: None})
        self.directories.discard(path)

    def rename(self, old: str, new: str) -> None:
        self._change()
        if old not in self.files:
            raise FileNotFoundError(2, "no such file", old)
        self._enter({new: self.files[old], old: None})

    def remove(self, path: str) -> None:
        self._change()
        if path in self.files:
            self._enter({path: None})

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def stat(self, path: str) -> tuple[int, int]:
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return len(self.files[path].data), self.files[path].changed_ms

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def lock(self, path: str) -> int:
        return self.open(path, create=True)


class FakeClock:
    """Time that stands still until a test moves it."""

    def __init__(self, now_ms: int = 1_750_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def run_steps(steps: Any) -> None:
    """Carry out a generator of steps at once."""
    for step in steps:
        if step is not None:
            step()
