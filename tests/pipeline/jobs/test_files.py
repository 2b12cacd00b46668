"""Small files of jobs: they are on the disk before anything may count on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftlog.pipeline.jobs.files import Folder


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what was synced, in order."""
    paths: list[str] = []
    real = os.fsync

    def fsync(opened: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{opened}"))
        real(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_a_file_is_written_whole_and_its_name_and_new_folders_outlive_a_power_cut(
    tmp_path: Path, synced: list[str]
) -> None:
    root = tmp_path / "lake"
    folder = Folder(str(root))
    folder.write("a/b/manifest", "text")
    assert folder.read("a/b/manifest") == "text" and folder.read("a/b/manifest.tmp") is None
    assert synced == [str(each) for each in (root / "a/b/manifest.tmp", root / "a/b", root / "a", root, tmp_path)]


def test_a_file_that_is_moved_to_its_place_is_on_the_disk_before(tmp_path: Path, synced: list[str]) -> None:
    folder = Folder(f"file://{tmp_path}")
    (tmp_path / "part").write_text("rows")
    folder.move("part", "hour=1/part")
    assert folder.read("hour=1/part") == "rows"
    assert synced[:2] == [str(tmp_path / "part"), str(tmp_path / "hour=1")] and str(tmp_path) in synced
