"""In which data directories partitions will lie that have no log yet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from raftlog.broker.store.data_directory import DataDirectory
from raftlog.broker.store.descriptions import LogDescription
from raftlog.metadata.config_definition import ALL

Key = tuple[str, int]


class LogPlacement:
    """A log goes to the directory with the fewest, unless somebody was told, or has asked for, another one. Those that
    are `cordoned` get none as long as there is another one (KIP-1066).
    """

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._directories = directories
        self._planned: dict[Key, DataDirectory] = {}
        self.cordoned: list[DataDirectory] = []

    def cordon(self, paths: Sequence[str]) -> None:
        """These are cordoned, and no others; `*` is each."""
        wanted = {os.path.abspath(path) for path in paths if path != ALL}
        self.cordoned = [each for each in self._directories if ALL in paths or each.path in wanted]

    def cordoned_ids(self) -> tuple[bytes, ...]:
        """Ids of those that are cordoned."""
        return tuple(each.directory_id for each in self.cordoned if each.offline_reason is None)

    def plan(self, key: Key, directory: DataDirectory) -> None:
        """The log will lie there."""
        self._planned[key] = directory

    def plan_all(self, unwritten: Iterable[Key]) -> None:
        """Decide on all logs that are not there yet."""
        usable = self._usable()
        counts = {each: len(each.logs) for each in [one for one in usable if one not in self.cordoned] or usable}
        known, self._planned = self._planned, {}
        for key in unwritten if counts else ():
            home = known.get(key)
            if home not in counts:
                home = min(counts, key=counts.__getitem__)
            counts[home] += 1
            self._planned[key] = home

    def planned_in(self, directory: DataDirectory) -> Iterator[LogDescription]:
        """Those that will lie there, for DescribeLogDirs."""
        return (LogDescription(*key) for key, home in self._planned.items() if home is directory)

    def take(self, key: Key) -> list[DataDirectory]:
        """The directories in which the log may be made now, the best one first."""
        planned = self._planned.pop(key, None)
        return sorted(
            self._usable(), key=lambda each: (each in self.cordoned, each is not planned, len(each.logs))
        )

    def _usable(self) -> list[DataDirectory]:
        return [directory for directory in self._directories if directory.offline_reason is None]
