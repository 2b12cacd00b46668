"""A quorum of one: many proposals share a write, failures are told to those who wait, snapshots come by themselves."""

from __future__ import annotations

import asyncio
import random

import pytest

from raftlog.raft.local import LocalLog
from raftlog.raft.seam import ProposalFailed
from tests.raftlog.raft.crashing_disk import CrashingDisk, StandingStill
from tests.raftlog.raft.quorum_world import State


async def opened(files: CrashingDisk, **settings: int) -> tuple[LocalLog, State]:
    log = LocalLog("/journal", node_id=1, disk=files, **settings)
    state = State()
    await log.start(state.restore, state.replay, state.snapshot)
    return log, state


def disk() -> CrashingDisk:
    return CrashingDisk(random.Random(1))


async def test_entries_are_replayed_in_order_and_found_again() -> None:
    files = disk()
    log, state = await opened(files)
    assert await log.propose([b"a", b"b"]) == 2
    assert await log.propose([b"c"]) == 3
    assert state.entries == [b"a", b"b", b"c"]
    assert (log.last_index, log.committed_index, log.leader_id, log.term) == (3, 3, 1, 1)
    log, state = await opened(files.reboot())
    assert state.entries == [b"a", b"b", b"c"]
    assert (log.last_index, log.committed_index, log.term) == (3, 3, 1)


async def test_proposals_of_one_turn_share_one_sync() -> None:
    files = disk()
    log, state = await opened(files)
    before = files.operations
    indexes = await asyncio.gather(*(log.propose([b"%d" % n]) for n in range(100)))
    assert files.operations - before == 2, "one write and one sync"
    assert indexes == list(range(1, 101))
    assert state.entries == [b"%d" % n for n in range(100)]


async def test_a_proposal_of_nothing_waits_for_those_before_it() -> None:
    log, state = await opened(disk())
    first = log.propose([b"a"])
    assert await log.propose([]) == 1
    assert state.entries == [b"a"]
    await first


async def test_a_full_disk_fails_all_that_waits_and_the_log_goes_on_later() -> None:
    files = disk()
    log, state = await opened(files)
    await log.propose([b"a"])
    files.fail["write"] = 1
    outcomes = await asyncio.gather(log.propose([b"b"]), log.propose([b"c"]), return_exceptions=True)
    assert all(isinstance(outcome, ProposalFailed) and not outcome.outcome_unknown for outcome in outcomes)
    assert log.last_index == log.committed_index == 1
    assert await log.propose([b"d"]) == 2
    assert state.entries == [b"a", b"d"]


async def test_a_failed_sync_leaves_the_outcome_open() -> None:
    files = disk()
    log, state = await opened(files)
    files.fail["sync"] = 1
    with pytest.raises(ProposalFailed) as failure:
        await log.propose([b"a"])
    assert failure.value.outcome_unknown
    with pytest.raises(ProposalFailed, match="restart the broker"):
        await log.propose([b"a"])
    assert state.entries == []


async def test_snapshots_are_taken_as_the_log_grows_and_starts_begin_from_them() -> None:
    files = disk()
    log, state = await opened(files, snapshot_bytes=100)
    for n in range(50):
        await log.propose([b"entry %02d" % n])
    await log.close()
    assert sum(name.endswith(".snapshot") for name in files.names) == 1
    log, again = await opened(files.reboot(), snapshot_bytes=100)
    assert again.entries == state.entries
    assert again.restored > 30


async def test_a_snapshot_that_fails_costs_nothing() -> None:
    files = disk()
    log, state = await opened(files, snapshot_bytes=10)
    await log.propose([b"x" * 8])
    files.fail["rename"] = 1
    await log.propose([b"y" * 8])
    assert await log.propose([b"z"]) == 3
    await log.close()
    _, again = await opened(files.reboot())
    assert again.entries == state.entries


async def test_a_snapshot_that_fails_is_not_tried_again_with_each_entry() -> None:
    files = disk()
    log, _ = await opened(files, snapshot_bytes=100)
    files.fail["rename"] = 100
    for n in range(30):
        await log.propose([b"entry %02d" % n])
    assert files.fail["rename"] == 98
    files.fail.clear()
    for n in range(30):
        await log.propose([b"entry %02d" % n])
    await log.close()
    assert any(name.endswith(".snapshot") for name in files.names)


async def test_more_than_fits_into_one_frame_is_written_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlog.raft.frames.MAX_FRAME_BODY", 2000)
    monkeypatch.setattr("raftlog.raft.local.PROPOSED_BYTES_PER_FRAME_MAX", 1000)
    files = disk()
    log, state = await opened(files)
    entries = [bytes([n]) * 400 for n in range(9)] + [bytes(1500)]
    assert await asyncio.gather(*(log.propose([entry]) for entry in entries)) == list(range(1, 11))
    assert state.entries == entries
    await log.close()
    _, again = await opened(files.reboot())
    assert again.entries == entries


async def test_the_event_loop_turns_while_the_first_sync_of_a_run_stands_still() -> None:
    files = StandingStill(random.Random(1))
    log, state = await opened(files)
    files.stands_still = True
    proposed = asyncio.ensure_future(log.propose([b"a"]))
    try:
        while not files.is_standing.is_set():
            await asyncio.sleep(0)
        assert not proposed.done()
    finally:
        files.goes_on.set()
    assert await asyncio.wait_for(proposed, 5.0) == 1
    assert state.entries == [b"a"]
    await log.close()


async def test_a_snapshot_and_entries_that_come_together_are_written_one_after_the_other() -> None:
    files = disk()
    log, state = await opened(files)
    for n in range(5):
        await log.propose([b"%d" % n])
    assert await log.take_snapshot() == 5
    await asyncio.gather(*(log.propose([b"more"]) for _ in range(5)), log.take_snapshot())
    await log.close()
    assert len(state.entries) == 10
    _, again = await opened(files.reboot())
    assert again.entries == state.entries


async def test_a_quorum_of_one_leads_answers_itself_and_says_why_it_cannot_grow() -> None:
    log = LocalLog("/journal", node_id=1, disk=disk())
    told: list[bool] = []
    log.on_leadership(told.append)
    assert not log.is_leader and told == []

    async def answer(node_id: int, payload: bytes) -> bytes:
        if payload == b"slow":
            await asyncio.Event().wait()
        return b"%d %s" % (node_id, payload)

    log.on_request(answer)
    state = State()
    await log.start(state.restore, state.replay, state.snapshot)
    assert log.is_leader and told == [True]
    await log.propose([b"a"])
    assert await log.barrier() == 1
    assert await log.ask_leader(b"hello", 1.0) == b"1 hello"
    with pytest.raises(ProposalFailed) as failure:
        await log.ask_leader(b"slow", 0.001)
    assert failure.value.outcome_unknown
    assert await log.transfer_leadership() == 1
    with pytest.raises(ProposalFailed, match="--peers"):
        await log.add_voter(2, "127.0.0.1", 9292)
    status = log.status()
    assert (status.leader_id, status.term, status.committed_index, status.voters[0].match_index) == (1, 1, 1, 1)
