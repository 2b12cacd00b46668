"""Which logs are to lie in other data directories of their broker (KIP-113), and what there is of each one's copy.

A copy lies in its new data directory under a name that ends in `-future`, so that a move that the broker did not finish
begins anew with its next start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping

from raftlog.broker.store.data_directory import DataDirectory
from raftlog.broker.store.descriptions import LogDescription
from raftlog.broker.store.names import future_directory, parse_future_directory
from raftlog.broker.store.partition_log import PartitionLog

Key = tuple[str, int]


class FutureLog:
    """The copy of a log in `directory`: `size` bytes of batches are there, all below `end_offset`."""

    __slots__ = ("directory", "end_offset", "log", "path", "size")

    def __init__(self, log: PartitionLog, directory: DataDirectory, path: str) -> None:
        self.log = log
        self.directory = directory
        self.path = path
        self.size = 0
        self.end_offset = 0


class FutureLogs:
    """At most one for each log. `unwanted` are the paths of copies that will not be finished; `changed` is set when
    there is something to do. `done`: how many logs have got to their new places.
    """

    def __init__(self) -> None:
        self.by_log: dict[Key, FutureLog] = {}
        self.unwanted: list[str] = []
        self.changed = asyncio.Event()
        self.done = 0

    def begin(self, log: PartitionLog, home: DataDirectory, target: DataDirectory) -> None:
        """The log in `home` shall lie in `target`, and nowhere else. Raises OSError."""
        key = (log.topic, log.index)
        known = self.by_log.get(key)
        if known is not None and known.directory is target:
            return
        self.give_up(key)
        if target is not home:
            future = FutureLog(log, target, f"{target.path}/{future_directory(*key, os.urandom(16).hex())}")
            target.disk.make_directory(future.path)
            self.by_log[key] = future
            self.changed.set()

    def give_up(self, key: Key) -> None:
        """The log stays where it is, or is gone."""
        future = self.by_log.pop(key, None)
        if future is not None:
            self.unwanted.append(future.path)
            self.changed.set()

    def take_up(self, directory: DataDirectory, logs: Mapping[Key, PartitionLog]) -> None:
        """Begin anew what the last life of the broker did not finish: `logs` is all that there are."""
        for name in directory.found_futures:
            key, path = parse_future_directory(name), f"{directory.path}/{name}"
            log = logs.get(key) if key is not None else None
            if key is None or log is None or key in directory.logs or key in self.by_log:
                self.unwanted.append(path)
            else:
                self.by_log[key] = FutureLog(log, directory, path)
            self.changed.set()

    def copied_to(self, directory: DataDirectory) -> Iterator[LogDescription]:
        """The copies there, for DescribeLogDirs."""
        for (topic, index), future in self.by_log.items():
            if future.directory is directory:
                lag = max(future.log.log_end_offset - future.end_offset, 0)
                yield LogDescription(topic, index, future.size, lag, is_future=True)
