"""What a server-side assignor is given and what it returns (KIP-848).

An assignor is a generator: it yields every thousand steps or so, for whoever runs it to give way to others, and returns
the assignment. It changes nothing, and the same input gives the same assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from raftlog.metadata.image import MetadataImage

TopicId = bytes

MemberAssignment = Mapping[TopicId, tuple[int, ...]]
"""Partitions in ascending order, at least one of each topic that is named."""

Assignment = Mapping[str, MemberAssignment]
"""Of every member, also of one that gets nothing. A member that keeps all it had has the same object as before."""

NO_PARTITIONS: MemberAssignment = {}

NO_RACKS: frozenset[str] = frozenset()

STEPS_A_SLICE = 1_000
"""After so many partitions or members an assignor yields: less than a millisecond."""


class MemberSpec(NamedTuple):
    """A member as an assignor sees it; `target` is what the last assignment gave it. Where there is a choice between
    two members, the one with the lower `rank` may be preferred.
    """

    subscribed: frozenset[TopicId]
    target: MemberAssignment = NO_PARTITIONS
    rack: str | None = None
    instance_id: str | None = None
    rank: int = 0


class TopicSpec(NamedTuple):
    """A topic as an assignor sees it; `racks` are those of the replicas of each partition, or empty if not known."""

    partition_count: int
    racks: Sequence[frozenset[str]] = ()


Members = Mapping[str, MemberSpec]
Topics = Mapping[TopicId, TopicSpec]
"""A topic that a member subscribes to and that is not here has no partitions."""

Steps = Generator[None, None, Assignment]

Assignor = Callable[[Members, Topics], Steps]

T = TypeVar("T")


def finish(steps: Generator[None, None, T]) -> T:
    """What the steps return, all of them taken now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def describe_topics(
    image: MetadataImage, topic_ids: Iterable[TopicId], *, with_racks: bool
) -> dict[TopicId, TopicSpec]:
    """The topics of these ids that there are. Racks cost a look at every partition, and only members with racks need
    them."""
    brokers = image.brokers
    racks_of: dict[tuple[int, ...], frozenset[str]] = {}
    topics = {}
    for topic_id in topic_ids:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            continue
        racks = []
        for partition in topic.partitions if with_racks else ():
            replicas = tuple(partition.replicas)
            known = racks_of.get(replicas)
            if known is None:
                known = racks_of[replicas] = frozenset(
                    rack for node in replicas if node in brokers and (rack := brokers[node].rack) is not None
                )
            racks.append(known)
        topics[topic_id] = TopicSpec(len(topic.partitions), racks)
    return topics
