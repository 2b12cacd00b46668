"""Moving logs between the data directories of a broker while they are used (KIP-113), one after the other.

The files of a log are copied as they are, in threads and at most at the rate of
replica.alter.log.dirs.io.max.bytes.per.second, again and again what has come since. When little is left the log is
closed, the rest is copied, and it is opened again in the other directory, all in one turn of the event loop: nobody
sees more of it than a pause. Until then the log is what it was, and whatever interrupts a move costs only the copy.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.data_directory import CHECKPOINTS, DataDirectory
from raftlog.broker.store.delayed_deletions import remove_emptied
from raftlog.broker.store.files import FULL_DISK_ERRORS, Descriptor, read_exactly, write_all
from raftlog.broker.store.future_logs import FutureLog
from raftlog.broker.store.io_rate import IoRate
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.names import LEADER_EPOCHS, LOG_STARTS, PARTITION_METADATA, SNAPSHOT_SUFFIX, offset_of
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.segment import LOG_SUFFIX, SUFFIXES, Segment
from raftlog.wire.ids import LeaderEpoch

logger = logging.getLogger("raftlog.store")

COPY_BYTES_MAX: Final = 1 << 20
COPY_BYTES_MIN: Final = 4 << 10
"""How much is copied in one go: what a second may take, between these."""
REST_BYTES_MAX: Final = 1 << 20
"""How much may be left for the turn in which the log changes its place."""
LOOK_SECONDS: Final = 0.1
"""How soon it is noticed that compaction has done with a log."""


class MoveGivenUp(Exception):
    """The log is gone, or shall lie somewhere else by now."""


class SourceFailed(Exception):
    """The directory in which the log lies cannot be used; `error` says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class LogMoves:
    """Does what the manager's `futures` ask for."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self.rate = IoRate(manager.clock, lambda: manager.settings.moves_bytes_per_second)

    async def run(self) -> None:
        """Do what is asked for, for ever."""
        changed = self._manager.futures.changed
        while True:
            await changed.wait()
            changed.clear()
            await self.do_all()

    async def do_all(self) -> None:
        """Carry out the moves that are wanted now, and remove the copies that are not."""
        futures = self._manager.futures
        await self._remove_unwanted()
        for future in list(futures.by_log.values()):
            await self._move(future)
            await self._remove_unwanted()

    async def _remove_unwanted(self) -> None:
        unwanted = self._manager.futures.unwanted
        while unwanted:
            path = unwanted.pop()
            try:
                await self._manager.in_thread(partial(remove_emptied, self._manager.store.disk, path))
            except OSError as error:
                logger.warning("%s cannot be removed before the next start: %s", path, error)

    async def _move(self, future: FutureLog) -> None:
        manager, log = self._manager, future.log
        key = (log.topic, log.index)
        move = _Move(manager, future, self.rate)
        try:
            while log in manager.rewriting:
                await asyncio.sleep(LOOK_SECONDS)
            manager.rewriting.add(log)
            await move.run()
        except (MoveGivenUp, LogUnavailable) as reason:
            logger.info("log=%s is not moved to %s: %s", log.directory, future.directory.path, reason)
        except SourceFailed as failed:
            log.fail(failed.error)
        except OSError as error:
            logger.error("log=%s cannot be moved to %s: %s", log.directory, future.directory.path, error)
            if error.errno not in FULL_DISK_ERRORS and move.is_wanted and future.directory.offline_reason is None:
                manager.directory_failed(future.directory, error)
        finally:
            manager.rewriting.discard(log)
            future.directory.arriving.pop(key, None)
        # Done, it is there no more.
        if move.is_wanted:
            manager.futures.give_up(key)


class _Move:
    """One log on its way."""

    def __init__(self, manager: LogManager, future: FutureLog, rate: IoRate) -> None:
        self._manager = manager
        self._disk = manager.store.disk
        self._future = future
        self._log: PartitionLog = future.log
        self._rate = rate
        # How many bytes of each file are there, and of which generation of the log.
        self._copied: dict[str, int] = {}
        self._generation: object = None

    @property
    def is_wanted(self) -> bool:
        """Whether nobody has decided otherwise."""
        return self._manager.futures.by_log.get((self._log.topic, self._log.index)) is self._future

    async def run(self) -> None:
        """Return when the log lies in its new place. Raises MoveGivenUp, LogUnavailable, SourceFailed; OSError
        for the new one.
        """
        manager, log, future = self._manager, self._log, self._future
        began = manager.clock.monotonic()
        await self._begin()
        while not (await self._copy_most() and await self._settle()):
            if not self._holds:
                # It was truncated: what is in the copy may be what is not in the log any more.
                await self._begin()
        source = log.directory
        self._change_place()
        seconds = manager.clock.monotonic() - began
        logger.info("log=%s lies in %s now: %d bytes, %.1f s", source, log.directory, future.size, seconds)

    def _check(self) -> None:
        """Raises MoveGivenUp, LogUnavailable."""
        log = self._log
        if log.offline_reason is not None:
            raise LogUnavailable(log.offline_reason)
        if not self.is_wanted or self._future.directory.offline_reason is not None:
            raise MoveGivenUp("it is gone, or shall lie elsewhere")

    @property
    def _holds(self) -> bool:
        """Whether what was copied is in the log still."""
        return self._log.opened.generation is self._generation

    async def _begin(self) -> None:
        """An empty copy."""
        path = self._future.path
        self._copied.clear()
        self._generation = self._log.opened.generation
        self._future.size = self._future.end_offset = 0
        await self._manager.in_thread(partial(remove_emptied, self._disk, path))
        self._disk.make_directory(path)

    # Copying -----------------------------------------------------------------------------------------

    async def _copy_most(self) -> bool:
        """Copy what there is now; whether little has come meanwhile. Segments that are complete come with their
        indexes: nothing of them changes any more.
        """
        log, future = self._log, self._future
        segments, end_offset = list(log.opened.segments), log.log_end_offset
        # Retention has removed others meanwhile.
        kept = {_name(path) for segment in segments for path in segment.paths}
        self._copied = {name: size for name, size in self._copied.items() if name in kept}
        for segment in segments:
            if not self._holds:
                return False
            # Else retention has taken it since.
            if segment in log.opened.segments:
                is_complete = segment is not log.opened.segments.active
                await self._copy_log(segment)
                for path in segment.paths[1:] if is_complete else ():
                    await self._copy_small(path)
        if self._holds:
            future.end_offset = end_offset
        return self._holds and self._rest <= REST_BYTES_MAX

    @property
    def _rest(self) -> int:
        """Bytes of batches that are not in the copy."""
        return sum(each.size - self._copied.get(_name(each.log.path), 0) for each in self._log.opened.segments)

    async def _copy_log(self, segment: Segment) -> None:
        name = _name(segment.log.path)
        at, size = self._copied.get(name, 0), segment.size
        if at == size and name in self._copied:
            return
        # Kept open by the reference, whatever retention does.
        source, target = self._source(segment.log.path), self._open(name)
        while at < size:
            length = min(size - at, max(COPY_BYTES_MIN, min(COPY_BYTES_MAX, self._rate.bytes_per_second)))
            await self._rate.wait()
            self._check()
            await self._manager.in_thread(partial(self._copy_range, source, target, at, length))
            self._check()
            self._rate.used(length)
            at += length
            self._note(name, at)
        await self._manager.in_thread(partial(self._disk.sync, target.fd))
        self._check()

    async def _copy_small(self, path: str) -> None:
        name = _name(path)
        if name in self._copied or not self._disk.exists(path):
            return
        source, target = self._source(path), self._open(name)
        size = self._disk.size(source.fd)
        await self._rate.wait()
        await self._manager.in_thread(partial(self._copy_range, source, target, 0, size, sync=True))
        self._check()
        self._rate.used(size)
        self._note(name, size)

    def _note(self, name: str, size: int) -> None:
        self._copied[name] = size
        self._future.size = sum(size for name, size in self._copied.items() if name.endswith(LOG_SUFFIX))

    def _source(self, path: str) -> Descriptor:
        try:
            return Descriptor(self._disk, self._disk.open(path))
        except OSError as error:
            raise SourceFailed(error) from error

    def _open(self, name: str) -> Descriptor:
        return Descriptor(self._disk, self._disk.open(f"{self._future.path}/{name}", create=True))

    def _copy_range(
        self, source: Descriptor, target: Descriptor, start: int, length: int, *, sync: bool = False
    ) -> None:
        try:
            data = read_exactly(self._disk, source.fd, length, start)
        except OSError as error:
            raise SourceFailed(error) from error
        write_all(self._disk, target.fd, data, start)
        if sync:
            self._disk.sync(target.fd)

    # The last turn -----------------------------------------------------------------------------------

    async def _settle(self) -> bool:
        """Have little left to sync, and the log's offsets safe in the new directory; whether the log can be closed."""
        manager, log, directory = self._manager, self._log, self._future.directory
        directory.arriving[log.topic, log.index] = log
        for name in CHECKPOINTS:
            await manager.in_thread(partial(directory.write_checkpoint, directory.checkpoint(name)))
        await manager.flush(log)
        self._check()
        return self._holds and self._rest <= REST_BYTES_MAX and not manager.is_flushing(log)

    def _change_place(self) -> None:
        """Close the log here and open it there, within one turn. What waits for a disk waits in it; there is little of
        it. Raises LogUnavailable, and OSError: the log is where it was then.
        """
        log = self._log
        producers, latest_epoch = log.opened.producers, log.opened.epochs.latest
        log.storage.close()
        try:
            self._copy_rest()
            self._swap()
        except (OSError, SourceFailed):
            self._open_again(producers, latest_epoch)
            raise
        self._open_again(producers, latest_epoch)

    def _open_again(self, producers: ProducerStates, latest_epoch: LeaderEpoch) -> None:
        """With what no file says of it."""
        opened = self._log.open()
        opened.producers = producers
        opened.epochs.assign(latest_epoch, opened.end_offset)

    def _copy_rest(self) -> None:
        """Make the copy the same as the closed log, file by file, and bring it to stable storage."""
        log, disk, path = self._log, self._disk, self._future.path
        names = {name for name in disk.list_directory(log.directory) if _belongs_to_log(name)}
        for name in {*disk.list_directory(path)} - names:
            disk.remove(f"{path}/{name}")
        for name in sorted(names):
            source = self._source(f"{log.directory}/{name}")
            start, size = self._copied.get(name, 0), disk.size(source.fd)
            if start < size or name not in self._copied:
                self._copy_range(source, self._open(name), start, size - start, sync=True)
                self._note(name, size)
        disk.sync_directory(path)

    def _swap(self) -> None:
        """The copy takes the place of the log. Raises OSError: nothing has changed then, or the log is offline."""
        manager, log, disk, future = self._manager, self._log, self._disk, self._future
        source, target = manager.directory_at(manager.home_of(log)), future.directory
        log_starts = target.checkpoint(LOG_STARTS)
        if target.has_changed(log_starts):
            target.write_checkpoint(log_starts)
        target.stale.discard((log.topic, log.index))
        path = target.partition_path(log.topic, log.index)
        # Both have the same content: whichever of them a crash leaves, or both, nothing is lost.
        disk.rename(future.path, path)
        try:
            disk.sync_directory(target.path)
            doomed = self._set_aside(source)
        except (OSError, SourceFailed):
            disk.rename(path, future.path)
            raise
        try:
            source.sync_names()
        except OSError as error:
            # It may have either name, and must not be appended to under one while the other counts.
            manager.directory_failed(source, error)
            raise MoveGivenUp("its directory has failed") from error
        manager.moved(log, target, doomed)

    def _set_aside(self, source: DataDirectory) -> str:
        try:
            return source.set_aside(self._log.directory, doomed=True)
        except OSError as error:
            raise SourceFailed(error) from error


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _belongs_to_log(name: str) -> bool:
    """Whether a closed log needs the file: not what is deleted later, or was left of compaction."""
    if name in (LEADER_EPOCHS, PARTITION_METADATA):
        return True
    return offset_of(name) is not None and name.endswith((*SUFFIXES, SNAPSHOT_SUFFIX))
