"""The simulated disk as the metadata journal sees it: what was synced stays, the rest goes in any part."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from raftlog.linearizability.simulator.machine.disk import FaultyDisk, PowerCut
from raftlog.linearizability.simulator.machine.machine_facts import replaced
from raftlog.linearizability.simulator.machine.world import Machine, World
from raftlog.raft.journal import Entry, Journal, JournalFailed
from raftlog.raft.journal_recovery import JournalDamaged
from raftlog.raft.local import LocalLog
from tests.effort import examples


def write_until_the_power_goes(disk: FaultyDisk, random: Random) -> list[Entry]:
    """What was acknowledged."""
    acknowledged: list[Entry] = []
    disk.countdown = random.randint(0, 60)
    try:
        journal = Journal("/meta", disk, segment_bytes=400)
        acknowledged += journal.recovered.entries
        index = journal.last_index
        while True:
            index += 1
            entry = Entry(index, 1, random.randbytes(random.randint(0, 60)))
            journal.append([entry])
            acknowledged.append(entry)
            if random.random() < 0.1:
                journal.save_snapshot(index, 1, [entry.data])
    except PowerCut:
        disk.crash(random)
    return acknowledged


@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_journal_keeps_what_it_acknowledged_through_power_cuts(seed: int) -> None:
    random = Random(seed)
    disk = FaultyDisk()
    for _ in range(4):
        acknowledged = write_until_the_power_goes(disk, random)
        recovered = Journal("/meta", disk).recovered
        disk.kill()
        if acknowledged:
            assert recovered.last_index >= acknowledged[-1].index
        found = {entry.index: entry for entry in recovered.entries}
        assert all(found[entry.index] == entry for entry in acknowledged if entry.index in found)


def test_a_bit_that_flips_is_noticed_unless_it_is_in_the_last_frame() -> None:
    noticed = 0
    for seed in range(30):
        random = Random(seed)
        disk = FaultyDisk()
        journal = Journal("/meta", disk, segment_bytes=300)
        for index in range(1, 20):
            journal.append([Entry(index, 1, random.randbytes(20))])
        disk.kill()
        assert disk.rot(random, ".journal", lambda path: 1 << 30) is not None
        try:
            reopened = Journal("/meta", disk)
        except JournalDamaged:
            noticed += 1
        else:
            # The last frame cannot be told from a write that was cut short.
            assert reopened.last_index == 18
    assert noticed >= 25


def test_a_full_disk_refuses_what_grows_and_lets_it_go_on_afterwards() -> None:
    disk = FaultyDisk()
    journal = Journal("/meta", disk)
    disk.full = True
    with pytest.raises(JournalFailed):
        journal.append([Entry(1, 1, b"x" * 50)])
    disk.full = False
    journal.append([Entry(1, 1, b"y")])
    disk.crash(Random(1))
    assert Journal("/meta", disk).recovered.entries == [Entry(1, 1, b"y")]


def test_what_a_failed_sync_left_in_the_cache_is_safe_before_it_is_believed() -> None:
    """Linux shows pages whose write failed, and counts them as clean: a restart must not trust them."""
    disk = FaultyDisk()
    journal = Journal("/meta", disk)
    journal.append([Entry(1, 1, b"a")])
    disk.failing["sync"] = "/meta"
    with pytest.raises(JournalFailed):
        journal.append([Entry(2, 1, b"b")])
    disk.failing.clear()
    disk.kill()
    reopened = Journal("/meta", disk)
    assert reopened.recovered.last_index == 2
    reopened.append([Entry(3, 1, b"c")])
    disk.crash(Random(1))
    assert [entry.data for entry in Journal("/meta", disk).recovered.entries] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_quorum_of_one_loses_nothing_that_it_acknowledged(seed: int) -> None:
    """LocalLog on a simulated machine: killed, cut off from power in the middle of writes, slow."""
    with replaced(seed, lambda: 0.0):
        acknowledged, replayed = run_local_log(seed)
    assert acknowledged and set(acknowledged) <= set(replayed), sorted(set(acknowledged) - set(replayed))


def run_local_log(seed: int) -> tuple[list[bytes], list[bytes]]:
    world = World(seed)
    machine = world.add_machine(1, "host1")
    random = Random(seed)
    acknowledged: list[bytes] = []
    replayed: list[bytes] = []

    async def program(machine: Machine) -> None:
        replayed.clear()
        log = LocalLog("/meta", node_id=1, disk=machine.disk, snapshot_bytes=2_000, monotonic=machine.clock.monotonic)
        state: list[bytes] = []

        def replay(index: int, entry: bytes) -> None:
            state.append(entry)
            replayed.append(entry)

        def restore(index: int, chunks: object) -> None:
            state.extend(chunks)  # type: ignore[call-overload]
            replayed.extend(state)

        await log.start(restore, replay, lambda: (log.committed_index, list(state)))
        for number in range(1000):
            entry = b"%d.%d" % (machine.incarnation, number)
            await log.propose([entry])
            acknowledged.append(entry)
            await asyncio.sleep(random.random() * 0.01)

    machine.start(program)
    for number in range(8):
        at = 0.2 + number * 0.5
        if random.random() < 0.5:
            world.scheduler.at(at, lambda: setattr(machine.disk, "countdown", random.randint(0, 5)))
        else:
            world.scheduler.at(at, machine.kill)
        world.scheduler.at(at + 0.2, lambda: machine.running or machine.start())
    machine.syncs.slow_until = 1.0
    world.scheduler.run_until(4.5)
    world.end()
    return acknowledged, list(replayed)


def test_a_directory_that_is_moved_late_takes_no_newer_file_with_it() -> None:
    disk = FaultyDisk()
    for data in (b"old", b"new"):
        disk.make_directory("/d/p")
        descriptor = disk.open("/d/p/0.log", create=True)
        disk.write_at(descriptor, data, 0)
        disk.sync(descriptor)
        disk.sync_directory("/d/p")
        if data == b"old":
            disk.rename("/d/p", "/d/p-delete")
    for seed in range(20):
        disk.crash(Random(seed))
        assert disk.read_at(disk.open("/d/p/0.log"), 10, 0) == b"new"


def found_after_a_crash(disk: FaultyDisk, seed: int) -> list[str]:
    disk.make_directory("/d/p")
    disk.sync(disk.open("/d/p/0.log", create=True))
    disk.sync_directory("/d/p")
    disk.open("/d/later", create=True)
    disk.crash(Random(seed))
    return disk.list_directory("/d")


def test_a_new_directory_is_lost_with_what_is_synced_in_it_until_its_name_is() -> None:
    disks = [FaultyDisk() for _ in range(30)]
    for number, disk in enumerate(disks):
        disk.operations = number
    found = [found_after_a_crash(disk, seed) for seed, disk in enumerate(disks)]
    # Names in one directory reach the platter in order.
    assert {tuple(names) for names in found} == {(), ("p",), ("later", "p")}
    for names, disk in zip(found, disks, strict=True):
        assert disk.exists("/d/p/0.log") == disk.exists("/d/p") == ("p" in names)


def test_what_a_failed_sync_of_the_file_system_dropped_is_not_synced_by_the_next() -> None:
    disk = FaultyDisk()
    descriptor = disk.open("/d/0.log", create=True)
    disk.sync_directory("/d")
    disk.write_at(descriptor, b"lost", 0)
    disk.failing["sync"] = "/d/"
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_filesystem(descriptor)
    disk.failing.clear()
    assert disk.sync_filesystem(descriptor)
    assert disk.read_at(descriptor, 10, 0) == b"lost"
    disk.crash(Random(0))
    assert disk.stat("/d/0.log")[0] == 0


def test_a_full_disk_and_one_that_fails_make_no_directories() -> None:
    disk = FaultyDisk()
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        disk.make_directory("/d/p")
    disk.full = False
    disk.failing["open"] = "/d/"
    with pytest.raises(OSError, match="Input/output"):
        disk.make_directory("/d/p")
    assert not disk.exists("/d/p")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_new_directory_stays_once_its_name_is_synced(at_once: bool) -> None:
    for seed in range(30):
        disk = FaultyDisk()
        disk.make_directory("/d/p", durable=at_once)
        if not at_once:
            disk.sync_directory("/d")
        assert "p" in found_after_a_crash(disk, seed)
        assert disk.exists("/d/p/0.log")


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_directory_that_is_moved_leaves_nothing_where_it_was(seed: int, synced: bool) -> None:
    disk = FaultyDisk()
    for name in ("0.log", "0.snapshot"):
        disk.open(f"/d/p/{name}", create=True)
    disk.sync_directory("/d/p")
    disk.open("/d/p/66.log", create=True)
    disk.remove("/d/p/0.snapshot")
    disk.rename("/d/p", "/d/p-delete")
    if synced:
        disk.sync_directory("/d")
    disk.crash(Random(seed))
    found = disk.list_directory("/d")
    assert len(found) == 1
    if synced or found == ["p-delete"]:
        assert (found, disk.list_directory("/d/p-delete")) == (["p-delete"], ["0.log", "66.log"])
