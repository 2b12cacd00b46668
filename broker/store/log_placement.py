"""In which data directories partitions will lie that have no log yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from raftlog.broker.store.data_directory import DataDirectory
from raftlog.broker.store.descriptions import LogDescription

Key = tuple[str, int]


class LogPlacement:
    """A log goes to the directory with the fewest, unless somebody was told, or has asked for, another one."""

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._directories = directories
        self._planned: dict[Key, DataDirectory] = {}

    def plan(self, key: Key, directory: DataDirectory) -> None:
        """The log will lie there."""
        self._planned[key] = directory

    def plan_all(self, unwritten: Iterable[Key]) -> None:
        """Decide on all logs that are not there yet."""
        counts = {each: len(each.logs) for each in self._usable()}
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
        return sorted(self._usable(), key=lambda directory: (directory is not planned, len(directory.logs)))

    def _usable(self) -> list[DataDirectory]:
        return [directory for directory in self._directories if directory.offline_reason is None]
