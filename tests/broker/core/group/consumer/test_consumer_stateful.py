"""Random members of both protocols in one group: whatever they do, a partition has one owner, and all come to rest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.config import GroupConfig, MigrationPolicy
from raftlog.broker.core.group.consumer import large_target, target
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.state import GroupState
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.consumer.classic_client import ClassicClient
from tests.broker.core.group.consumer.consumer_world import Consumer, ConsumerWorld, topic
from tests.broker.core.group.group_world import GROUP
from tests.effort import examples

TOPICS = ["t", "u"]
SUBSCRIPTIONS = st.sampled_from([["t"], ["t"], ["u"], ["t", "u"]])
INSTANCES = st.sampled_from([None, None, "one", "two"])
SETTINGS = ConsumerGroupSettings(session_timeout_ms=9_000, heartbeat_interval_ms=1_000, assignment_interval_ms=500)

Client = Consumer | ClassicClient


class ConsumerGroups(RuleBasedStateMachine):
    """Clients come, beat, change their minds, lose answers, leave and crash; topics grow and go; coordinators fail."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld(GroupConfig(initial_rebalance_delay_ms=0, consumer_max_size=6), settings=SETTINGS)
        self.topics = {"t": topic("t", 3)}
        self.world.set_topics(**self.topics)
        self.clients: list[Client] = []
        self.count = 0
        self.incarnation = 0
        # (group, group epoch, epoch of the target) as last seen
        self.epochs: tuple[ConsumerGroup | None, int, int] = (None, 0, 0)

    @initialize(
        kinds=st.lists(st.sampled_from(["consumer", "eager", "cooperative"]), min_size=1, max_size=3),
        policy=st.sampled_from([MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE]),
    )
    def begin(self, kinds: list[str], policy: MigrationPolicy) -> None:
        self.world.config = self.world.shard.config = self.world.config._replace(migration_policy=policy)
        for kind in kinds:
            self.start_client(kind, ["t"], None)
        for _ in range(4):
            self.everybody_beats()

    @rule(
        kind=st.sampled_from(["consumer", "consumer", "eager", "cooperative"]), topics=SUBSCRIPTIONS, instance=INSTANCES
    )
    def start_client(self, kind: str, topics: list[str], instance: str | None) -> None:
        if len(self.clients) >= 6:
            return
        self.count += 1
        if kind == "consumer":
            self.clients.append(Consumer(self.world, f"m{self.count}", topics, instance))
        else:
            cooperative = kind == "cooperative"
            self.clients.append(ClassicClient(self.world, topics, cooperative=cooperative, instance=instance))
        self.beat(self.clients[-1])

    def beat(self, client: Client) -> None:
        if isinstance(client, Consumer):
            client.beat()
        else:
            client.step()

    @rule()
    def everybody_beats(self) -> None:
        for client in self.clients:
            self.beat(client)
        self.world.resolve_regexes()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def one_beats(self, data: st.DataObject) -> None:
        self.beat(data.draw(st.sampled_from(self.clients)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def an_answer_is_lost(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if isinstance(client, Consumer):
            client.send()
            client.take(None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=SUBSCRIPTIONS, regex=st.sampled_from([None, None, "[tu]", "u.*"]))
    def another_subscription(self, data: st.DataObject, topics: list[str], regex: str | None) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.topics = topics
        if isinstance(client, Consumer):
            client.regex, client.says_all = regex or "", True
            self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), comes_back=st.booleans())
    def leave(self, data: st.DataObject, comes_back: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if isinstance(client, Consumer):
            client.leave(-2 if comes_back and client.instance is not None else -1)
        elif client.member_id:
            self.world.leave(client.member_id, instance=client.instance)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave_and_come_back(self, data: st.DataObject) -> None:
        """Consumers keep their member ids."""
        client = data.draw(st.sampled_from(self.clients))
        if isinstance(client, Consumer):
            client.leave(-1 if client.instance is None else -2)
        elif client.member_id:
            self.world.leave(client.member_id, instance=client.instance)
            client.forget()
        self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.clients.remove(data.draw(st.sampled_from(self.clients)))

    @rule(ms=st.sampled_from([100, 600, 2_000, 9_500]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(change=st.sampled_from(["create u", "grow t", "delete u", "recreate t"]))
    def topics_change(self, change: str) -> None:
        self.incarnation += 1
        match change:
            case "create u":
                self.topics["u"] = topic("u", 2, self.incarnation)
            case "grow t":
                old = self.topics["t"]
                self.topics["t"] = topic("t", min(len(old.partitions) + 1, 6))._replace(topic_id=old.topic_id)
            case "delete u":
                self.topics.pop("u", None)
            case _:
                self.topics["t"] = topic("t", 3, self.incarnation)
        self.world.set_topics(**self.topics)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_write_fails(self, data: st.DataObject) -> None:
        self.world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        client = data.draw(st.sampled_from(self.clients))
        self.beat(client)
        self.world.append_error = ErrorCode.NONE

    @rule(whole=st.booleans(), data=st.data())
    def fail_over(self, whole: bool, data: st.DataObject) -> None:
        """Another broker loads the log, and clients whose requests were delayed ask it again."""
        old = self.world
        self.world = old.restarted()
        self.world.tickets = old.tickets
        self.world.ids = old.ids
        for client in self.clients:
            client.world = self.world
            if isinstance(client, ClassicClient) and (client.joining or client.syncing):
                client.joining = client.syncing = None
                client.generation = -1
        self.epochs = (None, 0, 0)

    @invariant()
    def what_a_client_uses_is_its_own(self) -> None:
        group = self.world.shard.consumer(GROUP)
        if group is None:
            return
        for client in self.clients:
            member = group.members.get(client.member_id)
            if member is None or member.epoch < 0:
                continue
            known = [member.current.assigned, member.current.revoking]
            # Of a topic that is gone there is nothing to use.
            for topic_id in client.owned.keys() & self.world.shard.image.topics_by_id.keys():
                partitions = client.owned[topic_id]
                has = {partition for owned in known for partition in owned.get(topic_id, ())}
                assert partitions <= has, f"{client.member_id} uses {partitions}, and has {has}"

    @invariant()
    def nobody_uses_what_another_member_uses(self) -> None:
        group = self.world.shard.groups.get(GROUP)
        if isinstance(group, ConsumerGroup) or (isinstance(group, ClassicGroup) and group.state is GroupState.STABLE):
            ids = group.members.keys()
        else:
            return
        inside = [client for client in self.clients if client.member_id in ids]
        for one, other in combinations(inside, 2):
            for topic_id in one.owned.keys() & other.owned.keys():
                both = one.owned[topic_id] & other.owned[topic_id]
                assert not both, f"{one.member_id} and {other.member_id} use {both}"

    @invariant()
    def epochs_do_not_go_back(self) -> None:
        group = self.world.shard.consumer(GROUP)
        before, epoch, target_epoch = self.epochs
        if group is not None:
            if group is before:
                assert epoch <= group.epoch.epoch and target_epoch <= group.target_epoch.epoch
            self.epochs = (group, group.epoch.epoch, group.target_epoch.epoch)

    @invariant()
    def the_shard_is_sound(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Left alone, the group comes to rest with every partition in use; each prefix of the log is sound."""
        for _ in range(60):
            self.everybody_beats()
            self.world.advance(1_100)
            self.what_a_client_uses_is_its_own()
            self.nobody_uses_what_another_member_uses()
        self.check_rest()
        self.check_prefixes()

    def check_rest(self) -> None:
        group = self.world.shard.consumer(GROUP)
        if group is None or not group.members:
            return
        assert group.state_name == "Stable", group.state_name
        inside = [client for client in self.clients if client.member_id in group.members]
        assert len(inside) == len(group.members)
        used = {(each, index) for client in inside for each, indexes in client.owned.items() for index in indexes}
        consumed = {
            (self.topics[name].topic_id, partition.partition_id)
            for name in group.topic_subscribers
            if name in self.topics
            for partition in self.topics[name].partitions
        }
        assert used == consumed

    def check_prefixes(self) -> None:
        log = self.world.log
        for end in range(0, len(log), max(1, len(log) // 20)):
            self.world.log = log[:end]
            self.world.restarted()


class LargeConsumerGroups(ConsumerGroups):
    """The same with target assignments that are computed and written beside the heartbeats, a member at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: Iterator[None] = iter(())
        self.patches = [patch.object(target, "AT_ONCE_MAX", -1), patch.object(large_target, "RECORDS_A_STEP", 1)]
        for each in self.patches:
            each.start()

    @rule(count=st.integers(1, 4))
    def some_steps_of_an_assignment(self, count: int) -> None:
        self.take_steps(count)

    def take_steps(self, count: int) -> None:
        for _ in range(count):
            if next(self.steps, self) is self:
                self.steps = self.begin_assignments()

    def begin_assignments(self) -> Iterator[None]:
        """The steps of what is to be computed; no more of them once another broker has loaded the log."""
        world = self.world
        for _ in world.begin_assignments():
            yield
            if self.world is not world:
                return

    @rule()
    def a_step_of_an_assignment_fails(self) -> None:
        self.world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        next(self.steps, None)
        self.world.append_error = ErrorCode.NONE

    def beat(self, client: Client) -> None:
        super().beat(client)
        self.take_steps(1)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for each in self.patches:
                each.stop()


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
TestLargeConsumerGroups = LargeConsumerGroups.TestCase
TestLargeConsumerGroups.settings = settings(max_examples=examples(12), stateful_step_count=30, deadline=None)
