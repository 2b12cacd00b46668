"""How much room the data directories have: a word when it gets little, and whether one is full.

A directory is full from the first write that found no room until there is room again; FullDisk waits for that. What
statvfs(2) says is not enough: a quota refuses blocks that are free. So room is found again by taking some.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.broker.store.files import FULL_DISK_ERRORS

if TYPE_CHECKING:
    from raftlog.broker.runtime.metadata_reserve import MetadataReserve
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.store import UnavailableLog

log = logging.getLogger("raftlog.disk")

LOOK_SECONDS: Final = 5.0
LOOK_WHEN_FULL_SECONDS: Final = 1.0
TOLD_SECONDS: Final = 60.0
"""How often it is told that a directory is still full."""
ROOM_BYTES: Final = 4 << 20
ROOM_SHARE: Final = 100
"""There is room again when one part in so many of the volume is free and ROOM_BYTES can be taken: a log cleaner or an
operator has been there, and the next record does not fill it."""
PROBE: Final = "room.probe"
"""The file in a data directory that takes ROOM_BYTES for a moment."""
WARNING_PERCENT: Final = "raftlog.disk.free.warning.percent"
CRITICAL_PERCENT: Final = "raftlog.disk.free.critical.percent"


class DiskRoom:
    """Looks at the volumes now and then. `on_full` is told each append that finds no room, after this was, and
    `on_no_room` of partitions that cannot be made as no directory has room; `on_room`
    each log that was `refused` a file, once there is room. What was to be deleted later is deleted at once on a full
    disk; on one that has room some is kept for the metadata log (`reserve`). Invariant: a directory leaves `_full` only
    in `look`, so that others who wait for room cost no probe each.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, logs: LogManager, *, warning_percent: int, critical_percent: int
    ) -> None:
        self._loop = loop
        self._logs = logs
        self._levels = (critical_percent, warning_percent)
        self._full: dict[str, _Full] = {}
        # By directory: how many of the levels it is above.
        self._above: dict[str, int] = {}
        self._refused: dict[tuple[str, int], UnavailableLog] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.on_full: Callable[[UnavailableLog, str], None] | None = None
        self.on_no_room: Callable[[str], None] | None = None
        self.on_room: Callable[[UnavailableLog], None] | None = None
        self.reserve: MetadataReserve | None = None

    def is_full(self, path: str) -> bool:
        """Whether it is too early to try again in a data directory: what little room there is may be needed for the
        metadata log.
        """
        return path in self._full

    def begin(self) -> None:
        """Look now, and from now on."""
        if self.reserve is not None and not self._full and self._has_free_blocks(self.reserve.directory):
            self.reserve.fill()
        self.look()
        seconds = LOOK_WHEN_FULL_SECONDS if self._full or self._refused else LOOK_SECONDS
        self._timer = self._loop.call_later(seconds, self.begin)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def no_room(self, reason: str) -> None:
        """A partition could not be made, and others count on it."""
        paths = [each.path for each in self._logs.directories if each.offline_reason is None]
        full = [path for path in paths if path in self._full or not self._has_room(path)]
        for path in full:
            self._note_full(path, reason)
        if full == paths and self.on_no_room is not None:
            self.on_no_room(reason)

    def log_full(self, full: UnavailableLog, reason: str) -> None:
        """A log took no append for want of room."""
        if path := self._logs.home_of(full):
            self._note_full(path, reason)
        if self.on_full is not None:
            self.on_full(full, reason)

    def _note_full(self, path: str, reason: str) -> None:
        known = self._full.get(path)
        if known is None:
            known = self._full[path] = _Full(self._loop.time())
            self._look_sooner()
            log.error("directory=%s is full, and nothing is appended before there is room: %s", path, reason)
        known.refused += 1

    def refused(self, partition_log: UnavailableLog) -> None:
        """A log went offline though nothing of it is lost: it is used again when there is room."""
        self._refused[partition_log.topic, partition_log.index] = partition_log
        self._look_sooner()

    def _look_sooner(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(LOOK_WHEN_FULL_SECONDS, self.begin)

    def reasons(self) -> list[str]:
        """Why nothing can be written; empty when everything can."""
        return [f"the disk of {path} is full: make room, or delete topics" for path in self._full]

    def look(self) -> None:
        """Tell of directories that have passed a level, in one direction or the other, and of full ones."""
        self._look_for_room()
        if self._full:
            self._logs.deletions.run_all()
        self._give_back()
        for directory in self._logs.directories:
            if directory.offline_reason is not None:
                continue
            try:
                total, usable = self._logs.store.disk.usage(directory.path)
            except OSError:
                continue  # whoever needs the disk will tell
            percent = usable * 100 / total if total else 100.0
            above = sum(percent >= level for level in self._levels)
            before = self._above.get(directory.path, len(self._levels))
            self._above[directory.path] = above
            if above < before:
                level = logging.ERROR if above == 0 else logging.WARNING
                what = "directory=%s has %.1f %% of its disk left, %d MB"
                log.log(level, what, directory.path, percent, usable >> 20)
            elif above > before:
                log.info("directory=%s has room again: %.1f %% of its disk", directory.path, percent)

    def _give_back(self) -> None:
        homes = {key: self._logs.home_of(partition_log) for key, partition_log in self._refused.items()}
        has_room: dict[str, bool] = {}
        for path in dict.fromkeys(homes.values()):
            if self._is_online(path):
                has_room[path] = path not in self._full and self._has_room(path)
        for key, path in homes.items():
            if path not in has_room:
                del self._refused[key]  # deleted, or offline with its directory
            elif has_room[path]:
                partition_log = self._refused.pop(key)
                if self.on_room is not None:
                    self.on_room(partition_log)

    def _look_for_room(self) -> None:
        now = self._loop.time()
        for path, known in list(self._full.items()):
            if not self._is_online(path):
                del self._full[path]
            elif self._has_room(path):
                del self._full[path]
                seconds = now - known.since
                log.warning("directory=%s has room: %d appends failed in %.0f s", path, known.refused, seconds)
            elif now - known.logged_at >= TOLD_SECONDS:
                known.logged_at = now
                log.error("directory=%s is still full: %d appends have failed so far", path, known.refused)

    def _is_online(self, path: str) -> bool:
        return any(each.path == path and each.offline_reason is None for each in self._logs.directories)

    def _has_free_blocks(self, path: str) -> bool:
        try:
            total, usable = self._logs.store.disk.usage(path)
        except OSError:
            return False
        return usable >= max(ROOM_BYTES, total // ROOM_SHARE)

    def _has_room(self, path: str) -> bool:
        """Whether it is worth while to write in a data directory again."""
        if not self._has_free_blocks(path):
            return False
        disk, probe = self._logs.store.disk, f"{path}/{PROBE}"
        try:
            descriptor = disk.open(probe, create=True)
            try:
                disk.allocate(descriptor, ROOM_BYTES)
            finally:
                disk.close(descriptor)
                disk.remove(probe)
        except OSError as error:
            # Whatever else is wrong, who needs the disk will tell.
            return error.errno not in FULL_DISK_ERRORS
        return True


class _Full:
    """Since when a directory is full, how many appends have failed, and when that was logged last."""

    __slots__ = ("logged_at", "refused", "since")

    def __init__(self, now: float) -> None:
        self.since = self.logged_at = now
        self.refused = 0

