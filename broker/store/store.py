"""What all partition logs of a broker share: the disk, the clock, the open files, and whom to tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from raftlog.broker.ports import Clock, Disk
from raftlog.broker.store.files import MAX_OPEN_FILES, OpenFiles

PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Kafka's default of producer.id.expiration.ms: one day."""


class UnavailableLog(Protocol):
    """A log that has failed, or takes no appends for the moment, as those who are told of it see it.

    `intact` says that nothing that was acknowledged can be missing from its files.
    """

    topic: str
    index: int

    @property
    def intact(self) -> bool: ...


def _never_full(path: str) -> bool:
    """Used where nobody looks: the next append tells."""
    return False


def _tell_nobody(log: UnavailableLog) -> None:
    """Used where nobody fetches."""


def _ignore_failure(log: UnavailableLog, reason: str) -> None:
    """Used where nobody manages the logs: the log itself remembers the reason."""


def _ignore_truncation(topic: str, index: int) -> None:
    """Used where nobody keeps checkpoints."""


def _ignore_loss() -> None:
    """Used where nobody else has the records."""


def _remove_now(remove: Callable[[], None], delay_ms: int) -> None:
    remove()


class Store:
    """`on_failure(log, reason)` is called once when a log goes offline, `on_full` when its disk has no room,
    `before_truncation(topic, partition)` when a log is about to lose records from its end: its recovery point, lowered
    already, must be on stable storage first, or a crash in between would look like the loss of records that were safe.
    It may raise OSError.
    `remove_later(remove, delay_ms)` is for files that go after file.delete.delay.ms. `producer_expiration_ms` is
    producer.id.expiration.ms."""

    __slots__ = (
        "before_loss",
        "before_truncation",
        "clock",
        "disk",
        "files",
        "is_full",
        "on_failure",
        "on_full",
        "on_retention",
        "producer_expiration_ms",
        "remove_later",
    )

    def __init__(self, disk: Disk, clock: Clock, *, open_files_max: int = MAX_OPEN_FILES) -> None:
        self.disk = disk
        self.clock = clock
        self.files = OpenFiles(disk, open_files_max)
        self.producer_expiration_ms = PRODUCER_EXPIRATION_MS
        self.on_failure: Callable[[UnavailableLog, str], None] = _ignore_failure
        self.on_full: Callable[[UnavailableLog, str], None] = _ignore_failure
        self.on_retention: Callable[[UnavailableLog], None] = _tell_nobody
        self.is_full: Callable[[str], bool] = _never_full
        self.before_truncation: Callable[[str, int], None] = _ignore_truncation
        self.before_loss: Callable[[], None] = _ignore_loss
        self.remove_later: Callable[[Callable[[], None], int], None] = _remove_now
