"""All partition logs of a broker, over its data directories: which there are, starting and stopping, flushing.

After a clean stop nothing but the checkpoints is read: a log opens when it is first used. After a crash every log is
recovered from its recovery point by `recover`, before anybody is served.

Everything runs on the event loop except syncing, which runs in a few threads and is awaited.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogDamaged, LogUnavailable
from raftlog.broker.ports import Clock, Disk
from raftlog.broker.store.data_directory import CHECKPOINTS, DataDirectory, read_all_checkpoints
from raftlog.broker.store.delayed_deletions import DelayedDeletions
from raftlog.broker.store.descriptions import DirectoryDescription, describe
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.files import MAX_OPEN_FILES
from raftlog.broker.store.future_logs import FutureLogs
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.log_placement import LogPlacement
from raftlog.broker.store.log_places import Place, PlaceOf, nowhere, second_counts
from raftlog.broker.store.names import CLEANED_OFFSETS, LOG_STARTS, PARTITION_METADATA, RECOVERY_POINTS
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.recovering import recover_logs
from raftlog.broker.store.shutdown import close_logs
from raftlog.broker.store.store import Store, UnavailableLog

logger = logging.getLogger("raftlog.store")

SYNC_THREADS: Final = 8
"""Syncs that wait for a disk at once. More would not make one disk faster; fewer would let one slow directory hold
up the others."""

T = TypeVar("T")


class LogManager:
    """The logs by topic and partition.

    `topic_config` gives a topic's settings for logs that are recovered or cleaned up before anybody opens them.
    `on_offline(log, reason)` is called once for each log that goes offline.
    """

    def __init__(
        self,
        data_directories: Sequence[str],
        clock: Clock,
        *,
        node_id: int,
        cluster_id: str,
        topic_config: Callable[[str], LogConfig] | None = None,
        settings: LogManagerSettings | None = None,
        disk: Disk | None = None,
        open_files_max: int = MAX_OPEN_FILES,
        on_offline: Callable[[UnavailableLog, str], None] | None = None,
    ) -> None:
        self.clock = clock
        self._node_id = node_id
        self._cluster_id = cluster_id
        default = LogConfig()
        self._topic_config = topic_config or (lambda _: default)
        self.settings = settings or LogManagerSettings()
        self.reconfigured = asyncio.Event()
        """Set when the settings change."""
        self.store = Store(disk or OsDisk(), clock, open_files_max=open_files_max)
        self.store.producer_expiration_ms = self.settings.producer_expiration_ms
        self.store.before_truncation = self._before_truncation
        if on_offline is not None:
            self.store.on_failure = on_offline
        self.directories = [DataDirectory(self.store, path) for path in data_directories]
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._homes: dict[tuple[str, int], DataDirectory] = {}
        self.placement = LogPlacement(self.directories)
        self.placement.cordon(self.settings.cordoned)
        self.futures = FutureLogs()
        self.rewriting: set[PartitionLog] = set()
        """Logs whose segments compaction works on, or a move: either leaves them to the other."""
        self._flushing: dict[PartitionLog, asyncio.Task[None]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._unrecovered: list[DataDirectory] = []
        self.deletions = DelayedDeletions(clock)
        self.store.remove_later = self.deletions.add
        self.on_last_directory_failed: Callable[[OSError], None] = lambda error: None
        """Called when no directory is left."""

    def reconfigure(self, settings: LogManagerSettings) -> None:
        """Go by other settings from now on."""
        if settings != self.settings:
            self.settings = settings
            self.placement.cordon(settings.cordoned)
            self.store.producer_expiration_ms = settings.producer_expiration_ms
            self.reconfigured.set()

    # Starting and stopping ---------------------------------------------------------------------------

    def start(self, place_of: PlaceOf = nowhere) -> None:
        """Take the directories and find the logs in them. After a crash they have yet to be recovered.

        `place_of` is asked when two directories have a log of one partition: the other one is set aside.
        A directory that cannot be used goes offline; the others are served.
        Raises DataDirectoryInUse, and OSError if no directory is left.
        """
        failures = []
        for directory in self.directories:
            try:
                directory.open(self._node_id, self._cluster_id)
                self._load(directory, place_of)
            except OSError as error:
                self.directory_failed(directory, error)
                failures.append(error)
        if len(failures) == len(self.directories):
            raise failures[0]
        for directory in self.directories:
            self.futures.take_up(directory, self._logs)

    def online_directories(self) -> tuple[bytes, ...]:
        """Ids of the data directories that can be used."""
        return tuple(each.directory_id for each in self.directories if each.offline_reason is None)

    def offline_directories(self) -> tuple[bytes, ...]:
        """Ids of those that failed."""
        return tuple(each.directory_id for each in self.directories if each.offline_reason is not None)

    def directory_failed(self, directory: DataDirectory, error: OSError) -> None:
        """The directory's own files cannot be written: it goes offline with all its logs."""
        path, count = directory.path, len(directory.logs)
        logger.error("directory=%s is offline until the broker starts again, logs=%d: %s", path, count, error)
        directory.offline_reason = str(error)
        for log in list(directory.logs.values()):
            log.storage.fail(error, with_directory=True)
        if not self.online_directories():
            self.on_last_directory_failed(error)

    def home_of(self, log: UnavailableLog) -> str:
        """The path of the data directory in which a log lies; "" if it has been removed."""
        directory = self._homes.get((log.topic, log.index))
        return directory.path if directory is not None else ""

    def directory_at(self, path: str) -> DataDirectory:
        """The data directory with this path, which is one of ours."""
        return next(directory for directory in self.directories if directory.path == path)

    def fail_directory_of(self, log: UnavailableLog, reason: str) -> None:
        """A log has failed, and others are to take over from its disk: its directory goes offline with all its logs."""
        directory, is_last = self._homes.get((log.topic, log.index)), len(self.online_directories()) == 1
        # A disk that is merely full costs nobody his last directory: there will be room again.
        if directory is not None and directory.offline_reason is None and not (log.intact and is_last):
            self.directory_failed(directory, OSError(errno.ENOSPC if log.intact else errno.EIO, reason))

    def _load(self, directory: DataDirectory, place_of: PlaceOf) -> None:
        live, doomed = directory.find_partitions()
        for name in doomed:
            directory.sync_names()
            self.store.disk.remove_directory(f"{directory.path}/{name}")
        configs: dict[str, LogConfig] = {}
        recovery_points, log_starts, high_watermarks, cleaned_offsets = read_all_checkpoints(directory)
        for key in live:
            if key in self._logs and not self._replaces(key, directory, place_of(*key)):
                continue
            topic, index = key
            if (config := configs.get(topic)) is None:
                config = configs[topic] = self._topic_config(topic)
            log = PartitionLog(
                self.store,
                topic,
                index,
                directory.partition_path(topic, index),
                config,
                log_start_offset=log_starts.get(key, 0),
                recovery_point=recovery_points.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
                cleaned_offset=cleaned_offsets.get(key, 0),
                clean=directory.clean and key in recovery_points,
            )
            # Compaction waits until the file has the log. One that it lacks was put here by a person, or is new.
            is_new = not (directory.clean or directory.recovery_points_lost)
            may_be_compacted = config.compact or log.cleaned_offset > 0
            log.storage.gaps_are_losses = key in recovery_points or is_new or not may_be_compacted
            self._add(directory, key, log)
        directory.stale.update(recovery_points, log_starts, high_watermarks, cleaned_offsets)
        directory.stale.difference_update(directory.logs)
        if not directory.clean and live:
            self._unrecovered.append(directory)
            directory.unrecovered = len(live)

    def _replaces(self, key: tuple[str, int], directory: DataDirectory, place: Place | None) -> bool:
        """Another directory has a log of the partition too, from before its disk was away or after: whether this one's
        counts. The other is set aside. Raises OSError if nobody knows.
        """
        log, home, path = self._logs[key], self._homes[key], directory.partition_path(*key)
        there = Place(home.topic_id_of(log.directory), home.directory_id)
        second = second_counts(place, there, Place(directory.topic_id_of(path), directory.directory_id))
        if second is None:
            raise OSError(
                f"{log.directory} and {path} are the same partition: move one of them out of the data directories"
            )
        why = f"is not the log that counts of {key[0]}-{key[1]}, of which there are two"
        if second:
            self._set_aside(key, log, why)
        else:
            logger.warning("log=%s %s: set aside as %s", path, why, directory.set_aside(path, doomed=False))
        return second

    def recover(self) -> Iterator[Future[None] | None]:
        """Recover the logs of directories that were not closed in order, some at each step. A step may give what it is
        good to wait for before the next one.

        A log that cannot be recovered goes offline. A directory that is closed before its last step counts as not
        closed.
        """
        while self._unrecovered:
            yield from recover_logs(self._unrecovered[0], self.clock, self._pool(), self._says_of_which_topic)
            del self._unrecovered[0]

    def _says_of_which_topic(self, log: PartitionLog) -> bool:
        return self._topic_id_of((log.topic, log.index), log) is not None

    def _add(self, directory: DataDirectory, key: tuple[str, int], log: PartitionLog) -> None:
        directory.logs[key] = log
        self._logs[key] = log
        self._homes[key] = directory

    async def close(self) -> None:
        """Bring everything to stable storage and say so; what cannot be is found and recovered by the next start."""
        for task in list(self._flushing.values()):
            await asyncio.wait([task])
        usable = [directory for directory in self.directories if directory.offline_reason is None]
        await asyncio.gather(*(self._close_directory(directory) for directory in usable))
        for directory in self.directories:
            directory.close()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    async def _close_directory(self, directory: DataDirectory) -> None:
        try:
            clean = await close_logs(directory, self.in_thread)
        except OSError as error:
            self.directory_failed(directory, error)
            return
        try:
            for name in CHECKPOINTS:
                directory.write_checkpoint(directory.checkpoint(name))
            if clean and directory not in self._unrecovered:
                directory.mark_clean()
        except OSError as error:
            logger.error("directory=%s the checkpoints cannot be written: %s", directory.path, error)

    # Logs --------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> PartitionLog | None:
        """The log, opened or not; None if there is none."""
        return self._logs.get((topic, index))

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def open(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """The log, opened, and made if there is none. Raises LogUnavailable.

        A directory of that name that belongs to another topic id is set aside, under a name that ends in `-stray`.
        """
        key = (topic, index)
        log = self._logs.get(key)
        if log is not None and log.topic_id is None:
            log = self._check_topic_id(key, log, topic_id)
        if log is None:
            log = self._create(key, topic_id, config)
        log.reconfigure(config)
        log.open()
        return log

    def _check_topic_id(self, key: tuple[str, int], log: PartitionLog, topic_id: bytes) -> PartitionLog | None:
        found = self._topic_id_of(key, log)
        if found == topic_id:
            log.topic_id = topic_id
            return log
        if found is not None:
            with log.storage.failing():
                self._set_aside(key, log, "is of an earlier topic of that name")
        return None

    def _topic_id_of(self, key: tuple[str, int], log: PartitionLog) -> bytes | None:
        """The topic that a log is of. One that does not say is set aside, for it may be an earlier topic's: None.

        The first flush brings `partition.metadata` to stable storage. So without it nothing of the log was safe, or the
        file is damaged: LogUnavailable.
        """
        with log.storage.failing():
            found = self._homes[key].topic_id_of(log.directory)
            if found is None and log.recovery_point > log.log_start_offset:
                raise LogDamaged(
                    f"{log.directory}: {PARTITION_METADATA} does not say of which topic it is, but its records up to "
                    f"offset {log.recovery_point} were safe. Restore the file from a backup, or stop the broker and "
                    "remove the directory to go on without its records."
                )
            if found is None:
                if log.storage.stored_bytes():
                    self.store.before_loss()
                self._set_aside(key, log, "does not say of which topic it is")
        return found

    def _set_aside(self, key: tuple[str, int], log: PartitionLog, why: str) -> None:
        """Give its name free, and the log up. An empty one is removed, others wait for a person. Raises OSError."""
        directory, is_empty = self._homes[key], not log.storage.stored_bytes()
        path = directory.set_aside(log.directory, doomed=is_empty)
        self._forget(key, log)
        log.storage.offline_reason = log.offline_reason or f"{log.directory} {why}"
        if is_empty:
            self._remove_later(directory, path, log)
        else:
            logger.warning("log=%s %s: set aside as %s, to be removed if nobody wants it", log.directory, why, path)

    def _remove_later(self, directory: DataDirectory, path: str, log: PartitionLog) -> None:
        self.deletions.add(lambda: directory.remove_doomed(path), log.config.file_delete_delay_ms)

    def set_aside_strays(self, is_known: Callable[[str, int], bool]) -> None:
        """Rename the directories of partitions that are not known any more, before anything is recovered in them: their
        topics were deleted, and a crash or a missing disk kept them. What is in them stays until a person removes it.
        """
        for key, log in list(self._logs.items()):
            if not is_known(*key):
                try:
                    self._set_aside(key, log, "is of a topic that is not there")
                except OSError as error:
                    log.fail(error)

    def _create(self, key: tuple[str, int], topic_id: bytes, config: LogConfig) -> PartitionLog:
        """In the directory that is its place, in the next one if there is no room."""
        usable = self.placement.take(key)
        failure = "every data directory is offline"
        for directory in usable:
            path = directory.partition_path(*key)
            try:
                for known in usable:
                    known.forget_stale(key)
                is_new = directory.create_partition(*key, topic_id)
            except OSError as error:
                failure = f"{path}: {error}"
                if self.store.disk.exists(path):
                    # Made in another one as well it would be found twice at the next start.
                    break
                continue
            log = PartitionLog(self.store, *key, path, config)
            log.topic_id = topic_id
            log.storage.is_new = is_new
            self._add(directory, key, log)
            return log
        raise LogUnavailable(failure)

    def _forget(self, key: tuple[str, int], log: PartitionLog) -> None:
        self.futures.give_up(key)
        log.storage.abandon()
        del self._logs[key]
        home = self._homes.pop(key)
        del home.logs[key]
        home.stale.add(key)

    def delete(self, topic: str, index: int, topic_id: bytes | None = None) -> None:
        """Remove a partition's log; its files go after file.delete.delay.ms. None there: nothing happens.

        With a topic id only the log of that topic is removed, not of one that was made under its name since. If the
        partition's directory cannot be renamed, the data directory goes offline: what it still has of the partition is
        removed by whoever can read it again.
        """
        log = self._logs.get(key := (topic, index))
        if log is None:
            return
        directory = self._homes[key]
        try:
            if topic_id is not None and (log.topic_id or directory.topic_id_of(log.directory) or topic_id) != topic_id:
                return
            self._forget(key, log)
            path = directory.set_aside(log.directory, doomed=True)
        except OSError as error:
            # Whoever follows the metadata deletes it, and cannot do without the change.
            if directory.offline_reason is None:
                self.directory_failed(directory, error)
            log.fail(error)
            return
        log.storage.offline_reason = log.offline_reason or f"{log.directory}: the partition was deleted"
        self._remove_later(directory, path, log)

    def _before_truncation(self, topic: str, index: int) -> None:
        directory = self._homes[topic, index]
        for name in (RECOVERY_POINTS, LOG_STARTS, CLEANED_OFFSETS):
            directory.write_checkpoint(directory.checkpoint(name))

    # Places ------------------------------------------------------------------------------------------

    def move(self, topic: str, index: int, path: str) -> None:
        """Have a log lie in the data directory at `path`: it is copied there in the background (`log_moves.py`), or
        made there if it is not there yet. An earlier move is given up. Raises OSError.
        """
        key, target = (topic, index), self.directory_at(path)
        if (log := self._logs.get(key)) is not None:
            self.futures.begin(log, self._homes[key], target)
        else:
            self.placement.plan(key, target)

    def moved(self, log: PartitionLog, target: DataDirectory, doomed: str) -> None:
        """A closed log lies in another directory now, and what is left of it in the old one at `doomed`."""
        key = (log.topic, log.index)
        source = self._homes[key]
        del source.logs[key], self.futures.by_log[key]
        source.stale.add(key)
        target.logs[key], self._homes[key] = log, target
        log.directory = log.storage.directory = target.partition_path(*key)
        self.futures.done += 1
        self._remove_later(source, doomed, log)

    def describe(self, unwritten: Iterable[tuple[str, int]] = ()) -> list[DirectoryDescription]:
        """Each data directory with its partitions, for DescribeLogDirs. `unwritten`: those that have no log yet; each
        is told with 0 bytes in the directory where its log will be made.
        """
        self.placement.plan_all(unwritten)
        placement, futures = self.placement, self.futures
        return [
            describe(
                each, [*placement.planned_in(each), *futures.copied_to(each)], is_cordoned=each in placement.cordoned
            )
            for each in self.directories
        ]

    # Flushing ----------------------------------------------------------------------------------------

    async def flush(self, log: PartitionLog) -> None:
        """Return when everything that is in the log now is on stable storage. Raises LogUnavailable."""
        wanted = log.log_end_offset
        while log.recovery_point < wanted:
            await self.flush_once(log)
            if log.offline_reason is not None:
                raise LogUnavailable(log.offline_reason)
            wanted = min(wanted, log.log_end_offset)

    async def flush_once(self, log: PartitionLog, *, rolled_only: bool = False) -> None:
        """Take part in a sync of the log: the one that is under way, else a new one. A failure takes it offline.

        Syncs of one log never overlap, so that who comes during one shares the next.
        """
        running = self._flushing.get(log)
        if running is None:
            running = asyncio.get_running_loop().create_task(self._run_flush(log, rolled_only))
            self._flushing[log] = running
        await asyncio.shield(running)

    def is_flushing(self, log: PartitionLog) -> bool:
        """Whether a sync of it is under way."""
        return log in self._flushing

    async def _run_flush(self, log: PartitionLog, rolled_only: bool) -> None:
        try:
            pending = log.storage.begin_flush(rolled_only=rolled_only)
            if pending is not None:
                await self.in_thread(pending.sync)
                log.storage.end_flush(pending)
        except LogUnavailable:
            # It has said why, and is offline.
            return
        except OSError as error:
            log.fail(error)
        finally:
            del self._flushing[log]

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run what waits for a disk beside the event loop."""
        return asyncio.get_running_loop().run_in_executor(self._pool(), work)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="raftlog-sync")
        return self._threads
