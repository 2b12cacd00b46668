"""Transactional clients, unmodified and in processes of their own, while they are stopped and brokers are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing import cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest
from tests import java
from tests.system.cluster.transactions import GROUP_KEY, Copier, Moment, Step, Wire
from tests.system.cluster.wiretap import Request, Wiretap
from tests.system.cluster.world import World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with cluster(3, settings=SETTINGS) as running:
        yield World(running)


STOPS = ["while its first record is under way", "between its records", "before its commit"]


@pytest.mark.parametrize("when", STOPS)
def test_a_client_stopped_past_its_time_out_is_fenced_and_nothing_of_it_is_seen(
    world: World, name: str, when: str
) -> None:
    world.create(name, 2)
    wire = Wire(world.bootstrap)
    Copier(wire, name, version=2).copy()
    tap = Wiretap(world.bootstrap, frozenset({ApiKey.PRODUCE}))
    rest = "commit" if when == "before its commit" else "produce"
    command = [sys.executable, str(Path(__file__).with_name("slow_producer.py")), tap.bootstrap, name, "1", rest]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stored = threading.Event()

    def watch(request: Request, moment: Moment, answer: object) -> bool:
        if when == STOPS[0] and not stored.is_set():
            if moment is Moment.UNDER_WAY:
                client.send_signal(signal.SIGSTOP)
            elif moment is Moment.AFTER:
                stored.set()
        return True

    tap.watch = watch
    try:
        assert client.stdin is not None and client.stdout is not None
        if when == STOPS[0]:
            assert stored.wait(DEADLINE_SECONDS)
        else:
            assert client.stdout.readline() == "open\n"
            client.send_signal(signal.SIGSTOP)
        # Its transaction is over when these are stable.
        assert [wire.visible(name, index) for index in (0, 1)] == [[0], [0]]
        assert wire.committed(name, name) == 1
        client.send_signal(signal.SIGCONT)
        said, _ = client.communicate("\n", DEADLINE_SECONDS)
        assert said.startswith("refused"), said
    finally:
        client.kill()
        client.wait()
        tap.close()
    # Nobody has to come after it: what it still sent is not in any transaction.
    assert [wire.visible(name, index) for index in (0, 1)] == [[0], [0]]
    heir = Copier(wire, name, version=2)
    assert heir.copy() == 1
    assert [wire.visible(name, index) for index in (0, 1)] == [[0, 1], [0, 1]]
    wire.close()


def test_the_coordinator_tells_the_lag_also_of_partitions_that_others_lead(world: World, name: str) -> None:
    world.create(name, 3)
    wire = Wire(world.bootstrap)
    wait_until(lambda: len({wire.leader(name, index) for index in range(3)}) == 3, "each broker leads one")
    copier = Copier(wire, name, version=2, partitions=3)
    copier.copy()
    commit = OffsetCommitRequest(
        group_id=name,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                    for index in range(3)
                ],
            )
        ],
    )
    wire.until_answered(lambda: wire.coordinator(name, GROUP_KEY), commit, 8)
    assert [wire.visible(name, index) for index in range(3)] == [[0]] * 3
    # A record and its marker are there; another record is part of a transaction that stays open.
    copier.go_on(1, [Step.PRODUCE, Step.PRODUCE_MORE])
    request = OffsetFetchRequest(group_id=name, topics=None, with_lag=True)

    def lags() -> list[tuple[int, int]]:
        answer = wire.until_answered(lambda: wire.coordinator(name, GROUP_KEY), request, 7)
        found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
        assert all(each.lag_ms >= 0 for each in found)
        return [(each.high_watermark, each.last_stable_offset) for each in found]

    wait_until(lambda: lags() == [(3, 2)] * 3, f"lags are {lags()}")
    copier.go_on(1, [Step.COMMIT_OFFSETS, Step.END])
    wire.close()


class TestJavaCopier:
    """Kafka's own transactional-message-copier, while each broker is killed in turn."""

    pytestmark = [*java.marks, pytest.mark.slow]

    MESSAGES = 20_000

    @pytest.mark.parametrize("options", [(), ("--group-mode", "--use-group-metadata", "--enable-random-aborts")])
    def test_copies_exactly_once(self, world: World, name: str, options: tuple[str, ...]) -> None:
        source, target = world.create(f"{name}-in"), world.create(f"{name}-out")
        wire = Wire(world.bootstrap)
        numbers = [b"%d" % number for number in range(self.MESSAGES)]
        fill(world, source, numbers)
        copied = -1

        def copier() -> java.Tool:
            return java.Tool(
                "transactional-message-copier",
                *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
                *("--broker-list", world.bootstrap, "--consumer-group", name, "--transactional-id", name),
                *("--transaction-size", "100", "--max-messages", "-1", *options),
            )

        tool = copier()
        for broker in world.cluster.brokers:
            before = copied
            wait_until(
                lambda before=before: wire.committed(name, source) > before,  # type: ignore[misc]
                "the copier goes on",
                DEADLINE_SECONDS,
            )
            copied = wire.committed(name, source)
            broker.kill()
            broker.start()
        tool.finish()
        assert wire.committed(name, source) == self.MESSAGES
        assert wire.visible(target, 0) == list(range(self.MESSAGES))
        wire.close()


def fill(world: World, topic: str, values: list[bytes]) -> None:
    """One partition with these values."""
    from tests.system.clients.confluent import producer

    client = producer(world.bootstrap, linger_ms=5)
    began = time.monotonic()
    for value in values:
        client.produce(topic, value, partition=0)
        client.poll(0)
    client.flush(DEADLINE_SECONDS)
    assert time.monotonic() - began < DEADLINE_SECONDS
