"""Random members doing random things to one group: whatever they do, the group's promises hold."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.group_world import GROUP, World, subscription
from tests.effort import examples

INSTANCES = st.sampled_from([None, None, None, "one", "two"])
PROTOCOLS = st.sampled_from(
    [{"range": subscription("t")}, {"range": subscription("t"), "sticky": b""}, {"sticky": b"", "range": b"x"}]
)


class Client:
    """What one client process believes."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None
        self.joining: int | None = None
        self.syncing: int | None = None
        self.synced = False
        self.plan: list[str] = []


class Groups(RuleBasedStateMachine):
    """Clients that join, sync, beat, leave and stall in any order, over commits that come late, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(GroupConfig(initial_rebalance_delay_ms=500, max_size=5))
        self.clients: list[Client] = []
        # What was answered: generation -> member -> assignment
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.since = 0

    @rule(instance=INSTANCES)
    def start_client(self, instance: str | None) -> None:
        if len(self.clients) < 7:
            self.clients.append(Client(instance))

    @initialize(instances=st.lists(INSTANCES, min_size=2, max_size=4), rounds=st.integers(0, 6))
    def begin_with_a_group(self, instances: list[str | None], rounds: int) -> None:
        for instance in instances:
            self.start_client(instance)
        for _ in range(rounds):
            self.behave(self.clients)
            self.wait(600)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), rounds=st.integers(1, 3), idle=st.integers(0, 1))
    def some_behave(self, data: st.DataObject, rounds: int, idle: int) -> None:
        """Do what clients should do, or a group would hardly ever come to rest; perhaps one of them is idle."""
        order = data.draw(st.permutations(self.clients))[idle:]
        for _ in range(rounds):
            self.behave(order)

    def behave(self, clients: list[Client]) -> None:
        for client in clients:
            if client.joining is not None or client.syncing is not None:
                continue
            if client.generation == -1:
                self.send_join(client, {"range": subscription("t")}, 9)
            elif not client.synced:
                self.send_sync(client)
            elif self.beat_as(client) is not ErrorCode.NONE:
                client.generation = -1

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), protocols=PROTOCOLS, version=st.sampled_from([3, 8, 9]))
    def join(self, data: st.DataObject, protocols: dict[str, bytes], version: int) -> None:
        self.send_join(data.draw(st.sampled_from(self.clients)), protocols, version)

    def send_join(self, client: Client, protocols: dict[str, bytes], version: int) -> None:
        client.joining = self.world.join(
            client.member_id,
            instance=client.instance if version >= 5 else None,
            protocols=protocols,
            version=version,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=9_000,
        )
        self.read_answers()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.send_sync(data.draw(st.sampled_from(self.clients)))

    def send_sync(self, client: Client) -> None:
        plan = {member: f"{client.generation}/{member}".encode() for member in client.plan}
        client.syncing = self.world.sync(
            client.member_id, client.generation, plan, instance=client.instance, protocol=client.protocol or "range"
        )
        self.read_answers()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        self.beat_as(data.draw(st.sampled_from(self.clients)))

    def beat_as(self, client: Client) -> ErrorCode:
        error = self.world.heartbeat(client.member_id, client.generation, client.instance)
        group = self.world.shard.groups.get(GROUP)
        if error is ErrorCode.NONE:
            assert group is not None and group.generation == client.generation
            assert group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
        return error

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.world.leave(client.member_id, instance=client.instance)
        self.clients.remove(client)
        self.read_answers()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The process is gone; a static one may come back under its name."""
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)

    @rule(ms=st.sampled_from([100, 600, 3_000, 6_500, 20_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)
        self.read_answers()

    @rule()
    def hold_commits(self) -> None:
        self.world.hold_commits = True

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]))
    def commit(self, error: ErrorCode) -> None:
        self.world.hold_commits = False
        self.world.commit(error)
        self.read_answers()

    @rule(fails=st.booleans())
    def break_or_mend_the_log(self, fails: bool) -> None:
        self.world.append_error = ErrorCode.KAFKA_STORAGE_ERROR if fails else ErrorCode.NONE

    @rule()
    def change_of_coordinator(self) -> None:
        """Another broker takes over; all who wait are told, and go on with it."""
        self.world.unload()
        self.world.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.read_answers()
        waiting = set(range(1, self.world.tickets + 1)) - self.world.answers.keys()
        assert not waiting, f"tickets {waiting} were forgotten"
        answers, tickets, ids = self.world.answers, self.world.tickets, self.world.ids
        self.world = self.world.restarted()
        self.world.hold_commits = False
        self.world.answers, self.world.tickets, self.world.ids = answers, tickets, ids
        # A generation that was given out before it was committed may be given out again.
        self.assigned.clear()

    def read_answers(self) -> None:
        for client in self.clients:
            if client.joining is not None and client.joining in self.world.answers:
                self.take_joined(client, self.world.answers[client.joining])
                client.joining = None
            if client.syncing is not None and client.syncing in self.world.answers:
                self.take_synced(client, self.world.answers[client.syncing])
                client.syncing = None

    @staticmethod
    def take_joined(client: Client, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code == ErrorCode.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.protocol, client.synced = answer.protocol_name, answer.skip_assignment
            client.plan = [m.member_id for m in answer.members]
        elif answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1

    def take_synced(self, client: Client, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            client.generation = -1
            return
        client.synced = True
        members = self.assigned.setdefault(client.generation, {})
        seen = members.setdefault(client.member_id, bytes(answer.assignment))
        assert seen == answer.assignment, "two assignments in one generation"

    @invariant()
    def promises_hold(self) -> None:
        self.world.check()

    @invariant()
    def no_parked_request_is_forgotten(self) -> None:
        """Every ticket without an answer is with a member, or with a write that is on its way."""
        members = [m for g in self.world.shard.groups.values() for m in g.members.values()]
        held = {t for m in members for t in (m.join_ticket, m.sync_ticket) if t is not None}
        held |= {then.ticket for then in self.world.uncommitted if hasattr(then, "ticket")}
        assert set(range(1, self.world.tickets + 1)) - self.world.answers.keys() == held

    @invariant()
    def a_reload_equals_what_is_live(self) -> None:
        group = self.world.shard.groups.get(GROUP)
        if group is None or group.state is not GroupState.STABLE or self.world.uncommitted:
            return
        if group.awaiting_join_count:
            return
        other = self.world.restarted().shard.groups[GROUP]
        assert (other.state, other.generation, other.protocol, other.leader) == (
            group.state,
            group.generation,
            group.protocol,
            group.leader,
        )
        assert other.stored == group.stored
        assert {m.member_id: m.assignment for m in other.members.values()} == {
            m.member_id: m.assignment for m in group.members.values()
        }

    def teardown(self) -> None:
        """Left alone for long enough, every group comes to rest and nobody waits."""
        self.world.append_error = ErrorCode.NONE
        self.world.hold_commits = False
        self.world.commit()
        for _ in range(100):
            self.world.advance(5_000)
        assert self.world.state() in (GroupState.EMPTY, GroupState.DEAD)
        assert set(range(1, self.world.tickets + 1)) == self.world.answers.keys()


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=examples(100), stateful_step_count=40)
