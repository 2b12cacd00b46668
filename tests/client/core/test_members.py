"""Members of a classic group and a coordinator without I/O: replies are lost, members are thrown out, and time passes.

Whatever happens, no two members of one generation have the same partition, and what a member was told to read is what
it thinks it owns. When it is quiet again, each partition has a reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.client.core.assignment import read_assignment, write_assignment, write_subscription
from raftlog.client.core.classic_member import ClassicMember, State
from raftlog.client.core.errors import TimedOut
from raftlog.client.core.membership import Assign, Fail, Learn, Lose, Partitions, Revoke, Send
from raftlog.client.core.settings import ConsumerSettings
from raftlog.wire.errors import ErrorCode
from raftlog.wire.internal.consumer_protocol import decode_subscription
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.effort import examples

PARTITIONS = {"t": 4, "u": 3}
COUNT = 3


class Reader:
    """A member as a runner drives it: one request at a time, and what it is told to do one after the other.

    It goes on while a heartbeat is not answered, and forgets it with the next request.
    """

    def __init__(self, assignor: str) -> None:
        self.core = ClassicMember("g", ConsumerSettings(assignors=(assignor,)), frozenset(PARTITIONS))
        self.request: Any = None
        self.told: deque[Assign | Revoke | Lose] = deque()
        self.reads: Partitions = frozenset()


class Coordinator:
    def __init__(self) -> None:
        self.names = 0
        self.generation = 0
        self.members: set[str] = set()
        self.joining: dict[str, tuple[Reader, JoinGroupRequest]] = {}
        self.syncing: dict[str, Reader] = {}
        self.beating: list[tuple[Reader, HeartbeatRequest]] = []
        """Heartbeats that wait for news."""
        self.shares: dict[str, bytes] | None = None
        self.rebalancing = True

    def ask(self, reader: Reader, request: Any) -> Any:
        """The answer, or None if it comes later (`answers`)."""
        match request:
            case JoinGroupRequest() if not request.member_id:
                self.names += 1
                self.members.add(f"m{self.names}")
                return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{self.names}")
            case JoinGroupRequest() if request.member_id not in self.members:
                return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            case JoinGroupRequest():
                self.rebalancing = True
                self.joining[request.member_id] = (reader, request)
                return None
            case SyncGroupRequest():
                if (code := self.check(request.member_id, request.generation_id)) != ErrorCode.NONE:
                    return SyncGroupResponse(error_code=code)
                if request.assignments:
                    self.shares = {each.member_id: each.assignment for each in request.assignments}
                self.syncing[request.member_id] = reader
                return None
            case HeartbeatRequest():
                self.beating.append((reader, request))
                return None

    def check(self, member: str, generation: int) -> ErrorCode:
        if member not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.rebalancing else ErrorCode.NONE

    def answers(self) -> list[tuple[Reader, Any]]:
        """What can be answered now of what waits."""
        found: list[tuple[Reader, Any]] = self.answers_to_heartbeats(with_news=True)
        if self.rebalancing:
            found += [(reader, SyncGroupResponse(error_code=27)) for reader in self.syncing.values()]
            self.syncing = {}
        if self.rebalancing and self.joining and set(self.joining) == self.members:
            self.generation += 1
            self.rebalancing, self.shares = False, None
            leader = min(self.joining)
            metadata = {name: asked.protocols[0].metadata for name, (_, asked) in self.joining.items()}
            everybody = [JoinGroupResponseMember(member_id=name, metadata=each) for name, each in metadata.items()]
            for name, (reader, asked) in self.joining.items():
                answer = JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_name=asked.protocols[0].name,
                    leader=leader,
                    member_id=name,
                    members=everybody if name == leader else [],
                )
                found.append((reader, answer))
            self.joining = {}
        if self.shares is not None:
            found += [(each, SyncGroupResponse(assignment=self.shares[name])) for name, each in self.syncing.items()]
            self.syncing = {}
        return found

    def answers_to_heartbeats(self, *, with_news: bool) -> list[tuple[Reader, Any]]:
        asked = [(each, self.check(each[1].member_id, each[1].generation_id)) for each in self.beating]
        due = [(each, code) for each, code in asked if not with_news or code != ErrorCode.NONE]
        self.beating = [each for each, code in asked if with_news and code == ErrorCode.NONE]
        return [(reader, HeartbeatResponse(error_code=code)) for (reader, _), code in due]

    def throw_out(self, member: str) -> None:
        self.members.discard(member)
        self.joining.pop(member, None)
        self.syncing.pop(member, None)
        self.rebalancing = True


class Group(RuleBasedStateMachine):
    @initialize(assignor=st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"]))
    def begin(self, assignor: str) -> None:
        self.readers = [Reader(assignor) for _ in range(COUNT)]
        self.coordinator = Coordinator()
        self.now = 100.0

    @rule(which=st.integers(0, COUNT - 1), lost=st.sampled_from(["", "", "", "request", "reply"]))
    def go_on(self, which: int, lost: str) -> None:
        reader = self.readers[which]
        if reader.request is not None and not isinstance(reader.request, HeartbeatRequest):
            return
        match reader.core.next(self.now):
            case Send(request=request):
                self.forget_heartbeat(reader)
                reader.request = request
                answer = None if lost == "request" else self.coordinator.ask(reader, request)
                if lost:
                    self.lose(reader)
                elif answer is not None:
                    self.tell(reader, answer)
            case Learn():
                reader.core.learned(PARTITIONS)
            case Assign() | Revoke() | Lose() as told:
                reader.told.append(told)
            case Fail(error=error):
                raise error
        self.hear()

    @rule(rounds=st.integers(1, 12))
    def all_go_on(self, rounds: int) -> None:
        self.rounds(rounds, range(COUNT))

    @rule(which=st.integers(0, COUNT - 1), rounds=st.integers(1, 30))
    def one_stands_still_and_is_thrown_out(self, which: int, rounds: int) -> None:
        self.throw_out(which)
        self.rounds(rounds, [each for each in range(COUNT) if each != which])

    @rule(which=st.integers(0, COUNT - 1))
    def do_what_is_told(self, which: int) -> None:
        reader = self.readers[which]
        if not reader.told:
            return
        match reader.told.popleft():
            case Assign(partitions=partitions):
                assert not partitions & reader.reads, "given twice"
                reader.reads |= partitions
            case Revoke(partitions=partitions):
                reader.reads -= partitions
                reader.core.revoked()
            case Lose(partitions=partitions):
                reader.reads -= partitions

    @rule(seconds=st.sampled_from([0.05, 0.2, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def heartbeats_are_answered_without_news(self) -> None:
        for reader, answer in self.coordinator.answers_to_heartbeats(with_news=False):
            self.tell(reader, answer)

    @rule(which=st.integers(0, COUNT - 1))
    def a_session_runs_out(self, which: int) -> None:
        self.throw_out(which)
        self.hear()

    @rule(which=st.integers(0, COUNT - 1), keeps_name=st.booleans())
    def a_commit_is_refused(self, which: int, keeps_name: bool) -> None:
        """Also while another request is under way, whose answer still comes."""
        self.readers[which].core.fenced(keeps_name=keeps_name)

    @rule(which=st.integers(0, COUNT - 1))
    def a_waiting_request_is_lost(self, which: int) -> None:
        if self.readers[which].request is not None:
            self.lose(self.readers[which])

    @invariant()
    def members_of_one_generation_share_nothing(self) -> None:
        if not hasattr(self, "readers"):
            return
        seen: set[tuple[str, int]] = set()
        for reader in self.readers:
            reader.core.check_invariants()
            if not reader.told and not reader.core._then:
                assert reader.reads == reader.core.owned
            if reader.core.state is State.STABLE and reader.core.generation == self.coordinator.generation:
                assert not seen & reader.core.owned, "two have it"
                seen |= reader.core.owned

    def teardown(self) -> None:
        if not hasattr(self, "readers"):
            return
        for _ in range(15):
            named = {reader.core.member_id for reader in self.readers}
            for gone in self.coordinator.members - named:
                self.session_ends(gone)
            self.hear()
            self.rounds(5, range(COUNT))
        read = sorted(each for reader in self.readers for each in reader.reads)
        assert read == [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
        counts = [len(reader.reads) for reader in self.readers]
        assert max(counts) - min(counts) <= 1, counts

    def rounds(self, count: int, readers: Iterable[int]) -> None:
        for _ in range(count):
            self.now += 0.5
            for which in readers:
                self.go_on(which, "")
                self.do_what_is_told(which)
                self.members_of_one_generation_share_nothing()

    def throw_out(self, which: int) -> None:
        reader = self.readers[which]
        self.coordinator.throw_out(reader.core.member_id)
        if reader.request is not None:
            self.lose(reader)

    def session_ends(self, name: str) -> None:
        """Of a member that has another name by now; what it asked under this one is not answered."""
        asked = self.coordinator.joining.get(name)
        waiting = asked[0] if asked is not None else self.coordinator.syncing.get(name)
        self.coordinator.throw_out(name)
        if waiting is not None:
            self.lose(waiting)

    def hear(self) -> None:
        for reader, answer in self.coordinator.answers():
            self.tell(reader, answer)

    def tell(self, reader: Reader, answer: Any) -> None:
        if reader.request is not None:
            reader.request = None
            reader.core.answered(answer, self.now)

    def forget_heartbeat(self, reader: Reader) -> None:
        self.coordinator.beating = [each for each in self.coordinator.beating if each[0] is not reader]

    def lose(self, reader: Reader) -> None:
        """The reader gives up on its request; an answer to it is dropped."""
        reader.request = None
        self.forget_heartbeat(reader)
        waiting = self.coordinator
        waiting.joining = {name: each for name, each in waiting.joining.items() if each[0] is not reader}
        waiting.syncing = {name: each for name, each in waiting.syncing.items() if each is not reader}
        reader.core.unanswered(TimedOut("no answer"), self.now)


def test_topics_that_change_while_a_member_joins_are_joined_with_again() -> None:
    core = ClassicMember("g", ConsumerSettings(assignors=("range",)), frozenset({"t"}))
    core.next(0.0)
    core.subscribe(frozenset({"t", "u"}))
    core.answered(JoinGroupResponse(member_id="m", generation_id=1, protocol_name="range", leader="another"), 0.0)
    assert isinstance(core.next(0.0), Send) and core.state is State.SYNCING
    core.answered(SyncGroupResponse(assignment=write_assignment({"t": [0]})), 0.0)
    assert core.next(0.0) == Assign(frozenset({("t", 0)}))
    assert core.next(0.0) == Revoke(frozenset({("t", 0)})), "to join again"
    core.revoked()
    again = core.next(0.0)
    assert isinstance(again, Send) and isinstance(again.request, JoinGroupRequest)
    assert again.request.reason == "the subscription changed"
    assert decode_subscription(again.request.protocols[0].metadata).topics == ["t", "u"]
    core.answered(JoinGroupResponse(member_id="m", generation_id=2, protocol_name="range", leader="another"), 0.0)
    core.answered(SyncGroupResponse(assignment=write_assignment({"t": [0]})), 0.0)
    assert core.state is State.STABLE and core.next(0.0) == Assign(frozenset({("t", 0)})), "once"


def test_a_generation_counts_as_assigned_only_from_what_the_coordinator_answers_to_sync() -> None:
    core = ClassicMember("g", ConsumerSettings(assignors=("range",)), frozenset({"t"}))
    told = []
    for generation, error in (1, ErrorCode.NONE), (2, ErrorCode.REBALANCE_IN_PROGRESS), (3, ErrorCode.NONE):
        while not isinstance(core.next(0.0), Send):
            core.revoked()
        joined = JoinGroupResponse(member_id="m", generation_id=generation, protocol_name="range", leader="another")
        core.answered(joined, 0.0)
        core.next(0.0)
        told.append((core.generation, core.assigned_generation))
        core.answered(SyncGroupResponse(error_code=error, assignment=write_assignment({"t": [0]})), 0.0)
        told.append((core.generation, core.assigned_generation))
        core.rejoin("another one is new")
    assert told == [(1, -1), (1, 1), (2, -1), (2, -1), (3, -1), (3, 3)]
    core.fenced()
    assert core.assigned_generation == -1


def test_a_static_member_that_starts_anew_gives_up_for_others_what_was_taken_from_it_before() -> None:
    """It ended between the two rebalances of a cooperative assignor. The coordinator gives its share again."""
    settings_of = partial(ConsumerSettings, assignors=("cooperative-sticky",))
    first, second = (
        ClassicMember("g", settings_of(group_instance_id=name), frozenset({"t"})) for name in ("first", "second")
    )
    owned = {"second": [("t", 0), ("t", 1)], "first": []}
    members = [
        JoinGroupResponseMember(member_id=name, group_instance_id=name, metadata=write_subscription(["t"], each, 1))
        for name, each in owned.items()
    ]
    joined = partial(JoinGroupResponse, generation_id=2, protocol_name="cooperative-sticky", leader="first")
    first.next(0.0)
    first.answered(joined(member_id="first", members=members), 0.0)
    assert isinstance(first.next(0.0), Learn)
    first.learned({"t": 2})
    asked = first.next(0.0)
    assert isinstance(asked, Send) and isinstance(asked.request, SyncGroupRequest)
    shares = {each.member_id: each.assignment for each in asked.request.assignments}
    assert read_assignment(shares["first"]) == {}, "the second one has it still"

    second.next(0.0)
    second.answered(joined(member_id="second"), 0.0)
    second.next(0.0)
    second.answered(SyncGroupResponse(assignment=shares["second"]), 0.0)
    (kept,) = second.owned
    assert second.next(0.0) == Assign(second.owned)
    again = second.next(0.0)
    assert isinstance(again, Send) and isinstance(again.request, JoinGroupRequest)
    told = decode_subscription(again.request.protocols[0].metadata)
    assert [(each.topic, each.partitions) for each in told.owned_partitions] == [("t", [kept[1]])]

    first.answered(SyncGroupResponse(assignment=shares["first"]), 0.0)
    assert first.state is State.STABLE, "nothing was taken from it"


Group.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)
TestMembersOfAGroup = Group.TestCase
