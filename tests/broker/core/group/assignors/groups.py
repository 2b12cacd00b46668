"""Groups for assignors' tests: small ones from Hypothesis, and what every assignment must be."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st

from raftlog.broker.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    Members,
    MemberSpec,
    Topics,
    TopicSpec,
    finish,
)

MEMBER_IDS = ["m0", "m1", "m2", "m3"]
TOPIC_IDS = [bytes([number]) * 16 for number in range(3)]
GONE = b"gone" * 4
RACKS = ["a", "b", "c"]


@st.composite
def groups(
    draw: st.DrawFn, *, same_topics: bool = False, racks: bool = False, fresh: bool = False
) -> tuple[Members, Topics]:
    """Members of a group, with what they had: also of topics that are gone or not theirs any more, and some twice."""
    topics = {}
    for topic_id in draw(st.lists(st.sampled_from(TOPIC_IDS), unique=True)):
        count = draw(st.integers(0, 4))
        rack = st.frozensets(st.sampled_from(RACKS), min_size=1, max_size=1)
        topics[topic_id] = TopicSpec(count, draw(st.lists(rack, min_size=count, max_size=count)) if racks else ())
    had = {
        (topic_id, part): draw(st.sampled_from([None, *MEMBER_IDS]))
        for topic_id in [*TOPIC_IDS, GONE]
        for part in range(4)
    }
    subscribed = draw(st.frozensets(st.sampled_from([*TOPIC_IDS, GONE])))
    members = {}
    for member_id in draw(st.lists(st.sampled_from(MEMBER_IDS), unique=True)):
        target: dict[bytes, tuple[int, ...]] = {}
        for (topic_id, part), owner in had.items():
            if owner == member_id and not fresh:
                target[topic_id] = (*target.get(topic_id, ()), part)
        members[member_id] = MemberSpec(
            subscribed if same_topics else draw(st.frozensets(st.sampled_from([*TOPIC_IDS, GONE]))),
            target,
            draw(st.sampled_from([None, *RACKS])) if racks else None,
            draw(st.sampled_from([None, f"i-{MEMBER_IDS[::-1].index(member_id)}"])),
            draw(st.integers(-1, 1)),
        )
    return members, topics


def owners(assignment: Assignment) -> dict[tuple[bytes, int], str]:
    """Whose each partition is; nobody's is missing, and none is there twice."""
    owned = {}
    for member_id, parts in assignment.items():
        for topic_id, partitions in parts.items():
            assert partitions and list(partitions) == sorted(set(partitions)), "in ascending order, or not named"
            for partition in partitions:
                assert (topic_id, partition) not in owned, "a partition with two owners"
                owned[topic_id, partition] = member_id
    return owned


def loads(members: Members, owned: dict[tuple[bytes, int], str]) -> dict[str, int]:
    """How many partitions each member has."""
    counts = Counter(owned.values())
    return {member_id: counts[member_id] for member_id in members}


def kept(members: Members, owned: dict[tuple[bytes, int], str]) -> int:
    """How many partitions are with whom they were."""
    return sum(part in members[owner].target.get(topic_id, ()) for (topic_id, part), owner in owned.items())


def partitions_to_assign(members: Members, topics: Topics) -> dict[tuple[bytes, int], list[str]]:
    """Every partition that somebody subscribes to, and who does."""
    return {
        (topic_id, part): subscribers
        for topic_id, topic in sorted(topics.items())
        if (subscribers := [member_id for member_id in sorted(members) if topic_id in members[member_id].subscribed])
        for part in range(topic.partition_count)
    }


def check(assignor: Assignor, members: Members, topics: Topics) -> dict[tuple[bytes, int], str]:
    """Every partition is with one subscriber, and it is the same again whatever the order of the input."""
    assignment = finish(assignor(members, topics))
    assert assignment.keys() == members.keys()
    owned = owners(assignment)
    wanted = partitions_to_assign(members, topics)
    assert owned.keys() == wanted.keys()
    assert all(owner in wanted[partition] for partition, owner in owned.items())
    backwards = dict(reversed(members.items())), dict(reversed(topics.items()))
    assert finish(assignor(*backwards)) == assignment
    again = finish(assignor(with_targets(members, assignment), topics))
    assert all(again[member_id] is assignment[member_id] for member_id in members), "it moves although nothing changed"
    return owned


def with_targets(members: Members, assignment: Assignment) -> dict[str, MemberSpec]:
    """The members, with the assignment as what they have."""
    return {member_id: member._replace(target=assignment[member_id]) for member_id, member in members.items()}
