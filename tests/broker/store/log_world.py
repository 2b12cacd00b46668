"""A partition log on a disk in memory, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from raftlog.broker.core.byte_rate import UNLIMITED
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin, AppendResult
from raftlog.broker.ports import Clock
from raftlog.broker.store.io_rate import IoRate
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.linearizability.simulator.machine.disk import FaultyDisk, PowerCut
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode

T = TypeVar("T")

DIRECTORY = "/data/t-0"
START_MS = 1_700_000_000_000


class FakeClock:
    """Moves when the test moves it."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def unlimited(clock: Clock) -> IoRate:
    """For what may read and write as fast as it can."""
    return IoRate(clock, lambda: UNLIMITED)


class Inline(ThreadPoolExecutor):
    """Does the work when it is submitted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except (OSError, PowerCut) as error:
            done.set_exception(error)
        return done


class AtOnce(LogManager):
    """Syncs without a thread: a disk in memory is not made for several of them."""

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = Inline()
        return self._threads


class LogWorld:
    """One log over many lives of its broker. `checkpoints` is (log start, recovery point, high watermark) as they
    are on the disk, and `clean` whether the last life ended by closing; `losses` how often recovery dropped what a
    kill alone does not explain."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.disk = FaultyDisk()
        self.disk.make_directory("/data", durable=True)
        self.disk.make_directory(DIRECTORY)
        self.clock = FakeClock()
        self.config = config or LogConfig(segment_bytes=1 << 20)
        self.checkpoints = (0, 0, 0)
        self.clean = False
        self.losses = 0
        self.log = self.load()

    def load(self) -> PartitionLog:
        """A new life of the broker; the log is opened on first use."""
        store = Store(self.disk, self.clock)
        store.before_truncation = lambda *_: self.checkpoint()
        store.before_loss = self._lose
        start, recovery_point, high_watermark = self.checkpoints
        self.log = PartitionLog(
            store,
            "t",
            0,
            DIRECTORY,
            self.config,
            log_start_offset=start,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            clean=self.clean,
        )
        self.clean = False
        return self.log

    def _lose(self) -> None:
        self.losses += 1

    def checkpoint(self) -> None:
        self.checkpoints = (self.log.log_start_offset, self.log.recovery_point, self.log.high_watermark)

    def restart_clean(self) -> PartitionLog:
        self.log.storage.close()
        self.checkpoint()
        self.clean = True
        self.disk.kill()
        return self.load()

    def restart_killed(self) -> PartitionLog:
        self.log.storage.abandon()
        self.disk.kill()
        return self.load()

    def append(self, batch: bytes, *, epoch: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendResult:
        """Append as leader and let the high watermark follow."""
        result = self.log.append_as_leader(batch, epoch, self.clock.ms, origin=origin)
        if result.error is ErrorCode.NONE:
            self.log.update_high_watermark(self.log.log_end_offset)
        return result

    def append_values(self, *values: bytes, epoch: int = 0) -> AppendResult:
        return self.append(batch_of(values, self.clock.ms), epoch=epoch)

    def end_transaction(self, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> AppendResult:
        marker = encode_transaction_marker(
            TransactionMarker(commit, 0),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self.clock.ms,
        )
        return self.append(marker, origin=AppendOrigin.COORDINATOR)


def batch_of(
    values: Sequence[bytes],
    now_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A client's batch, one record a value, timestamps one millisecond apart."""
    return encode_batch(
        [Record(number, now_ms + number, None, value) for number, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 and producer_epoch < 0 else producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
