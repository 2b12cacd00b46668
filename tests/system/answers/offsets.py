"""Questions about offsets and about groups: committed, fetched, deleted and listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from raftlog.wire.messages import heartbeat, leave_group, sync_group
from raftlog.wire.messages.delete_groups import DeleteGroupsRequest
from raftlog.wire.messages.describe_groups import DescribeGroupsRequest
from raftlog.wire.messages.list_groups import ListGroupsRequest
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raftlog.wire.schema import ZERO_UUID
from tests.system.answers.asking import Asker
from tests.system.answers.consumer_groups import NOTHING_NEW, Heartbeats, describe, prepare

Topics = Sequence[tuple[str, Sequence[int]]]
"""Partitions by topic. "zeros" is the topic whose id is zeros."""

NO_TOPIC = "nope"


class Offsets:
    """Commits and fetches, by default of partitions of a topic."""

    def __init__(self, asker: Asker, topic: str) -> None:
        self.asker, self.topic = asker, topic

    def _id(self, name: str) -> bytes:
        return ZERO_UUID if name == "zeros" else self.asker.topic_id(name)

    def commit(self, label: str, version: int, group: str, topics: Topics | None = None, **fields: Any) -> None:
        """Offset 5 of partition 0, if nothing else is said; `fields` are those of the request."""
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=self._id(name),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=5, committed_metadata=None if index == 1 else "m"
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in topics or [(self.topic, [0])]
            ],
            **fields,
        )
        self.asker.ask(f"commit in version {version}, {label}", request, version)

    def fetch(
        self,
        label: str,
        version: int,
        group: str,
        topics: Topics | None = (),
        *,
        stable: bool = False,
        **fields: Any,
    ) -> None:
        """Three partitions, one of which is not there, if nothing else is said; None asks for everything."""
        wanted = [(self.topic, [0, 1, 7])] if topics == () else topics
        if version < 8:
            old = [
                OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes)) for name, indexes in wanted or ()
            ]
            request = OffsetFetchRequest(
                group_id=group, topics=None if wanted is None else old, require_stable=stable
            )
        else:
            new = [
                OffsetFetchRequestTopics(name=name, topic_id=self._id(name), partition_indexes=list(indexes))
                for name, indexes in wanted or ()
            ]
            one = OffsetFetchRequestGroup(group_id=group, topics=None if wanted is None else new, **fields)
            request = OffsetFetchRequest(groups=[one], require_stable=stable)
        self.asker.ask(f"fetch in version {version}, {label}", request, version)


def _two_members(asker: Asker) -> tuple[str, Offsets]:
    """A group of the consumer protocol: m1 in epoch 2 with three partitions, and m2 in epoch 3, which waits."""
    group, topic = asker.name("g"), asker.topic("a", 3)
    prepare(asker, group, topic)
    join = Heartbeats(asker, group, topic)
    join("m1 joins")
    join("m2 joins", member_id="m2")
    return group, Offsets(asker, topic)


def commits(asker: Asker) -> None:
    live, offsets = _two_members(asker)
    topic, other = offsets.topic, asker.topic("b", 3)
    for version in (2, 7, 8, 9, 10):

        def member(label: str, name: str, epoch: int, group: str = live, v: int = version, **fields: Any) -> None:
            offsets.commit(label, v, group, member_id=name, generation_id_or_member_epoch=epoch, **fields)

        member("nobody, to a group with members", "", -1)
        member("a member that is not there", "zz", 3)
        member("an old epoch", "m1", 1)
        member("the member's epoch", "m2", 3)
        member("an epoch of the future", "m2", 99)
        member("a generation of a group that is not there", "q", 1, asker.name("none"))
        simple = asker.name(f"simple{version}")
        offsets.commit("nobody", version, simple)
        member("somebody", "me", -1, simple)
        offsets.commit("some that are not there", version, simple, [(topic, [0, 7, -1, 1]), (other, [2])])
        offsets.commit("a topic that is not there", version, simple, [(NO_TOPIC, [0])])
        offsets.commit("a topic without partitions", version, simple, [(topic, [])])
        offsets.commit("one topic without partitions", version, simple, [(topic, []), (other, [2])])
        offsets.commit("no topic", version, simple, [])
        member("no partitions, of a member that is not there", "zz", 3, topics=[(topic, [])])
        member("some that are not there, of one that is not", "zz", 3, topics=[(topic, [0, 7]), (NO_TOPIC, [0])])
        offsets.commit("no group", version, "")
        if version >= 7:
            member("an instance that is not there", "m1", 2, group_instance_id="i9")
    offsets.commit("an id of zeros", 10, asker.name("zeros"), [("zeros", [0])])
    for version in (9, 10):
        offsets.commit("a topic twice", version, asker.name("twice"), [(topic, [0]), (topic, [0])])


def commits_of_older_epochs(asker: Asker) -> None:
    """What a member has had since an older epoch of its own, it may commit with that (KIP-1251)."""
    group, topic = asker.name("g"), asker.topic("a", 3)
    prepare(asker, group, topic)
    heartbeat, offsets = Heartbeats(asker, group, topic), Offsets(asker, topic)

    def commit(when: str, member: str, *epochs: int) -> None:
        for epoch in epochs:
            for indexes in ([0], [1], [2], [0, 2]):
                label = f"{when}, {member} with epoch {epoch}, {indexes}"
                who: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": epoch}
                offsets.commit(label, 10, group, [(topic, indexes)], **who)

    heartbeat("m1 joins")
    heartbeat("m2 joins", member_id="m2")
    heartbeat("m1 hears", member_epoch=2, **NOTHING_NEW)
    commit("revoking", "m1", 1, 2, 3)
    heartbeat("m1 gives up one", member_epoch=2, **{**NOTHING_NEW, **heartbeat.owning(0, 1)})
    commit("given up", "m1", 1, 2, 3)
    heartbeat("m2 gets it", member_id="m2", member_epoch=3, **NOTHING_NEW)
    heartbeat("m3 joins", member_id="m3")
    heartbeat("m1 hears again", member_epoch=3, **NOTHING_NEW)
    heartbeat("m1 gives up another", member_epoch=3, **{**NOTHING_NEW, **heartbeat.owning(0)})
    commit("given up again", "m1", 2, 3, 4)
    heartbeat("m2 hears", member_id="m2", member_epoch=3, **NOTHING_NEW)
    commit("kept", "m2", 2, 3, 4, 5)


def fetches(asker: Asker) -> None:
    live, offsets = _two_members(asker)
    topic, other = offsets.topic, asker.topic("b", 3)
    simple, none = asker.name("simple"), asker.name("none")
    offsets.commit("some", 9, simple, [(topic, [0, 1]), (other, [2])])
    for version in (1, 2, 5, 7, 8, 9, 10):
        offsets.fetch("a group that is not there", version, none)
        offsets.fetch("some", version, simple)
        if version > 1:
            offsets.fetch("everything", version, simple, None)
            offsets.fetch("everything of a group that is not there", version, none, None)
        offsets.fetch("a topic that is not there", version, simple, [(NO_TOPIC, [0])])
        offsets.fetch("no partitions", version, simple, [(topic, [])])
        offsets.fetch("of a group with members", version, live)
        offsets.fetch("no group", version, "")
    for version in (9, 10):
        for label, name, epoch in _askers():
            offsets.fetch(label, version, live, member_id=name, member_epoch=epoch)
        offsets.fetch("a member of a group that is not there", version, none, member_id="m1", member_epoch=1)
        offsets.fetch("a member of a group without", version, simple, member_id="m1", member_epoch=1)
        offsets.fetch("everything, epoch 0", version, live, None, member_id="m1", member_epoch=0)
    offsets.fetch("an id of zeros", 10, simple, [("zeros", [0])])


def _askers() -> Iterable[tuple[str, str | None, int]]:
    yield "the member's epoch", "m1", 2
    yield "an old epoch", "m1", 1
    yield "an epoch of the future", "m1", 50
    yield "a member that is not there", "zz", 1
    yield "a member that is not there, without an epoch", "zz", -1
    yield "nobody with an epoch", None, 3
    yield "nobody's name with an epoch", "", 3


def groups(asker: Asker) -> None:
    live, offsets = _two_members(asker)
    topic, other = offsets.topic, asker.topic("b", 3)
    simple, doomed, none = asker.name("simple"), asker.name("doomed"), asker.name("none")
    offsets.commit("some", 9, simple, [(topic, [0, 1]), (other, [2])])
    offsets.commit("others", 9, doomed)
    _listings(asker)
    for label, name, version in (
        ("a consumer group", live, 6),
        ("a consumer group in version 5", live, 5),
        ("a group without members", simple, 6),
        ("a group that is not there", none, 6),
        ("a group that is not there in version 5", none, 5),
        ("no name", "", 6),
    ):
        request = DescribeGroupsRequest(groups=[name])
        asker.ask(f"describe as classic, {label}", request, version, without=("error_message",))
    request = DescribeGroupsRequest(groups=[simple, simple])
    asker.ask("describe as classic, twice", request, 6)
    describe(asker, "a group without members", simple)
    _classic_requests(asker, live)
    _deletions(asker, offsets, live, simple)


def _listings(asker: Asker) -> None:
    def only_ours(answer: Any) -> None:
        answer.groups = [each for each in answer.groups if asker.is_ours(each.group_id)]

    def ask(label: str, version: int, states: Iterable[str] = (), types: Iterable[str] = ()) -> None:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        asker.ask(f"list in version {version}, {label}", request, version, trim=only_ours)

    ask("all", 0)
    ask("all", 5)
    for state in ("Empty", "empty", "Reconciling", "Stable", "Foo", ""):
        ask(f"state {state!r}", 4, [state])
    for kind in ("consumer", "CONSUMER", "Classic", "foo", "", "share"):
        ask(f"type {kind!r}", 5, [], [kind])
    ask("two states and two types", 5, ["Empty", "Dead"], ["classic", "consumer"])
    ask("two states", 5, ["Reconciling", "Assigning"])


def _classic_requests(asker: Asker, live: str) -> None:
    """What members of the consumer protocol do not ask."""
    for name in ("m1", "zz"):
        beat = heartbeat.HeartbeatRequest(group_id=live, generation_id=1, member_id=name)
        asker.ask(f"classic heartbeat of {name}", beat, 4)
        sync = sync_group.SyncGroupRequest(
            group_id=live, generation_id=1, member_id=name, protocol_type="consumer", protocol_name="range"
        )
        asker.ask(f"classic sync of {name}", sync, 5)
    leave = leave_group.LeaveGroupRequest(group_id=live, members=[leave_group.MemberIdentity(member_id="zz")])
    asker.ask("classic leave of zz", leave, 5)


def _deletions(asker: Asker, offsets: Offsets, live: str, simple: str) -> None:
    def offset(label: str, group: str, *topics: tuple[str, Sequence[int]]) -> None:
        wanted = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics
        ]
        asker.ask(f"delete offsets, {label}", OffsetDeleteRequest(group_id=group, topics=wanted), 0)

    topic, none = offsets.topic, asker.name("none")
    offset("subscribed", live, (topic, [0, 1]))
    offset("not subscribed", live, (NO_TOPIC, [0]))
    offset("a group that is not there", none, (topic, [0]))
    offset("no group", "", (topic, [0]))
    offset("some that are not there", simple, (topic, [0, 7]), (NO_TOPIC, [0]))
    offset("no topic", simple)
    offset("no partitions", simple, (topic, []))

    def group(label: str, *names: str) -> None:
        asker.ask(f"delete groups, {label}", DeleteGroupsRequest(groups_names=list(names)), 2)

    group("with members", live)
    group("not there", none)
    group("no name", "")
    group("several, one twice", live, asker.name("doomed"), asker.name("doomed"), none)
    group("none")
    offsets.fetch("what is left", 9, simple, None)
