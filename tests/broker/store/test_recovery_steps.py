"""Recovery of many logs, or of long ones, in steps between which the event loop goes on."""

from __future__ import annotations

import itertools

import pytest

from raftlog.broker.store.names import CLEAN_SHUTDOWN
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.pending_flush import PendingFlush
from raftlog.broker.store.recovering import RECOVERED_A_TURN
from tests.broker.store.store_world import Host


async def test_recovery_lets_the_event_loop_go_on_every_few_logs(host: Host) -> None:
    count = 3 * RECOVERED_A_TURN + 1
    for index in range(count):
        host.append(10, index=index)
    host.kill()
    manager = host.start(recover=False)
    opened = [0]
    for _ in manager.recover():
        opened.append(sum(log.is_open for log in manager))
    opened.append(sum(log.is_open for log in manager))
    assert opened[-1] == count
    assert max(after - before for before, after in itertools.pairwise(opened)) <= RECOVERED_A_TURN


async def test_recovery_of_long_logs_lets_the_event_loop_go_on_after_each(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(4):
        host.append(10, index=index)
    host.kill()
    manager = host.start(recover=False)
    begin_open = PartitionLog.begin_open

    def takes_long(log: PartitionLog) -> PendingFlush | None:
        host.clock.ms += 400
        return begin_open(log)

    monkeypatch.setattr(PartitionLog, "begin_open", takes_long)
    opened = [sum(log.is_open for log in manager) for _ in manager.recover()]
    assert opened[:3] == [1, 2, 3]


async def test_a_stop_in_the_middle_of_recovery_leaves_the_rest_to_the_next_start(host: Host) -> None:
    for index in range(RECOVERED_A_TURN + 1):
        host.append(10, index=index)
    host.kill()
    steps = host.start(recover=False).recover()
    next(steps)
    steps.close()
    await host.manager.close()
    assert f"/a/{CLEAN_SHUTDOWN}" not in host.names()
    host.kill()
    assert [log.log_end_offset for log in host.start()] == [10] * (RECOVERED_A_TURN + 1)
    await host.manager.close()
    assert f"/a/{CLEAN_SHUTDOWN}" in host.names()
