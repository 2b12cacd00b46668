"""The clock that stands still, the disk that may be slow, the journal that becomes a log."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from raftlog.raft.core.configuration import Configuration, Voter
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.disk import DiskSteps
from raftlog.raft.files import OsFiles
from raftlog.raft.journal import JournalDamaged, JournalFailed
from raftlog.raft.opening import DIRECTORY_FILE, Opened, open_log
from raftlog.raft.steady import BEAT_SECONDS, SLACK_SECONDS, SteadyClock


def test_a_clock_that_is_not_looked_after_stands_still() -> None:
    actual = [100.0]
    clock = SteadyClock(lambda: actual[0])
    assert clock.now() == 0.0
    for _ in range(10):
        actual[0] += BEAT_SECONDS
        assert clock.beat() == 0.0
    assert clock.now() == pytest.approx(10 * BEAT_SECONDS)
    actual[0] += 25.0
    assert clock.now() == pytest.approx(11 * BEAT_SECONDS + SLACK_SECONDS), "whoever asks before the late beat"
    assert clock.beat() == pytest.approx(25.0 - BEAT_SECONDS - SLACK_SECONDS)
    assert clock.now() == pytest.approx(11 * BEAT_SECONDS + SLACK_SECONDS)
    actual[0] += BEAT_SECONDS
    assert clock.beat() == 0.0
    assert clock.now() == pytest.approx(12 * BEAT_SECONDS + SLACK_SECONDS)


async def test_steps_run_in_order_and_a_slow_disk_gets_a_thread() -> None:
    now = [0.0]
    disk = DiskSteps(lambda: now[0])
    ran: list[tuple[int, bool]] = []
    ended: list[BaseException | None] = []

    def step(number: int, seconds: float) -> None:
        now[0] += seconds
        ran.append((number, threading.current_thread() is threading.main_thread()))

    for number, seconds in enumerate((0.0, 0.5, 0.0, 0.0)):
        disk.submit(lambda number=number, seconds=seconds: step(number, seconds), ended.append)  # type: ignore[misc]
    disk.submit(lambda: step(9, 0.0), ended.append, large=True)
    await asyncio.wait_for(disk.drain(), 5.0)
    assert ran == [(0, True), (1, True), (2, False), (3, True), (9, False)]
    assert ended == [None] * 5 and not disk.busy


@pytest.mark.parametrize("large", [False, True])
async def test_a_step_that_fails_says_so_and_the_next_one_runs(large: bool) -> None:
    disk = DiskSteps(lambda: 0.0)
    ended: list[BaseException | None] = []

    def fails() -> None:
        raise JournalFailed("full", on_disk_unknown=False)

    disk.submit(fails, ended.append, large=large)
    disk.submit(lambda: None, ended.append)
    await asyncio.wait_for(disk.drain(), 5.0)
    assert isinstance(ended[0], JournalFailed) and ended[1] is None


def opened(directory: Path) -> Opened:
    bootstrap = Configuration.of_addresses({1: ("h", 1)})
    return open_log(str(directory), 1, bootstrap, files=OsFiles(), segment_bytes=1000, chance=random.Random())


def test_a_directory_keeps_its_id_and_a_wiped_one_gets_another(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    first.journal.close()
    again = opened(tmp_path / "a")
    again.journal.close()
    other = opened(tmp_path / "b")
    other.journal.close()
    assert first.directory == again.directory != other.directory
    path = tmp_path / "a" / DIRECTORY_FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JournalDamaged, match=DIRECTORY_FILE):
        opened(tmp_path / "a")


def test_members_are_sorted_and_counted() -> None:
    three = Configuration.of_addresses({3: ("c", 3), 1: ("a", 1), 2: ("b", 2)})
    assert three.ids == (1, 2, 3) and three.majority == 2
    assert three.is_majority({1, 3, 9}) and not three.is_majority({1, 9})
    assert not Configuration().is_majority({1}), "nobody has no majority"
    assert three.reached([5, 9, 7]) == 7
    four = three.with_voter(Voter(4, b"d", "d", 4))
    assert four.majority == 3 and four.with_voter(Voter(4, b"e", "d", 4)).voter(4) == Voter(4, b"e", "d", 4)
    fewer = four.without(2, awaited=Voter(2, b"n", "b", 2))
    assert fewer.ids == (1, 3, 4) and [voter.node_id for voter in fewer.awaited] == [2]
    assert Configuration.decode(fewer.encode()) == fewer
    with pytest.raises(RaftViolation, match="newer version"):
        Configuration.decode(b"\x93\x02\x90\x90")
