"""A follower that has to read much before it cuts its log does so in a thread, and everything else goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.runtime.replication import partition_fetch_state
from raftlog.broker.store.truncation_plan import TruncationPlan
from tests.broker.brokers import Cluster, run
from tests.broker.store.log_world import LogWorld, batch_of
from tests.waiting import until

KEPT = 1
ONLY_HERE = 6


@pytest.fixture(autouse=True)
def everything_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_fetch_state, "TRUNCATE_AT_ONCE_BYTES", 0)


class Slow:
    """Plans that are carried out when the test says so; `failing` makes the next ones fail."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.error: Exception | None = None

    def run(self, plan: TruncationPlan) -> ProducerStates:
        self.begun.set()
        self.may_end.wait(20)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return _run(plan)


_run = TruncationPlan.run


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(TruncationPlan, "run", lambda plan: slow.run(plan))
    yield slow
    slow.may_end.set()


async def part(cluster: Cluster) -> None:
    """Broker 1 has records that the new leader, broker 2, has not, and hears of it."""
    cluster.create_topic((1, 2))
    cluster[1].append("both have it")
    await until(cluster.is_replicated)
    cluster[1].deaf = cluster[2].deaf = True
    cluster.set_state(leader=2)
    # The old leader has not heard of it.
    cluster[2].deaf = False
    cluster[2].catch_up()
    assert [cluster[1].append(f"only here {number}", "twice") for number in range(3)] == [1, 3, 5]
    assert cluster[1].high_watermark() == 1
    cluster[2].append("the truth")
    cluster[1].deaf = False
    cluster[1].catch_up()


def test_what_only_the_old_leader_has_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            await part(cluster)
            await until(cluster.is_replicated)
            assert cluster[1].stored() == cluster[2].stored() and cluster[1].end() == 2
            assert "truncated from 7 to 1" in caplog.text and "before it is truncated" in caplog.text

    run(story)


def test_the_log_is_as_it_was_and_readable_until_it_is_cut(tmp_path: Path, slow: Slow) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            await part(cluster)
            await until(slow.begun.is_set)
            assert cluster[1].end() == KEPT + ONLY_HERE
            assert cluster[1].stored(), "it is still read"
            slow.may_end.set()
            await until(cluster.is_replicated)
            assert cluster[1].stored() == cluster[2].stored()

    run(story)


def test_a_follower_that_leads_before_it_has_read_cuts_nothing(tmp_path: Path, slow: Slow) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            await part(cluster)
            await until(slow.begun.is_set)
            cluster.set_state(leader=1)
            slow.may_end.set()
            await until(cluster.is_replicated)
            assert cluster[1].end() == KEPT + ONLY_HERE

    run(story)


def test_what_fails_while_nothing_changed_takes_the_log_offline(tmp_path: Path, slow: Slow) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            await part(cluster)
            await until(slow.begun.is_set)
            log = cluster[1].partition().log
            slow.error = OSError("Input/output error")
            slow.may_end.set()
            await until(lambda: log.offline_reason is not None)

    run(story)


def test_what_fails_because_the_log_changed_is_tried_again(tmp_path: Path, slow: Slow) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 2) as cluster:
            await part(cluster)
            await until(slow.begun.is_set)
            cluster[1].partition().log.opened.generation = object()
            slow.error = FileNotFoundError("gone")
            slow.may_end.set()
            await until(cluster.is_replicated)
            assert cluster[1].stored() == cluster[2].stored()

    run(story)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("end_offset", range(1, 8))
def test_the_producers_are_as_they_were_at_the_cut(end_offset: int, snapshot: bool) -> None:
    worlds = [LogWorld(), LogWorld()]
    for world, length in zip(worlds, (9, end_offset), strict=True):
        steps = [
            (7, 0, True),
            (8, 0, False),
            (7, 1, True),
            None,
            (8, 1, False),
            (7, 2, True),
            None,
            (8, 2, False),
            (7, 3, True),
        ]
        for number, step in enumerate(steps[:length]):
            if step is None:
                world.end_transaction(7, commit=number == 3)
            else:
                producer_id, sequence, transactional = step
                world.append(
                    batch_of(
                        [b"x"],
                        world.clock.ms,
                        producer_id=producer_id,
                        base_sequence=sequence,
                        transactional=transactional,
                    )
                )
            if snapshot and number == 4:
                world.log.opened.take_snapshot(number + 1)
    cut, short = (world.log for world in worlds)
    cut.truncate_to(end_offset)
    cut.check_invariants()
    states = [[vars_of(entry) for entry in log.opened.producers] for log in (cut, short)]
    assert states[0] == states[1]
    assert cut.opened.producers.open_transactions == short.opened.producers.open_transactions
    assert cut.last_stable_offset == short.last_stable_offset


def vars_of(entry: object) -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__slots__}  # type: ignore[attr-defined]
