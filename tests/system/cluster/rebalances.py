"""Two consumers share a topic, a third one joins, and one leaves: the requests of that, step by step, and what must
hold whatever is killed meanwhile.

A committed offset never goes back, a partition has one owner in each generation or epoch, and in the end all have one
and all is read.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Any

from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.internal.consumer_protocol import decode_assignment
from raftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raftlog.wire.messages.fetch import FetchRequest
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest
from raftlog.wire.messages.leave_group import LeaveGroupRequest
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from raftlog.wire.messages.sync_group import SyncGroupRequest
from tests.system.clients.confluent import produce
from tests.system.cluster.transactions import GROUP_KEY, Moment, Wire, first_error
from tests.system.cluster.wiretap import Request, Wiretap
from tests.system.cluster.world import World
from tests.waiting import wait_until

PARTITIONS = 6
JOINER = "joiner"
RESIDENTS = ("resident-1", "resident-2")
WATCHED = frozenset({
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_FETCH, ApiKey.FETCH,
})  # fmt: skip
DEADLINE_SECONDS = 60.0


class Step(Enum):
    """What is asked for between the first word of the one who joins and the last of the one who leaves."""

    JOIN_WITHOUT_ID = auto()
    JOIN = auto()
    HEARTBEAT = auto()
    """The one that tells of the rebalance: with the consumer protocol, what is to be given up."""
    COMMIT = auto()
    """Of what is given up."""
    JOIN_AGAIN = auto()
    SYNC_OF_LEADER = auto()
    SYNC_OF_OTHERS = auto()
    REVOKED = auto()
    ASSIGNED = auto()
    """The heartbeat whose answer gives the one who joined its first partitions."""
    TAKEN = auto()
    LEAVE = auto()


STEPS = {
    "classic": (
        Step.JOIN_WITHOUT_ID, Step.JOIN, Step.HEARTBEAT, Step.COMMIT, Step.JOIN_AGAIN, Step.SYNC_OF_LEADER,
        Step.SYNC_OF_OTHERS, Step.LEAVE,
    ),
    "consumer": (Step.JOIN, Step.HEARTBEAT, Step.COMMIT, Step.REVOKED, Step.ASSIGNED, Step.TAKEN, Step.LEAVE),
}  # fmt: skip


class Member:
    """A consumer in a process of its own, and what it has said."""

    def __init__(self, bootstrap: str, group: str, protocol: str, name: str) -> None:
        self.name = name
        self.owned: set[int] = set()
        self.read: set[tuple[int, int]] = set()
        command = [sys.executable, str(Path(__file__).with_name("group_member.py"))]
        self._process = subprocess.Popen(
            [*command, bootstrap, group, group, protocol, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *numbers = line.split()
            if what == "owns":
                self.owned = {int(each) for each in numbers}
            else:
                self.read.add((int(numbers[0]), int(numbers[1])))

    def kill(self) -> None:
        """With -9. What it has said is heard."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Have it leave the group, and wait until it has, or was killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE_SECONDS)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None


