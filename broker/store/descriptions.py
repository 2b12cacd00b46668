"""What DescribeLogDirs tells of a data directory."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from raftlog.broker.store.data_directory import DataDirectory

logger = logging.getLogger("raftlog.store")


class LogDescription(NamedTuple):
    """A log, or the copy of one that is to lie in the directory (`is_future`), which is `offset_lag` behind it."""

    topic: str
    partition: int
    size: int = 0
    offset_lag: int = 0
    is_future: bool = False


class DirectoryDescription(NamedTuple):
    """A data directory. Bytes; -1 if the directory is offline."""

    path: str
    offline_reason: str | None
    total_bytes: int
    usable_bytes: int
    partitions: list[LogDescription]
    is_cordoned: bool = False


def describe(
    directory: DataDirectory, others: Iterable[LogDescription], *, is_cordoned: bool
) -> DirectoryDescription:
    """`others` are in it beside its logs, or will be."""
    partitions: list[LogDescription] = []
    total = usable = -1
    try:
        if directory.offline_reason is None:
            total, usable = directory.disk.usage(directory.path)
            logs = directory.logs.items()
            partitions = [LogDescription(*key, log.storage.stored_bytes()) for key, log in logs]
            partitions += others
    except OSError as error:
        logger.warning("directory=%s cannot be described: %s", directory.path, error)
    return DirectoryDescription(directory.path, directory.offline_reason, total, usable, partitions, is_cordoned)
