"""In which data directory the log of a new partition is made."""

from __future__ import annotations

from raftlog.broker.store.descriptions import LogDescription
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from tests.broker.store.store_world import Host


async def test_new_partitions_go_where_there_are_fewest() -> None:
    host = Host("/a", "/b")
    for index in range(4):
        host.append(1, index=index)
    assert [len(directory.logs) for directory in host.manager.directories] == [2, 2]
    described = host.manager.describe()
    assert [(d.path, len(d.partitions), d.offline_reason) for d in described] == [("/a", 2, None), ("/b", 2, None)]
    size = host.append(0).storage.stored_bytes()
    assert described[0].partitions[0] == LogDescription("t", 0, size) and size > 100
    assert described[0].total_bytes > described[0].usable_bytes > 0


async def test_a_cordoned_directory_gets_no_more_partitions_and_keeps_what_it_has() -> None:
    host = Host("/a", "/b")
    for index in range(2):
        host.append(1, index=index)
    host.manager.reconfigure(LogManagerSettings(cordoned=("/b",)))
    assert host.manager.placement.cordoned_ids() == (host.manager.directories[1].directory_id,)
    for index in range(2, 6):
        host.append(1, index=index)
    assert [len(directory.logs) for directory in host.manager.directories] == [5, 1]
    assert host.append(1, index=1).log_end_offset == 2
    host.manager.reconfigure(LogManagerSettings(cordoned=("*",)))
    host.append(1, index=6)
    assert [len(directory.logs) for directory in host.manager.directories] == [5, 2], "who is assigned is served"
    assert [each.is_cordoned for each in host.manager.describe()] == [True, True]
