"""Walks over all partitions for those that an event touches, and turns their next states into records.

Knows how to be quick with very many of them: one pass, one record for each topic. What a partition's next state is,
is said in `elections`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from raftlog.metadata.elections import NOTHING, Election, Electorate, Wanted, change
from raftlog.metadata.image import MetadataImage, PartitionImage, TopicImage
from raftlog.metadata.records import NO_LEADER, PartitionChangeRecord

_UNCLEAN = Wanted(Election.UNCLEAN)

Touched = Callable[[PartitionImage], bool]
Decide = Callable[[TopicImage, PartitionImage], Wanted | None]


def change_partitions(
    image: MetadataImage, electorate: Electorate, touched: Touched, decide: Decide | None = None
) -> Iterator[PartitionChangeRecord]:
    """A record for each topic of which partitions change, among those that `touched` picks.

    `decide` says what is wanted beyond taking unusable brokers out and electing; None leaves a partition alone.
    """
    for topic in image.topics.values():
        picked = [state for state in topic.partitions if touched(state)]
        if picked:
            record = _change_topic(topic, electorate, picked, decide)
            if record is not None:
                yield record


def _change_topic(
    topic: TopicImage, electorate: Electorate, picked: Iterable[PartitionImage], decide: Decide | None
) -> PartitionChangeRecord | None:
    min_isr, election = electorate.terms(topic.name)
    ordinary = NOTHING if election is Election.ONLINE else _UNCLEAN
    changed: list[PartitionImage] = []
    for state in picked:
        wanted = ordinary if decide is None else decide(topic, state)
        if wanted is None:
            continue
        if election is not Election.ONLINE and wanted.election is Election.ONLINE:
            wanted = wanted._replace(election=election)
        after = change(state, electorate, min_isr, wanted)
        if after is not None:
            changed.append(after)
    return PartitionChangeRecord(topic.topic_id, tuple(changed)) if changed else None


def in_sync_on(brokers: Collection[int]) -> Touched:
    """Picks partitions that have one of these brokers in the ISR: the leader is among them."""
    if len(brokers) == 1:
        (only,) = brokers
        return lambda state: only in state.isr or state.leader == only
    return lambda state: state.leader in brokers or any(b in brokers for b in state.isr)


def waiting_for(broker_id: int) -> Touched:
    """Picks partitions without a leader that have a replica on this broker."""
    return lambda state: state.leader == NO_LEADER and broker_id in state.replicas


def changed_count(records: Iterable[object]) -> int:
    """How many partitions these records change."""
    return sum(len(record.partitions) for record in records if isinstance(record, PartitionChangeRecord))
