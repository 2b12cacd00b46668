"""A clock that is set while a broker runs: what goes by time is due earlier or later, and the log says so."""

from __future__ import annotations

import pytest

from raftlog.broker.store.scheduled_tasks import ScheduledTasks
from tests.broker.store.store_world import Host


async def test_a_clock_that_jumps_is_told_once_with_what_retention_made_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host("/a")
    steady = 0.0
    monkeypatch.setattr(type(host.clock), "monotonic", lambda _: steady)
    tasks = ScheduledTasks(host.manager)
    host.append(30)
    host.clock.ms, steady = host.clock.ms + 3000, 3.0
    await tasks.apply_retention()
    assert "clock" not in caplog.text, "time has passed, and nobody set the clock"
    host.clock.ms += 3_600_000
    for _ in range(2):
        await tasks.apply_retention()
    (line,) = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert "was set forward by 3600 s" in line and line.endswith("retention has removed segments of 1 logs now")
    caplog.clear()
    host.clock.ms -= 7_200_000
    await tasks.apply_retention()
    assert "was set back by 7200 s" in caplog.text and "of 0 logs now" in caplog.text