class Rebalance:
    """A group of its own, with a topic of the same name."""

    def __init__(self, world: World, tap: Wiretap, name: str, protocol: str) -> None:
        self.world, self.tap, self.name, self.protocol = world, tap, name, protocol
        self.wire = Wire(world.bootstrap)
        self.members: dict[str, Member] = {}
        self.count = 0
        self.around: Callable[[Step, Moment, str], None] = lambda step, moment, member: None
        self._lock = threading.Lock()
        self.seen: set[tuple[Step, Moment]] = set()
        self._answered: set[Step] = set()
        self._heard: deque[str] = deque(maxlen=40)
        # Who was given a partition in a generation or epoch, and up to where commits were acknowledged.
        self.owners: dict[tuple[int, int], set[str]] = {}
        self.acknowledged = [0] * PARTITIONS
        # Answers by which a member begins elsewhere than where its group stands.
        self.misled: list[str] = []
        self.committed = [0] * PARTITIONS

    # -- what passes ---------------------------------------------------------------------------------

    def hear(self, request: Request, answer: Any) -> None:
        """See wiretap.Hear."""
        if not isinstance(request.message, FetchRequest) or first_error(answer) is not ErrorCode.NONE:
            self._heard.append(f"{request.client}: {request.message} {answer}")
        self._note(request, answer)
        with self._lock:
            step = self._step(request)
            if step is not None and _is_answered(step, answer):
                self._answered.add(step)

    def watch(self, request: Request, moment: Moment, answer: Any) -> bool:
        """See wiretap.Watch. Nothing more comes of or to a client that was killed."""
        with self._lock:
            step = self._step(request)
            is_it = step is not None and (moment is not Moment.AFTER or _is_answered(step, answer))
            is_first = is_it and (step, moment) not in self.seen
            if step is not None and is_first:
                self.seen.add((step, moment))
        if step is not None and is_first:
            self.around(step, moment, request.client)
        return request.client not in self.members or self.members[request.client].lives

    def _step(self, request: Request) -> Step | None:
        """Which step it is; requests of before and between are none."""
        message = request.message
        if JOINER not in self.members:
            return None
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            return self._step_of_consumer_protocol(request.client, message)
        told, joins = Step.HEARTBEAT in self._answered, (Step.JOIN, Moment.BEFORE) in self.seen
        match message:
            case JoinGroupRequest() if request.client == JOINER:
                return Step.JOIN if message.member_id else Step.JOIN_WITHOUT_ID
            case JoinGroupRequest():
                return Step.JOIN_AGAIN if told else None
            case HeartbeatRequest() if request.client != JOINER and joins:
                return Step.HEARTBEAT
            case OffsetCommitRequest() if request.client != JOINER and told:
                return Step.COMMIT
            case SyncGroupRequest():
                return Step.SYNC_OF_LEADER if message.assignments else Step.SYNC_OF_OTHERS
            case LeaveGroupRequest():
                return Step.LEAVE
        return None

    def _step_of_consumer_protocol(self, client: str, message: ConsumerGroupHeartbeatRequest) -> Step | None:
        joins = (Step.JOIN, Moment.BEFORE) in self.seen
        owned = None if message.topic_partitions is None else sum(len(e.partitions) for e in message.topic_partitions)
        if message.member_epoch < 0:
            return Step.LEAVE
        if client != JOINER:
            if owned is not None and 0 < owned < PARTITIONS // 2 and Step.HEARTBEAT in self._answered:
                return Step.REVOKED
            return Step.HEARTBEAT if joins else None
        if message.member_epoch == 0:
            return Step.JOIN
        if owned and Step.ASSIGNED in self._answered:
            return Step.TAKEN
        return Step.ASSIGNED if Step.REVOKED in self._answered else None

    def _note(self, request: Request, answer: Any) -> None:
        """Who was given what, and which commits count."""
        message = request.message
        match message:
            case OffsetCommitRequest():
                accepted = {p.partition_index for t in answer.topics for p in t.partitions if not p.error_code}
                for each in (each for topic in message.topics for each in topic.partitions):
                    if (index := each.partition_index) in accepted:
                        self.acknowledged[index] = max(self.acknowledged[index], each.committed_offset)
            case OffsetFetchRequest():
                topics = [topic for each in answer.groups for topic in each.topics] + answer.topics
                self.misled += [
                    f"{request.client} is told {each.committed_offset} of {each.partition_index}"
                    for each in (each for topic in topics for each in topic.partitions)
                    if not each.error_code and each.committed_offset < self.acknowledged[each.partition_index]
                ]
            case FetchRequest():
                self.misled += [
                    f"{request.client} is out of range in {each.partition_index}: {message} {answer}"
                    for each in (each for topic in answer.responses for each in topic.partitions)
                    if each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                ]
            case SyncGroupRequest() if not answer.error_code:
                given = [t.partitions for t in decode_assignment(answer.assignment).assigned_partitions]
                self._note_owner(message.generation_id, message.member_id, given)
            case ConsumerGroupHeartbeatRequest() if not answer.error_code and answer.assignment is not None:
                given = [t.partitions for t in answer.assignment.topic_partitions]
                self._note_owner(answer.member_epoch, message.member_id, given)

    def _note_owner(self, generation: int, member: str, given: list[list[int]]) -> None:
        with self._lock:
            for index in (index for partitions in given for index in partitions):
                self.owners.setdefault((generation, index), set()).add(member)

    # -- the story -----------------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """The one who joins is known before it says its first word."""
        self.members[name] = Member(self.tap.bootstrap, self.name, self.protocol, name)

    def living(self) -> list[Member]:
        return [each for each in self.members.values() if each.lives]

    def begin_at_the_beginning(self) -> None:
        """Commit that nothing is read yet, so that nobody has to ask where a log begins. librdkafka (2.16) asks once
        more for what it had and was soon taken away again, and goes back there when it gets it the next time."""
        nothing = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="")
            for index in range(PARTITIONS)
        ]
        topics = [OffsetCommitRequestTopic(name=self.name, partitions=nothing)]
        request = OffsetCommitRequest(group_id=self.name, topics=topics)
        answer = self.wire.until_answered(lambda: self.wire.coordinator(self.name, GROUP_KEY), request, 8)
        assert first_error(answer) is ErrorCode.NONE

    def is_at_rest(self) -> bool:
        """Each has its share: all is owned, nothing twice."""
        members = self.living()
        self.check()
        shares = [each.owned for each in members]
        return sum(map(len, shares)) == len(set().union(*shares)) == PARTITIONS and (
            max(map(len, shares)) - min(map(len, shares)) <= 1
        )

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """As the function, and tells how far it came."""
        try:
            wait_until(condition, what, DEADLINE_SECONDS)
        except AssertionError as error:
            error.add_note(f"{[(each.name, sorted(each.owned)) for each in self.living()]}")
            error.add_note(f"committed: {self.committed} of {self.count}; seen: {self.seen}")
            for line in self._heard:
                error.add_note(line)
            raise

    def wait_until_at_rest(self) -> None:
        self.wait_until(self.is_at_rest, "the group is at rest")

    def feed(self) -> None:
        """More records in each partition, all of which are read and committed."""
        numbers = range(self.count, self.count + 3)
        records = [{"value": b"%d" % number, "partition": index} for index in range(PARTITIONS) for number in numbers]
        produce(self.world.bootstrap, self.name, records)
        self.count += 3
        expected = {(index, number) for index in range(PARTITIONS) for number in range(self.count)}

        def is_read() -> bool:
            self.check()
            read = set().union(*(each.read for each in self.members.values()))
            return expected == read and self.committed == [self.count] * PARTITIONS

        self.wait_until(is_read, "all records are read and committed")

    def check(self) -> None:
        """What must hold at all times."""
        with self._lock:
            acknowledged = list(self.acknowledged)
            twice = {at: who for at, who in self.owners.items() if len(who) > 1}
        assert not self.misled, self.misled
        assert not twice, f"two owners in one generation: {twice}"
        asked = OffsetFetchRequestTopic(name=self.name, partition_indexes=list(range(PARTITIONS)))
        request = OffsetFetchRequest(group_id=self.name, topics=[asked])
        answer = self.wire.until_answered(lambda: self.wire.coordinator(self.name, GROUP_KEY), request, 7)
        found = {each.partition_index: max(each.committed_offset, 0) for each in answer.topics[0].partitions}
        now = [found[index] for index in range(PARTITIONS)]
        at_least = [max(*both) for both in zip(acknowledged, self.committed, strict=True)]
        assert all(a >= b for a, b in zip(now, at_least, strict=True)), f"committed: {now}, before: {at_least}"
        self.committed = now


def _is_answered(step: Step, answer: Any) -> bool:
    """Whether the answer says what makes the step one."""
    match step:
        case Step.HEARTBEAT if hasattr(answer, "assignment"):
            return answer.assignment is not None
        case Step.HEARTBEAT:
            return bool(answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS)
        case Step.ASSIGNED:
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)
    return True


@contextmanager
def rebalance(world: World, tap: Wiretap, name: str, protocol: str) -> Iterator[Rebalance]:
    """Two members that share all partitions and have read what is there."""
    world.create(name, PARTITIONS)
    made = Rebalance(world, tap, name, protocol)
    tap.watch, tap.hear = made.watch, made.hear
    made.begin_at_the_beginning()
    try:
        for resident in RESIDENTS:
            made.join(resident)
        made.wait_until_at_rest()
        made.feed()
        yield made
    finally:
        for each in made.members.values():
            each.kill()
        made.wire.close()
