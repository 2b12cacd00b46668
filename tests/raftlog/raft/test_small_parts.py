"""The clock that stands still, the disk that may stand still, the journal that becomes a log."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path

import pytest

from raftlog.broker.store.disk import OsDisk
from raftlog.raft.core.configuration import Configuration, Voter
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import NodeId
from raftlog.raft.disk_thread import DiskThread
from raftlog.raft.journal import JournalFailed
from raftlog.raft.journal_recovery import JournalDamaged
from raftlog.raft.opening import DIRECTORY_FILE, Opened, open_log
from raftlog.raft.stall_free_clock import BEAT_SECONDS, SLACK_SECONDS, StallFreeClock


def test_a_clock_that_is_not_looked_after_stands_still() -> None:
    actual = [100.0]
    clock = StallFreeClock(lambda: actual[0])
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


async def test_steps_run_in_order_and_none_on_the_event_loop() -> None:
    disk = DiskThread(time.monotonic)
    ran: list[tuple[int, bool]] = []
    ended: list[BaseException | None] = []

    def step(number: int) -> None:
        ran.append((number, threading.current_thread() is threading.main_thread()))

    for number in range(4):
        disk.submit(lambda number=number: step(number), ended.append)  # type: ignore[misc]
    await asyncio.wait_for(disk.drain(), 5.0)
    assert ran == [(number, False) for number in range(4)]
    assert ended == [None] * 4 and not disk.busy


async def test_the_event_loop_turns_while_a_disk_stands_still() -> None:
    disk = DiskThread(time.monotonic)
    goes_on = threading.Event()
    ended: list[BaseException | None] = []

    def stand_still() -> None:
        goes_on.wait(10)

    disk.submit(stand_still, ended.append)
    await asyncio.sleep(0)
    assert disk.busy and not ended
    goes_on.set()
    await asyncio.wait_for(disk.drain(), 5.0)
    assert ended == [None]


async def test_a_step_that_fails_says_so_and_the_next_one_runs() -> None:
    disk = DiskThread(lambda: 0.0)
    ended: list[BaseException | None] = []

    def fails() -> None:
        raise JournalFailed("full", on_disk_unknown=False)

    disk.submit(fails, ended.append)
    disk.submit(lambda: None, ended.append)
    await asyncio.wait_for(disk.drain(), 5.0)
    assert isinstance(ended[0], JournalFailed) and ended[1] is None


def opened(directory: Path) -> Opened:
    bootstrap = Configuration.of_addresses({1: ("h", 1)})
    return open_log(str(directory), 1, bootstrap, disk=OsDisk(), segment_bytes=1000, rng=random.Random())


def test_a_directory_keeps_its_id_and_a_wiped_one_gets_another(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    first.journal.vote(1, NodeId(1))
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


def test_a_directory_without_its_journal_is_another_one_for_it_forgot_how_it_voted(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.journal.vote(1, NodeId(1))
    first.journal.close()
    for journal in tmp_path.glob("*.journal"):
        journal.unlink()
    second = opened(tmp_path)
    second.journal.close()
    assert first.directory != second.directory, "or it could vote a second time"


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
    with pytest.raises(RaftViolation, match="format 2"):
        Configuration.decode(b"\x93\x02\x90\x90")
