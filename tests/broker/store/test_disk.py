"""The operating system's disk: what is on stable storage when a call returns."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raftlog.broker.store.disk import OsDisk


class SyncedDirectories(OsDisk):
    """Notes which directories were synced, and may fail to."""

    def __init__(self, *, failing: str = "") -> None:
        self.synced: list[str] = []
        self.failing = failing

    def sync_directory(self, path: str) -> None:
        if path == self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().sync_directory(path)
        self.synced.append(path)


def test_the_names_of_a_durable_directory_and_of_those_made_above_it_are_synced_from_above(tmp_path: Path) -> None:
    disk = SyncedDirectories()
    disk.make_directory(f"{tmp_path}/a/b/c", durable=True)
    assert disk.exists(f"{tmp_path}/a/b/c")
    assert disk.synced[-3:] == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]


def test_a_directory_whose_name_may_be_lost_is_not_taken_for_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output"):
        SyncedDirectories(failing=str(tmp_path)).make_directory(f"{tmp_path}/a", durable=True)


def test_a_directory_that_was_there_needs_no_rights_above_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    SyncedDirectories(failing=str(tmp_path)).make_directory(f"{tmp_path}/a", durable=True)


def test_other_directories_wait_for_a_sync(tmp_path: Path) -> None:
    disk = SyncedDirectories()
    disk.make_directory(f"{tmp_path}/a/b")
    assert disk.exists(f"{tmp_path}/a/b")
    assert not disk.synced
