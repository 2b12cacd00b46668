"""Decisions about partitions: ISR changes that leaders propose, and elections by hand and by the leader itself.

The checks are those of Kafka's AlterPartition (KIP-497, KIP-841, KIP-903) and ElectLeaders (KIP-460).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raftlog.metadata.cluster_commands import (
    AlteredPartition,
    AlterPartitions,
    ElectionResult,
    ElectionType,
    ElectLeaders,
    IsrProposal,
    LeadersElected,
    PartitionsAltered,
    RebalanceLeaders,
)
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.elections import Election, Electorate, Wanted, change
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.metadata.records import NO_LEADER, PartitionChangeRecord
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId


class Changes:
    """Partition states that a decision changes, topic by topic in the order in which they were first touched."""

    def __init__(self) -> None:
        self._states: dict[bytes, dict[int, PartitionState]] = {}

    def current(self, topic: TopicImage, index: int) -> PartitionState:
        """The partition as this decision leaves it so far."""
        states = self._states.get(topic.topic_id)
        return topic.partitions[index] if states is None else states.get(index, topic.partitions[index])

    def put(self, topic: TopicImage, state: PartitionState) -> None:
        """The partition's next state."""
        self._states.setdefault(topic.topic_id, {})[state.partition_id] = state

    def records(self) -> tuple[PartitionChangeRecord, ...]:
        """One record for each topic."""
        return tuple(PartitionChangeRecord(topic_id, tuple(s.values())) for topic_id, s in self._states.items())


# -- ISR changes -----------------------------------------------------------------------------------


def alter_partitions(
    image: MetadataImage, command: AlterPartitions, environment: Environment
) -> Decision[PartitionsAltered]:
    """Decide AlterPartitions: each proposal for itself."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return Decision((), PartitionsAltered(ErrorCode.STALE_BROKER_EPOCH))
    electorate = Electorate(image, environment)
    changes = Changes()
    results: list[AlteredPartition] = []
    for proposal in command.proposals:
        topic = image.topics_by_id.get(proposal.topic_id)
        if topic is None:
            results.append(AlteredPartition(proposal.topic_id, proposal.partition_id, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        error, state = _alter(topic, proposal, command.broker_id, electorate, changes)
        results.append(AlteredPartition(proposal.topic_id, proposal.partition_id, error, state))
    return Decision(changes.records(), PartitionsAltered(ErrorCode.NONE, tuple(results)))


def _alter(
    topic: TopicImage, proposal: IsrProposal, broker_id: BrokerId, electorate: Electorate, changes: Changes
) -> tuple[ErrorCode, PartitionState | None]:
    if not 0 <= proposal.partition_id < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    state = changes.current(topic, proposal.partition_id)
    error = _check_proposal(state, proposal, broker_id, electorate)
    if error is not ErrorCode.NONE:
        return error, state
    members = frozenset(member.broker_id for member in proposal.isr)
    isr = tuple(replica for replica in state.replicas if replica in members)
    wanted = Wanted(isr=isr, recovering=proposal.leader_recovering)
    after = change(state, electorate, electorate.min_isr(topic.name), wanted)
    if after is None:
        return ErrorCode.NONE, state
    changes.put(topic, after)
    # The last replica to be waited for came into the ISR, and the one who says so is moved away with it.
    led = after.leader_epoch == state.leader_epoch
    return ErrorCode.NONE if led else ErrorCode.NEW_LEADER_ELECTED, after


def _check_proposal(
    state: PartitionState, proposal: IsrProposal, broker_id: BrokerId, electorate: Electorate
) -> ErrorCode:
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        # The broker knows a future that this node does not: another one leads the quorum by now.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in proposal.isr]
    if len(set(members)) != len(members) or any(member not in state.replicas for member in members):
        return ErrorCode.INVALID_REQUEST
    if state.leader not in members:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovering and (not state.leader_recovering or len(members) > 1):
        return ErrorCode.INVALID_REQUEST
    for member, epoch in proposal.isr:
        if not electorate.may_lead(state, member) or epoch not in (-1, electorate.brokers[member].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


# -- elections -------------------------------------------------------------------------------------


def elect_leaders(image: MetadataImage, command: ElectLeaders, environment: Environment) -> Decision[LeadersElected]:
    """Decide ElectLeaders. An unclean one is the operator's word that lost records do not matter."""
    electorate = Electorate(image, environment)
    changes = Changes()
    results: list[ElectionResult] = []
    for name, index in command.partitions if command.partitions is not None else _all_partitions(image):
        topic = image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(ElectionResult(name, index, error, f"No such partition as {name}-{index}"))
            continue
        error = _elect(topic, index, command.election_type, electorate, changes)
        if error is ErrorCode.ELECTION_NOT_NEEDED and command.partitions is None:
            continue
        message = None if error is ErrorCode.NONE else _election_message(error)
        results.append(ElectionResult(name, index, error, message))
    return Decision(changes.records(), LeadersElected(ErrorCode.NONE, tuple(results)))


def _all_partitions(image: MetadataImage) -> Iterator[tuple[str, int]]:
    for topic in image.topics.values():
        for state in topic.partitions:
            yield topic.name, state.partition_id


def _elect(
    topic: TopicImage, index: int, election_type: ElectionType, electorate: Electorate, changes: Changes
) -> ErrorCode:
    state = changes.current(topic, index)
    if election_type is ElectionType.PREFERRED:
        needed, election = state.leader != state.replicas[0], Election.PREFERRED
    else:
        needed, election = state.leader == NO_LEADER, Election.UNCLEAN
    if not needed:
        return ErrorCode.ELECTION_NOT_NEEDED
    after = change(state, electorate, electorate.min_isr(topic.name), Wanted(election))
    preferred = election is Election.PREFERRED
    if after is None or after.leader == state.leader or (preferred and after.leader != after.replicas[0]):
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    changes.put(topic, after)
    return ErrorCode.NONE


def _election_message(error: ErrorCode) -> str:
    match error:
        case ErrorCode.ELECTION_NOT_NEEDED:
            return "Leader election not needed for topic partition."
        case ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            return "Failed to elect leader for partition: the preferred leader is not in sync or not there."
        case _:
            return "Failed to elect leader for partition: no replica is there that could lead."


def rebalance_leaders(
    image: MetadataImage, command: RebalanceLeaders, environment: Environment
) -> Decision[LeadersElected]:
    """Decide RebalanceLeaders: brokers that lead too few of the partitions that prefer them get those back."""
    electorate = Electorate(image, environment)
    preferring: dict[int, int] = {}
    astray: dict[int, list[tuple[TopicImage, int]]] = {}
    for topic in image.topics.values():
        for state in topic.partitions:
            preferred = state.replicas[0]
            preferring[preferred] = preferring.get(preferred, 0) + 1
            if state.leader != preferred and preferred in state.isr:
                astray.setdefault(preferred, []).append((topic, state.partition_id))
    due = [
        partition
        for broker_id, partitions in astray.items()
        if len(partitions) * 100 > command.percentage * preferring[broker_id]
        for partition in partitions
    ]
    changes = Changes()
    results = tuple(_give_back(due[: command.partitions_max], electorate, changes))
    return Decision(changes.records(), LeadersElected(ErrorCode.NONE, results))


def _give_back(
    due: Iterable[tuple[TopicImage, int]], electorate: Electorate, changes: Changes
) -> Iterator[ElectionResult]:
    for topic, index in due:
        error = _elect(topic, index, ElectionType.PREFERRED, electorate, changes)
        if error is ErrorCode.NONE:
            yield ElectionResult(topic.name, index)
