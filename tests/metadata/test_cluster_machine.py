"""Random commands on a random cluster, with logs: whatever happens, nothing that is committed is lost cleanly.

Beside the metadata the machine keeps what each replica's log holds (as a length) and how far each partition is
committed, and takes from them what crashes and wiped disks take. Then a leader that is elected cleanly has to hold all
that is committed.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raftlog.metadata import cluster_commands as c
from raftlog.metadata.commands import NO_EPOCH, CreatePartitions, DeleteTopics, MorePartitions, NewTopic, RegisterBroker
from raftlog.metadata.image import PartitionState
from raftlog.metadata.records import NO_LEADER, ResourceType
from raftlog.wire.errors import ErrorCode
from tests.effort import examples
from tests.metadata.world import DELETE, SET, World

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b")
brokers = st.sampled_from(BROKERS)
rarely = st.integers(0, 7)
topics = st.sampled_from(TOPICS)
replica_sets = st.lists(brokers, min_size=1, max_size=3, unique=True).map(tuple)


class Cluster(RuleBasedStateMachine):
    """Lengths by (topic id, partition, broker); `committed` and `excused` by (topic id, partition)."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(brokers=0, min_insync_replicas="2")
        self.incarnations = 0
        self.directories: dict[int, tuple[bytes, ...]] = {b: (bytes([b]) * 16,) for b in BROKERS}
        self.lengths: dict[tuple[bytes, int, int], int] = {}
        self.committed: dict[tuple[bytes, int], int] = {}
        self.before: dict[tuple[bytes, int], PartitionState] = {}
        self.epochs: dict[int, int] = {}
        self.excused: set[tuple[bytes, int]] = set()
        for broker_id in BROKERS:
            self.register(broker_id, sound=True, survived=False)
            self.heartbeat(broker_id, "serve")
        self.create("a", [(1, 2, 3), (2, 3, 4)])
        self.set_min_isr("a", "2")
        self.replicate(set(BROKERS), 1)

    # -- helpers -----------------------------------------------------------------------------------

    def execute(self, command: Any, *, joining: tuple[int, ...] = ()) -> Any:
        answer = self.world.execute(command)
        self.look(joining=joining)
        return answer

    def partitions(self) -> list[tuple[str, bytes, PartitionState]]:
        return [(t.name, t.topic_id, p) for t in self.world.image.topics.values() for p in t.partitions]

    def unclean(self, topic: str) -> bool:
        values = self.world.image.configs_of(ResourceType.TOPIC, topic)
        return values.get("unclean.leader.election.enable") == "true"

    def look(self, by_hand: bool = False, joining: tuple[int, ...] = ()) -> None:
        """Compare each partition with what it was before the last command. `joining`: proposed for the ISR by it."""
        image = self.world.image
        for name, topic_id, state in self.partitions():
            key = (topic_id, state.partition_id)
            before = self.before.get(key)
            self.before[key] = state
            if before is None or before is state:
                continue
            assert state.partition_epoch == before.partition_epoch + 1
            assert state.leader_epoch - before.leader_epoch in (0, 1)
            if state.leader != before.leader:
                assert state.leader_epoch > before.leader_epoch
            if state.leader in (NO_LEADER, before.leader):
                continue
            is_clean = state.leader in {*before.isr, *before.eligible_leader_replicas, *joining} or (
                before.last_known_leader == state.leader
            )
            # A leader that recovers from an unclean election may be followed by another one.
            if state.leader_recovering and not (before.leader_recovering and is_clean):
                assert by_hand or self.unclean(name), "an unclean election that nobody allowed"
                self.committed[key] = 0
                self.excused.discard(key)
            else:
                assert is_clean or by_hand, (before, state)
            if key not in self.excused:
                held_by_leader = self.lengths.get((*key, state.leader), 0)
                assert held_by_leader >= self.committed.get(key, 0), (before, state, image.brokers)
        for broker_id, broker in image.brokers.items():
            assert broker.epoch >= self.epochs.get(broker_id, 0)
            self.epochs[broker_id] = broker.epoch

    def is_enough(self, topic: str, state: PartitionState) -> bool:
        """Whether those who are in sync may commit."""
        value = self.world.resolver.topic_values(self.world.image, topic)["min.insync.replicas"]
        assert isinstance(value, int)
        return len(state.isr) >= min(value, len(state.replicas))

    def advance(self, topic: str, topic_id: bytes, state: PartitionState) -> None:
        if state.leader != NO_LEADER and self.is_enough(topic, state):
            key = (topic_id, state.partition_id)
            held = min(self.lengths.get((*key, b), 0) for b in state.isr)
            self.committed[key] = max(self.committed.get(key, 0), held)

    def lose(self, broker_id: int, kept: int) -> None:
        """The end of each of the broker's logs is gone."""
        for key in self.lengths:
            if key[2] == broker_id:
                self.lengths[key] = min(self.lengths[key], kept)

    # -- brokers -----------------------------------------------------------------------------------

    @rule(broker_id=brokers, sound=st.booleans(), survived=st.booleans(), kept=st.integers(0, 3))
    def register(self, broker_id: int, sound: bool, survived: bool, kept: int = 99) -> None:
        known = self.world.image.brokers.get(broker_id)
        if known is not None and not sound and not survived:
            for _, topic_id, state in self.partitions():
                # Nobody else may have it: then what the crash left is all that there is.
                if {*state.isr, *state.eligible_leader_replicas} == {broker_id}:
                    self.excused.add((topic_id, state.partition_id))
            self.lose(broker_id, kept)
        self.incarnations += 1
        command = RegisterBroker(
            broker_id,
            self.incarnations.to_bytes(16, "big"),
            (),
            None,
            self.directories[broker_id],
            fenced=True,
            previous_broker_epoch=known.epoch if known is not None and sound else NO_EPOCH,
            log_survived=survived,
        )
        assert self.execute(command).error is ErrorCode.NONE

    @rule(broker_id=brokers, serve=st.booleans())
    def wipe(self, broker_id: int, serve: bool) -> None:
        """The disk is exchanged: the same broker comes back with an empty directory."""
        old = self.directories[broker_id]
        kept = {key: length for key, length in self.lengths.items() if key[2] == broker_id}
        self.directories[broker_id] = (self.incarnations.to_bytes(8, "big") + bytes([broker_id]) * 8,)
        self.lose(broker_id, 0)
        self.register(broker_id, sound=True, survived=True)
        for _, _, state in self.partitions():
            held = {*state.isr, *state.eligible_leader_replicas}
            assert broker_id not in held, "a wiped directory counts as data"
        if serve:
            self.heartbeat(broker_id, "serve")
            return
        # It was the wrong disk: the old one is put back.
        self.directories[broker_id] = old
        self.lengths.update(kept)
        self.register(broker_id, sound=True, survived=True)

    @rule(broker_id=brokers, wish=st.sampled_from(["serve", "serve", "fence", "stop"]))
    def heartbeat(self, broker_id: int, wish: str) -> None:
        broker = self.world.image.brokers.get(broker_id)
        if broker is None:
            return
        command = c.BrokerHeartbeat(broker_id, broker.epoch, 1, wish == "fence", wish == "stop")
        answer = self.execute(command)
        assert answer.error is ErrorCode.NONE
        assert answer.is_fenced == self.world.image.brokers[broker_id].fenced
        if answer.should_shut_down:
            assert all(state.leader != broker_id for _, _, state in self.partitions())

    @rule(dead=st.lists(brokers, min_size=1, max_size=3, unique=True))
    def fence(self, dead: list[int]) -> None:
        known = self.world.image.brokers
        self.execute(c.FenceBrokers(tuple((b, known[b].epoch) for b in dead if b in known)))

    @rule(index=st.integers(0, 1), appended=st.integers(0, 1), lower=st.booleans())
    def fence_the_isr(self, index: int, appended: int, lower: bool) -> None:
        """Exactly those die who were in sync, after they have committed something that nobody else has."""
        for name, _, state in self.partitions():
            if name == "a" and state.partition_id == index and state.isr:
                if lower:
                    self.set_min_isr("a", "1")
                self.replicate(set(state.isr), appended)
                self.fence(list(state.isr))
                if lower:
                    self.set_min_isr("a", "2")

    @rule(broker_id=brokers, rng=rarely)
    def unregister(self, broker_id: int, rng: int) -> None:
        if rng:
            return
        self.execute(c.UnregisterBroker(broker_id))

    # -- topics ------------------------------------------------------------------------------------

    @rule(name=topics, replicas=st.lists(replica_sets.filter(lambda r: len(r) == 3), min_size=1, max_size=2))
    def create(self, name: str, replicas: list[tuple[int, ...]]) -> None:
        self.world.create(NewTopic(name, assignments=tuple(enumerate(replicas))))
        self.look()

    @rule(name=topics, rng=rarely)
    def delete(self, name: str, rng: int) -> None:
        if rng:
            return
        self.execute(DeleteTopics((name,)))

    @rule(name=topics)
    def grow(self, name: str) -> None:
        self.execute(CreatePartitions((MorePartitions(name, 3),)))

    @rule(name=topics, value=st.sampled_from(["1", "2", "3", None]))
    def set_min_isr(self, name: str, value: str | None) -> None:
        self.set_config(name, "min.insync.replicas", value)

    @rule(name=topics, value=st.sampled_from(["true", None]), rng=rarely)
    def set_unclean(self, name: str, value: str | None, rng: int) -> None:
        if value and rng:
            return
        self.set_config(name, "unclean.leader.election.enable", value)

    def set_config(self, name: str, config: str, value: str | None) -> None:
        self.world.alter(ResourceType.TOPIC, name, (config, DELETE if value is None else SET, value))
        self.look()

    # -- partitions --------------------------------------------------------------------------------

    @rule(fetching=st.sets(brokers), appended=st.integers(0, 2))
    def replicate(self, fetching: set[int], appended: int) -> None:
        """Leaders append, some followers fetch, and what all in-sync replicas have is committed."""
        for name, topic_id, state in self.partitions():
            if state.leader == NO_LEADER:
                continue
            leader = (topic_id, state.partition_id, state.leader)
            self.lengths[leader] = self.lengths.get(leader, 0) + appended
            for broker_id in state.replicas:
                if broker_id in fetching and self.world.image.brokers.get(broker_id, None) is not None:
                    self.lengths[topic_id, state.partition_id, broker_id] = self.lengths[leader]
            self.advance(name, topic_id, state)

    @rule(appended=st.integers(1, 2))
    def catch_up(self, appended: int) -> None:
        """All that are there come back into the ISR."""
        self.replicate(set(BROKERS), appended)
        for broker_id in BROKERS:
            self.heartbeat(broker_id, "serve")
        self.replicate(set(BROKERS), 0)
        self.propose(set(), False, True)

    @rule(shrink=st.sets(brokers), stale=st.booleans(), recovered=st.booleans())
    def propose(self, shrink: set[int], stale: bool, recovered: bool) -> None:
        """Each leader lets in whoever has caught up and puts some others out."""
        for name, topic_id, state in self.partitions():
            if state.leader == NO_LEADER:
                continue
            lengths = [self.lengths.get((topic_id, state.partition_id, b), 0) for b in state.replicas]
            end = self.lengths.get((topic_id, state.partition_id, state.leader), 0)
            isr = [
                b
                for b, length in zip(state.replicas, lengths, strict=True)
                if b == state.leader or (b not in shrink and (b in state.isr or length >= end))
            ]
            recovering = state.leader_recovering and not recovered
            proposal = c.IsrProposal(
                topic_id,
                state.partition_id,
                state.leader_epoch,
                state.partition_epoch - stale,
                tuple(c.IsrMember(b) for b in isr),
                recovering,
            )
            broker = self.world.image.brokers[state.leader]
            answer = self.execute(c.AlterPartitions(state.leader, broker.epoch, (proposal,)), joining=tuple(isr))
            (result,) = answer.results
            if stale:
                assert result.error is ErrorCode.INVALID_UPDATE_VERSION
            after = self.world.image.partition(name, state.partition_id)
            assert after is not None
            self.advance(name, topic_id, after)

    @rule(kind=st.sampled_from(list(c.ElectionType)), rng=rarely)
    def elect(self, kind: c.ElectionType, rng: int) -> None:
        if kind is c.ElectionType.UNCLEAN and rng:
            return
        answer = self.world.execute(c.ElectLeaders(kind, None))
        self.look(by_hand=kind is c.ElectionType.UNCLEAN)
        assert answer.error is ErrorCode.NONE

    @rule()
    def rebalance(self) -> None:
        self.execute(c.RebalanceLeaders(0, 10))

    @rule(name=topics, replicas=replica_sets | st.none())
    def reassign(self, name: str, replicas: tuple[int, ...] | None) -> None:
        self.execute(c.AlterReassignments((c.Reassignment(name, 0, replicas),)))

    # -- what always holds ---------------------------------------------------------------------------

    @invariant()
    def image_is_consistent(self) -> None:
        image = self.world.image
        image.check_invariants()
        image.check_decisions()
        for name, _, state in self.partitions():
            everybody = {*state.isr, *state.eligible_leader_replicas, *state.adding_replicas, *state.removing_replicas}
            assert everybody <= set(state.replicas), f"{name}: somebody is no replica"
            assert not set(state.isr) & set(state.eligible_leader_replicas), f"{name}: both in ISR and ELR"
            assert (state.leader == NO_LEADER) == (not state.isr), f"{name}: in sync with nobody"
            if state.eligible_leader_replicas:
                assert not self.is_enough(name, state), f"{name}: others may lead than those who commit"
            for broker_id in state.isr:
                assert image.is_usable(broker_id), f"{name}: {broker_id} is in sync and cannot serve"

    @precondition(lambda self: any(b not in self.world.image.brokers for b in BROKERS))
    @rule()
    def come_again(self) -> None:
        """Brokers that were unregistered join as if new, with what they have."""
        for broker_id in BROKERS:
            if broker_id not in self.world.image.brokers:
                self.register(broker_id, sound=False, survived=True)


Cluster.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=40)
TestCluster = Cluster.TestCase


def test_two_unclean_elections_may_follow_each_other() -> None:
    cluster = Cluster()
    cluster.set_min_isr("a", "1")
    cluster.register(1, sound=False, survived=False, kept=0)
    cluster.heartbeat(3, "stop")
    cluster.set_unclean(name="a", rng=0, value="true")
    cluster.catch_up(1)
    cluster.register(2, sound=False, survived=False, kept=0)
    cluster.heartbeat(2, "serve")
    cluster.fence_the_isr(0, 0, lower=False)
    cluster.image_is_consistent()
