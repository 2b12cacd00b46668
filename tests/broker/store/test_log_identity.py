"""Which log of a partition counts: topic ids that a power cut took, disks that come back with earlier logs."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.broker.core.log.checkpoint_text import parse_properties
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.log_places import Place
from raftlog.broker.store.names import RECOVERY_POINTS
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.metadata.elections import NO_DIRECTORY
from raftlog.wire.uuids import uuid_from_text, uuid_to_text
from tests.broker.store.store_world import TOPIC_ID, Host

NEW_ID = b"another topic id"


@pytest.mark.parametrize("left", [b"", b"version: 0\ntopic_id: T2JO6lfsfifK4f"])
async def test_a_log_whose_topic_id_was_torn_by_a_power_cut_is_of_no_topic(host: Host, left: bytes) -> None:
    host.append(3)
    host.kill()
    tear(host, left)
    host.start()
    assert host.open(topic_id=NEW_ID).log_end_offset == 0, "it may be of an earlier topic"
    assert host.names("-stray/") and host.offline == []


async def test_a_log_without_topic_id_and_without_records_leaves_nothing_behind(host: Host) -> None:
    host.open()
    host.kill()
    tear(host, b"")
    host.start()
    host.append(1)
    host.clock.ms += 1001
    await host.tasks.remove_due_files()
    assert not host.names("-stray/") and not host.names("-delete/")
    assert host.text("/a/t-0/partition.metadata").endswith(uuid_to_text(TOPIC_ID))


async def test_safe_records_whose_topic_id_cannot_be_read_are_neither_served_nor_forgotten(host: Host) -> None:
    host.append(3)
    await host.manager.close()
    host.kill()
    tear(host, b"version: 0")
    host.start()
    with pytest.raises(LogUnavailable, match=r"partition\.metadata does not say .* up to offset 3 were safe"):
        host.open()
    assert host.names("/a/t-0/00000000000000000000.log")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_log_that_was_empty_at_a_restart_is_synced_with_its_name_and_its_topic(
    host: Host, how: str, seed: int
) -> None:
    host.open()
    if how == "stopped":
        await host.manager.close()
    host.kill()
    host.start()
    await host.manager.flush(host.append(3))
    await host.tasks.checkpoint(RECOVERY_POINTS)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.crash(Random(seed))
    host.start()
    assert host.offline == [] and host.open().log_end_offset == 3


@pytest.mark.parametrize("seed", range(6))
async def test_a_log_that_begins_anew_where_its_leaders_does_is_synced_with_its_topic(host: Host, seed: int) -> None:
    host.open().truncate_fully_and_start_at(15)
    await host.tasks.checkpoint(RECOVERY_POINTS)
    assert isinstance(host.disk, FaultyDisk)
    host.disk.crash(Random(seed))
    host.start()
    assert host.offline == [] and host.open().log_end_offset == 15


def tear(host: Host, left: bytes) -> None:
    assert isinstance(host.disk, FaultyDisk)
    host.disk.names["/a/t-0/partition.metadata"].content[:] = left


@pytest.mark.parametrize("away, there", [("/a", "/b"), ("/b", "/a")])
@pytest.mark.parametrize("place", ["new", "old", "gone"])
async def test_a_directory_that_comes_back_with_the_log_of_a_deleted_topic_harms_no_other(
    away: str, there: str, place: str
) -> None:
    host = two_logs_of_one_partition(away, there, NEW_ID)
    known = {"new": Place(NEW_ID, NO_DIRECTORY), "old": Place(TOPIC_ID, NO_DIRECTORY), "gone": None}[place]
    host.start(place_of=lambda *_: known)
    assert [each.offline_reason for each in host.manager.directories] == [None, None]
    assert len(host.manager) == 1 and len(host.names("-stray/")) > 1
    if known is not None:
        log = host.open(topic_id=known.topic_id)
        assert (log.directory, log.log_end_offset) == ((f"{there}/t-0", 2) if place == "new" else (f"{away}/t-0", 1))


@pytest.mark.parametrize("away, there", [("/a", "/b"), ("/b", "/a")])
async def test_of_two_logs_of_one_topic_that_counts_which_lies_where_the_metadata_say(away: str, there: str) -> None:
    host = two_logs_of_one_partition(away, there, TOPIC_ID)
    host.start(place_of=lambda *_: Place(TOPIC_ID, directory_id_of(host, there)))
    assert [each.offline_reason for each in host.manager.directories] == [None, None]
    assert (host.open().directory, host.open().log_end_offset) == (f"{there}/t-0", 2)


async def test_two_logs_of_one_topic_of_which_nobody_knows_which_counts_are_left_to_a_person() -> None:
    host = two_logs_of_one_partition("/a", "/b", TOPIC_ID)
    host.start(place_of=lambda *_: Place(TOPIC_ID, NO_DIRECTORY))
    offline = [each.offline_reason or "" for each in host.manager.directories]
    assert offline[0] == "" and "are the same partition: move one of them" in offline[1]
    assert not host.names("-stray/")


def two_logs_of_one_partition(away: str, there: str, topic_id: bytes) -> Host:
    """One record in the directory that was away while a log with two records was made in the other one."""
    host = Host(away)
    host.append(1)
    host.kill()
    host.directories = (there,)
    host.start()
    host.append(2, topic_id=topic_id)
    host.kill()
    host.directories = ("/a", "/b")
    return host


def directory_id_of(host: Host, path: str) -> bytes:
    return uuid_from_text(parse_properties(host.text(f"{path}/meta.properties"))["directory.id"])
