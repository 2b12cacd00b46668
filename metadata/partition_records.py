"""Walks over all partitions for those that an event touches, and turns their next states into records.

Quick with very many of them: one pass, one record for each topic. `elections` says what a partition's next state is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from raftlog.metadata.elections import Election, Electorate, Terms, Wanted, change
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.metadata.records import NO_LEADER, PartitionChangeRecord
from raftlog.wire.ids import BrokerId

Touched = Callable[[PartitionState], bool]
Decide = Callable[[TopicImage, PartitionState], Wanted | None]


def change_partitions(
    image: MetadataImage, electorate: Electorate, touched: Touched, decide: Decide | None = None
) -> Iterator[PartitionChangeRecord]:
    """A record for each topic of which partitions change, among those that `touched` picks.

    `decide` says what is wanted beyond taking unusable brokers out and electing; None leaves a partition alone.
    """
    alike: dict[_Likeness, _Step | None] = {}
    for topic in image.topics.values():
        picked = [state for state in topic.partitions if touched(state)]
        if not picked:
            continue
        changed = (
            _change_alike(topic, electorate, picked, alike)
            if decide is None
            else _change_each(topic, electorate, picked, decide)
        )
        if changed:
            yield PartitionChangeRecord(topic.topic_id, tuple(changed))


_Likeness = tuple[Terms, int, tuple[object, ...]]
"""What decides about a partition's next state: its topic's terms, its leader, and all behind its epochs."""


class _Step(NamedTuple):
    """What happens to all partitions that are alike: they differ in their numbers and epochs only."""

    leader: BrokerId
    leader_epochs: int
    rest: tuple[Any, ...]


def _change_alike(
    topic: TopicImage,
    electorate: Electorate,
    picked: Iterable[PartitionState],
    alike: dict[_Likeness, _Step | None],
) -> list[PartitionState]:
    """When a broker dies, ten thousand partitions change in a dozen ways."""
    terms = electorate.terms(topic.name)
    changed: list[PartitionState] = []
    for state in picked:
        likeness = (terms, state.leader, state[4:])
        try:
            step = alike[likeness]
        except KeyError:
            step = alike[likeness] = _step(state, electorate, terms)
        if step is not None:
            index, _, leader_epoch, partition_epoch = state[:4]
            made = (index, step.leader, leader_epoch + step.leader_epochs, partition_epoch + 1, *step.rest)
            changed.append(PartitionState._make(made))
    return changed


def _step(state: PartitionState, electorate: Electorate, terms: Terms) -> _Step | None:
    after = change(state, electorate, terms.min_isr, Wanted(terms.election))
    return None if after is None else _Step(after.leader, after.leader_epoch - state.leader_epoch, after[4:])


def _change_each(
    topic: TopicImage, electorate: Electorate, picked: Iterable[PartitionState], decide: Decide
) -> list[PartitionState]:
    min_isr, election = electorate.terms(topic.name)
    changed: list[PartitionState] = []
    for state in picked:
        wanted = decide(topic, state)
        if wanted is None:
            continue
        if election is not Election.ONLINE and wanted.election is Election.ONLINE:
            wanted = wanted._replace(election=election)
        after = change(state, electorate, min_isr, wanted)
        if after is not None:
            changed.append(after)
    return changed


def in_sync_on(brokers: Collection[int]) -> Touched:
    """Picks partitions that have one of these brokers in the ISR: the leader is among them."""
    if len(brokers) == 1:
        (only,) = brokers
        return lambda state: only in state.isr or state.leader == only
    return lambda state: state.leader in brokers or any(b in brokers for b in state.isr)


def waiting_for(broker_id: BrokerId) -> Touched:
    """Picks partitions without a leader that have a replica on this broker."""
    return lambda state: state.leader == NO_LEADER and broker_id in state.replicas


def changed_count(records: Iterable[object]) -> int:
    """How many partitions these records change."""
    return sum(len(record.partitions) for record in records if isinstance(record, PartitionChangeRecord))
