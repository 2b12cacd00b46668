"""The consumer protocol (KIP-848) with librdkafka, and the death of the coordinator at every step of a rebalance."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from raftlog.testing import BrokerProcess
from tests.conftest import Broker
from tests.system.clients.groups import DEADLINE_SECONDS, broker_of_our_own, fresh_name, make_topic, produce, until

PARTITIONS = 6
QUICK_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
CLASSIC = {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 100}


class Member:
    """A consumer, what it owns, and what it has read and committed."""

    def __init__(self, servers: str, group: str, topic: str, protocol: str, **options: Any) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "log_level": 0,
        }
        settings |= {name.replace("_", "."): value for name, value in options.items()}
        self.consumer = Consumer(settings | (CLASSIC if protocol == "classic" else {}))
        self.owned: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self.closed = False
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {p.partition for p in partitions}

    def _gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {p.partition for p in partitions}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None
            self.read.append((partition, int(value)))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.consumer.close()
            self.owned.clear()


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Group:
    """Members of one group, polled in turns. Invariant: no partition is owned by two of them."""

    def __init__(self, closing: ExitStack, servers: str, topic: str, protocol: str, **options: Any) -> None:
        self.name = fresh_name("group")
        self.members: list[Member] = []
        self._closing = closing
        self._given = (servers, self.name, topic, protocol)
        self._options = options

    def join(self, **options: Any) -> Member:
        made = Member(*self._given, **self._options, **options)
        self._closing.callback(made.close)
        self.members.append(made)
        return made

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.close()

    def poll(self) -> None:
        for member in self.members:
            member.poll()
            owned = [partition for each in self.members for partition in each.owned]
            assert len(owned) == len(set(owned)), f"two owners: {[each.owned for each in self.members]}"

    def poll_until(self, condition: Any, what: str) -> None:
        def step() -> bool:
            self.poll()
            return bool(condition())

        until(step, what)

    def wait_until_shared(self) -> None:
        share = PARTITIONS // len(self.members)
        self.poll_until(lambda: all(len(each.owned) == share for each in self.members), "all have their share")


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_leave_and_share_what_there_is(tmp_path: Path, closing: ExitStack, assignor: str) -> None:
    with broker_of_our_own(tmp_path, **QUICK_HEARTBEATS) as broker:
        topic = make_topic(broker.address, PARTITIONS, records=3)
        group = Group(closing, broker.address, topic, "consumer", group_remote_assignor=assignor)
        for _ in range(3):
            group.join()
            group.wait_until_shared()
        read = [entry for each in group.members for entry in each.read]
        assert len(set(read)) <= 3 * PARTITIONS
        group.leave(group.members[0])
        group.wait_until_shared()
        group.poll_until(lambda: {n for each in group.members for _, n in each.read} >= {0, 1, 2}, "all is read")
        closing.close()


def test_a_static_member_comes_back_to_its_partitions_and_another_with_its_name_is_kept_out(
    tmp_path: Path, closing: ExitStack
) -> None:
    with broker_of_our_own(tmp_path, **QUICK_HEARTBEATS) as broker:
        topic = make_topic(broker.address, PARTITIONS)
        group = Group(closing, broker.address, topic, "consumer")
        first, second = group.join(group_instance_id="one"), group.join(group_instance_id="two")
        group.wait_until_shared()
        before, kept = set(first.owned), set(second.owned)
        group.leave(first)
        for _ in range(20):
            group.poll()
        assert second.owned == kept, "nobody takes what a static member will be back for"
        again = group.join(group_instance_id="one")
        group.wait_until_shared()
        assert (again.owned, second.owned) == (before, kept)
        intruder = Member(broker.address, group.name, topic, "consumer", group_instance_id="two")
        closing.callback(intruder.close)

        def refused() -> bool:
            message = intruder.consumer.poll(0.1)
            error = None if message is None else message.error()
            return error is not None and error.code() in (KafkaError._FATAL, KafkaError.UNRELEASED_INSTANCE_ID)

        until(refused, "who has the name of a member that is there is refused")
        closing.close()


def test_a_regular_expression_subscribes_to_topics_as_they_come(broker: Broker, closing: ExitStack) -> None:
    servers, family = broker.bootstrap_servers, fresh_name("family")
    admin = AdminClient({"bootstrap.servers": servers})
    from confluent_kafka.cimpl import NewTopic

    names = [f"{family}.{name}" for name in ("a", "b")]
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in [*names, f"other.{family}"]]).values():
        future.result(DEADLINE_SECONDS)
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": fresh_name("group"), "group.protocol": "consumer", "log_level": 0}
    )
    closing.callback(consumer.close)
    consumer.subscribe([f"^{re.escape(family)}\\.[a-z]"])

    def assigned() -> set[str]:
        consumer.poll(0.05)
        return {partition.topic for partition in consumer.assignment()}

    until(lambda: assigned() == set(names), "what matches is subscribed to, and nothing else")


def test_a_groups_settings_reach_its_members_with_the_next_heartbeat(tmp_path: Path, closing: ExitStack) -> None:
    settings = {**QUICK_HEARTBEATS, "group.consumer.heartbeat.interval.ms": "5000"}
    with broker_of_our_own(tmp_path, **settings) as broker:
        topic = make_topic(broker.address, PARTITIONS)
        group = Group(closing, broker.address, topic, "consumer")
        resource = ConfigResource(ResourceType.GROUP, group.name)
        entry = ConfigEntry("consumer.heartbeat.interval.ms", "100", incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        admin = AdminClient({"bootstrap.servers": broker.address})
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(DEADLINE_SECONDS)
        group.join()
        group.wait_until_shared()
        group.join()
        began = time.monotonic()
        group.wait_until_shared()
        # The first member hears of the second within one of its heartbeats: with five seconds it would be five.
        assert time.monotonic() - began < 4
        closing.close()


def group_steps(log: Path, group: str) -> int:
    """How many things the coordinator has said about the group."""
    return log.read_text().count(f"group={group} ")


STEPS = {"classic": 8, "consumer": 7}
"""What a coordinator says of a group in the story below, at least: each of these is a step at which it dies."""
OFTEN = 4
"""The step that is tried with every `make test`, for each protocol; all are tried by `make group-kills`."""


@pytest.mark.parametrize(
    ("protocol", "step"),
    [
        pytest.param(protocol, step, marks=pytest.mark.long if step == OFTEN else pytest.mark.slow)
        for protocol, steps in STEPS.items()
        for step in range(1, steps + 1)
    ],
)
def test_the_coordinator_dies_at_a_step_of_a_rebalance_and_nothing_is_owned_twice_or_forgotten(
    tmp_path: Path, closing: ExitStack, protocol: str, step: int
) -> None:
    with broker_of_our_own(tmp_path, **QUICK_HEARTBEATS) as broker:
        topic = make_topic(broker.address, PARTITIONS, records=5)
        group = Group(closing, broker.address, topic, protocol)
        story = _Story(broker, tmp_path / "broker.log", group, topic, step)
        story.tell()
        assert story.has_killed, f"only {group_steps(story.log, group.name)} steps"
        closing.close()


class _Story:
    """Three members come, commit, and one leaves; kill -9 of the coordinator as soon as it has told of step `step`."""

    def __init__(self, broker: BrokerProcess, log: Path, group: Group, topic: str, step: int) -> None:
        self.broker, self.log, self.group, self.topic, self.step = broker, log, group, topic, step
        self.has_killed = False
        self.committed: dict[int, int] = {}

    def tell(self) -> None:
        for _ in range(3):
            self.group.join()
            self._wait_until_shared()
            self._commit()
        self.group.members[0].close()
        self.group.members.pop(0)
        self._maybe_kill()
        self._wait_until_shared(2)
        self._commit()
        produce(self.broker.address, self.topic, PARTITIONS, range(5, 7))
        expected = {(partition, number) for partition in range(PARTITIONS) for number in (5, 6)}
        members = self.group.members
        self._poll_until(lambda: expected <= {entry for each in members for entry in each.read}, "the rest is read")
        self._commit()
        self._check_committed()

    def _poll_until(self, condition: Any, what: str) -> None:
        def step() -> bool:
            self.group.poll()
            self._maybe_kill()
            return bool(condition())

        until(step, what)

    def _wait_until_shared(self, members: int = 0) -> None:
        share = PARTITIONS // (members or len(self.group.members))
        sharing = list(self.group.members)
        self._poll_until(lambda: all(len(each.owned) == share for each in sharing), "all have their share")

    def _maybe_kill(self) -> None:
        if not self.has_killed and group_steps(self.log, self.group.name) >= self.step:
            self.has_killed = True
            self.broker.kill()
            self.broker.start()

    def _commit(self) -> None:
        """Each member commits one more than it last did for its partitions; refused ones count for nothing."""
        for member in self.group.members:
            mine = {partition: self.committed.get(partition, 0) + 1 for partition in sorted(member.owned)}
            if not mine:
                continue
            offsets = [TopicPartition(self.topic, partition, offset) for partition, offset in mine.items()]
            try:
                member.consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                continue
            self.committed |= mine
        self._check_committed()

    def _check_committed(self) -> None:
        asked = [TopicPartition(self.topic, partition) for partition in sorted(self.committed)]
        if not asked:
            return

        def found() -> Any:
            try:
                return self.group.members[0].consumer.committed(asked, timeout=5)
            except KafkaException:
                return None

        for each in until(found, "the committed offsets are told"):
            assert each.offset >= self.committed[each.partition], "a committed offset went back"
