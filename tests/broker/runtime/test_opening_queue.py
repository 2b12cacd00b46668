"""When partitions that wait for their turn are opened."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.broker.runtime import opening_queue
from raftlog.broker.runtime.opening_queue import OpeningQueue
from tests.waiting import until

TOPIC = b"t" * 16


class Queue:
    """A queue whose slices open one partition each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opening_queue, "OPENING_SECONDS", 0.0)
        self.opened: list[int] = []
        self.is_done = False
        self.queue = OpeningQueue(lambda _, index: self.opened.append(index), self._all_are_open)

    def _all_are_open(self) -> None:
        self.is_done = True

    def add(self, *indices: int) -> None:
        for index in indices:
            self.queue.add(TOPIC, index)


async def test_few_are_opened_at_once_and_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_queue, "MORE_SECONDS", 1000.0)
    queue = Queue(monkeypatch)
    queue.add(1, 2, 3, 4)
    await until(lambda: queue.is_done)
    assert queue.opened == [1, 2, 3, 4]


async def test_while_more_come_the_many_that_wait_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of topics are created a hundred at a time: each hundred waited for a slice on every broker."""
    monkeypatch.setattr(opening_queue, "OPENED_AT_ONCE_MAX", 1)
    monkeypatch.setattr(opening_queue, "MORE_SECONDS", 0.02)
    monkeypatch.setattr(opening_queue, "WAIT_SECONDS_MAX", 1000.0)
    queue = Queue(monkeypatch)
    queue.add(0, 1)
    for index in range(2, 20):
        queue.add(index)
        await asyncio.sleep(0)
    assert queue.opened == []
    await until(lambda: queue.is_done)
    assert queue.opened == list(range(20)), "the first first"


async def test_the_many_are_opened_at_last_though_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_queue, "OPENED_AT_ONCE_MAX", 1)
    monkeypatch.setattr(opening_queue, "MORE_SECONDS", 1000.0)
    monkeypatch.setattr(opening_queue, "WAIT_SECONDS_MAX", 0.02)
    queue = Queue(monkeypatch)

    async def keep_adding() -> None:
        index = 0
        while len(queue.opened) < 5:
            queue.add(index, index + 1)
            index += 2
            await asyncio.sleep(0)

    await asyncio.wait_for(keep_adding(), 60)
    assert queue.opened[:5] == [0, 1, 2, 3, 4]
