"""Logs are moved between the directories of a broker while they are used, and nothing of them is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.store import io_rate, log_moves
from raftlog.broker.store.descriptions import LogDescription
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.log_places import Place
from raftlog.broker.store.names import LOG_STARTS
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.machine.disk import FaultyDisk, PowerCut
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import batch_of
from tests.broker.store.store_world import TOPIC_ID, Host
from tests.waiting import until

COUNT = 30


def two_directories() -> Host:
    host = Host("/a", "/b")
    host.config = replace(host.config, segment_bytes=400, retention_ms=-1)
    return host


def content(log: PartitionLog) -> bytes:
    """All batches from the log start on."""
    parts, offset = [], log.log_start_offset
    for segment in log.opened.segments:
        for at, header in segment.headers():
            if header.last_offset >= offset:
                parts.append(segment.read(at, header.size))
    return b"".join(parts)


def home(host: Host, log: PartitionLog) -> str:
    return host.manager.home_of(log)


def other(host: Host, log: PartitionLog) -> str:
    return "/b" if home(host, log) == "/a" else "/a"


async def move(host: Host, log: PartitionLog) -> None:
    host.manager.move(log.topic, log.index, other(host, log))
    await host.tasks.moves.do_all()


def between_steps(host: Host, monkeypatch: pytest.MonkeyPatch, do: Callable[[int], object]) -> None:
    """Call `do` with the number of each piece of work that was done in a thread."""
    in_thread, numbers = host.manager.in_thread, iter(range(1000))

    def done(work: Callable[[], Any]) -> Awaitable[Any]:
        async def run() -> Any:
            result = await in_thread(work)
            do(next(numbers))
            return result

        return run()

    monkeypatch.setattr(host.manager, "in_thread", done)


async def test_a_log_is_the_same_in_its_new_directory_and_goes_on_there() -> None:
    host = two_directories()
    log = host.append(COUNT)
    log.delete_records_before(3)
    before, start = content(log), home(host, log)
    await move(host, log)
    assert home(host, log) != start and log.directory == f"{home(host, log)}/t-0" and host.manager.get("t", 0) is log
    assert content(log) == before and log.log_start_offset == 3 and log.log_end_offset == COUNT
    log.check_invariants()
    host.append(COUNT)
    assert not host.names(f"{start}/t-0/")
    host.clock.ms += host.config.file_delete_delay_ms
    await host.tasks.remove_due_files()
    assert not host.names(f"{start}/t-0") and not host.names("-future")
    whole = content(log)
    await host.manager.close()
    host.kill()
    host.start()
    assert content(host.open()) == whole and len(host.manager) == 1


async def test_what_is_appended_during_a_move_comes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_moves, "REST_BYTES_MAX", 150)
    host = two_directories()
    log = host.append(COUNT)
    between_steps(host, monkeypatch, lambda number: host.append(2) if number < 60 else None)
    await move(host, log)
    assert home(host, log) == "/b" and log.log_end_offset > COUNT + 100
    assert [header.base_offset for each in log.opened.segments for _, header in each.headers()] == [
        *range(log.log_end_offset)
    ]


async def test_an_undecided_transaction_stays_undecided() -> None:
    host = two_directories()
    log = host.append(3)
    begun = batch_of([b"x"], host.clock.ms, producer_id=7, base_sequence=0, transactional=True)
    assert log.append_as_leader(begun, 0, host.clock.ms).error is ErrorCode.NONE
    host.append(3)
    assert log.last_stable_offset == 3
    await move(host, log)
    assert (log.last_stable_offset, log.high_watermark) == (3, 7)
    marker = encode_transaction_marker(
        TransactionMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=host.clock.ms
    )
    ended = log.append_as_leader(marker, 0, host.clock.ms, origin=AppendOrigin.COORDINATOR)
    assert ended.error is ErrorCode.NONE
    log.update_high_watermark(log.log_end_offset)
    await move(host, log)
    assert [each.producer_id for each in log.aborted_transactions(0, log.log_end_offset)] == [7]
    again = log.append_as_leader(begun, 0, host.clock.ms)
    assert again.error is not ErrorCode.NONE or again.duplicate, "the producer is known still"


async def test_an_epoch_without_records_is_kept() -> None:
    host = two_directories()
    log = host.append(3)
    log.assign_epoch(5)
    await move(host, log)
    assert log.latest_epoch == 5 and log.end_offset_for_epoch(5) == (5, 3)


async def test_a_move_takes_as_long_as_its_rate_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_rate, "PAUSE_MS_MAX", 1)
    monkeypatch.setattr(log_moves, "COPY_BYTES_MIN", 100)
    host = two_directories()
    log = host.append(COUNT)
    size = log.storage.stored_bytes()
    host.manager.reconfigure(LogManagerSettings(moves_bytes_per_second=100))
    began_ms = host.clock.ms
    moving = asyncio.create_task(move(host, log))

    def later() -> bool:
        host.clock.ms += 1000
        return moving.done()

    await until(later, "it is moved")
    await moving
    assert home(host, log) == "/b" and host.clock.ms - began_ms > size / 100 * 1000 * 0.8


async def test_how_far_a_move_is_can_be_asked_and_another_rate_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_rate, "PAUSE_MS_MAX", 1)
    monkeypatch.setattr(log_moves, "COPY_BYTES_MIN", 100)
    host = two_directories()
    log = host.append(COUNT)
    host.manager.reconfigure(LogManagerSettings(moves_bytes_per_second=0))
    moving = asyncio.create_task(move(host, log))
    await until(lambda: host.tasks.moves.rate.bytes, "something is copied")
    there, future = (each.partitions for each in host.manager.describe())
    assert there == [LogDescription("t", 0, log.storage.stored_bytes())]
    assert future == [LogDescription("t", 0, 100, COUNT, is_future=True)]
    host.manager.reconfigure(LogManagerSettings())
    await moving
    assert [len(each.partitions) for each in host.manager.describe()] == [0, 1]


async def test_a_log_that_is_truncated_during_its_move_is_copied_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    host = two_directories()
    log = host.append(COUNT)

    def truncate(number: int) -> None:
        if number == 5:
            log.truncate_to(4)
            for _ in range(9):
                assert log.append_as_leader(batch_of([b"other"], host.clock.ms), 1, host.clock.ms).base_offset >= 4

    between_steps(host, monkeypatch, truncate)
    await move(host, log)
    assert home(host, log) == "/b" and log.log_end_offset == 13 and content(log).count(b"other") == 9


async def test_segments_that_retention_takes_during_a_move_are_not_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = two_directories()
    log = host.append(COUNT)

    def expire(number: int) -> None:
        if number == 9:
            log.delete_records_before(20)
            assert log.apply_retention(host.clock.ms) > 0

    between_steps(host, monkeypatch, expire)
    await move(host, log)
    first = log.opened.segments[0].base_offset
    assert home(host, log) == "/b" and log.log_start_offset == 20 and 10 < first <= 20
    assert min(name for name in host.names("/b/t-0/") if name.endswith(".log")) == f"/b/t-0/{first:020d}.log"


async def test_a_log_that_is_deleted_during_its_move_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = two_directories()
    log = host.append(COUNT)
    between_steps(host, monkeypatch, lambda number: host.manager.delete("t", 0) if number == 5 else None)
    await move(host, log)
    host.clock.ms += host.config.file_delete_delay_ms
    await host.tasks.remove_due_files()
    assert not host.names("/t-0") and not len(host.manager)


async def test_who_asks_for_the_old_directory_ends_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    host = two_directories()
    log = host.append(COUNT)
    between_steps(host, monkeypatch, lambda number: host.manager.move("t", 0, "/a") if number == 5 else None)
    await move(host, log)
    assert home(host, log) == "/a" and not host.names("-future") and log.log_end_offset == COUNT


async def test_compaction_and_a_move_leave_a_log_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    host = two_directories()
    log = host.append(COUNT)
    host.config = replace(host.config, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.reconfigure(host.config)
    await host.tasks.flush_due_logs()
    looked = []

    async def compact() -> None:
        await host.tasks.compact()
        looked.append(log.cleaned_offset)

    compactions: list[asyncio.Task[None]] = []
    between_steps(host, monkeypatch, lambda at: compactions.append(asyncio.create_task(compact())) if at == 3 else None)
    host.manager.rewriting.add(log)
    moving = asyncio.create_task(move(host, log))
    await asyncio.sleep(0)
    assert not host.tasks.moves.rate.bytes, "it waits for compaction"
    host.manager.rewriting.discard(log)
    await moving
    assert home(host, log) == "/b"
    await asyncio.gather(*compactions)
    assert looked[0] == 0
    monkeypatch.undo()
    await host.tasks.compact()
    assert log.cleaned_offset > 0


async def test_a_new_directory_that_fails_costs_the_copy_alone() -> None:
    host = two_directories()
    log = host.append(COUNT)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.failing = {"write": "-future"}
    await move(host, log)
    assert home(host, log) == "/a" and log.offline_reason is None and host.append(1).log_end_offset == COUNT + 1
    assert [each.offline_reason is None for each in host.manager.directories] == [True, False]


async def test_a_full_directory_costs_the_copy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    host = two_directories()
    log = host.append(COUNT)
    disk = host.disk
    assert isinstance(disk, FaultyDisk)

    def fill(number: int) -> None:
        disk.full = number < 10

    between_steps(host, monkeypatch, fill)
    await move(host, log)
    disk.full = False
    assert home(host, log) == "/a" and host.append(1).log_end_offset == COUNT + 1
    assert all(each.offline_reason is None for each in host.manager.directories) and not host.names("-future")


async def test_an_old_directory_that_cannot_be_read_takes_the_log_offline() -> None:
    host = two_directories()
    log = host.append(COUNT)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.failing = {"read": "/a/t-0/"}
    await move(host, log)
    assert log.offline_reason is not None and host.manager.directories[1].offline_reason is None


async def test_a_move_that_the_broker_did_not_finish_begins_anew_with_its_next_start() -> None:
    host = two_directories()
    log = host.append(COUNT)
    before = content(log)
    host.manager.move("t", 0, "/b")
    await host.manager.close()
    host.kill()
    host.start()
    assert [each.is_future for each in host.manager.describe()[1].partitions] == [True]
    await host.tasks.moves.do_all()
    moved = host.open()
    assert home(host, moved) == "/b" and content(moved) == before and not host.names("-future")


@pytest.mark.parametrize("seed", range(3))
async def test_a_power_cut_at_any_step_of_a_move_loses_nothing(seed: int) -> None:
    for countdown in range(400):
        host = two_directories()
        log = host.append(COUNT)
        log.delete_records_before(3)
        await host.manager.flush(log)
        await host.tasks.checkpoint(LOG_STARTS)
        before = content(log)
        disk, place = host.disk, Place(TOPIC_ID, host.manager.directories[0].directory_id)
        assert isinstance(disk, FaultyDisk)
        disk.countdown = countdown
        is_done = False
        try:
            await move(host, log)
            is_done = True
        except PowerCut:
            pass
        log.storage.abandon()
        disk.crash(Random(seed * 1000 + countdown))
        host.start(place_of=lambda *_, place=place: place)  # type: ignore[misc]
        found = host.open()
        assert found.log_start_offset == 3 and content(found) == before, countdown
        assert not is_done or home(host, found) == "/b"
        await host.tasks.moves.do_all()
        assert content(found) == before and len(host.manager) == 1 and not host.names("-future"), countdown
        if is_done:
            break
    assert 50 < countdown < 399
