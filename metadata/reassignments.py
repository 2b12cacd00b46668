"""Decisions about moving replicas (KIP-455).

A reassignment is a state of the partition: its replicas are the old and the new ones together until every new one is
in sync; then the old ones go, in the same change that let the last new one into the ISR (`elections`).
"""

from __future__ import annotations

from raftlog.metadata.cluster_commands import AlterReassignments, Reassignment, ReassignmentResult, ReassignmentsAltered
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.elections import Election, Electorate, Wanted, change
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.partition_control import Changes
from raftlog.metadata.topic_control import Refused
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId


def alter_reassignments(
    image: MetadataImage, command: AlterReassignments, environment: Environment
) -> Decision[ReassignmentsAltered]:
    """Decide AlterReassignments: each partition for itself."""
    electorate = Electorate(image, environment)
    changes = Changes()
    results: list[ReassignmentResult] = []
    for wanted in command.reassignments:
        try:
            _reassign(image, wanted, command, electorate, changes)
        except Refused as refused:
            results.append(ReassignmentResult(wanted.topic, wanted.partition_id, refused.error, refused.message))
        else:
            results.append(ReassignmentResult(wanted.topic, wanted.partition_id))
    return Decision(changes.records(), ReassignmentsAltered(ErrorCode.NONE, None, tuple(results)))


def _reassign(
    image: MetadataImage,
    wanted: Reassignment,
    command: AlterReassignments,
    electorate: Electorate,
    changes: Changes,
) -> None:
    topic = image.topics.get(wanted.topic)
    if topic is None or not 0 <= wanted.partition_id < len(topic.partitions):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused(error, f"Unable to find partition {wanted.topic}-{wanted.partition_id}.")
    state = changes.current(topic, wanted.partition_id)
    election = electorate.election_for(topic.name)
    if wanted.replicas is None:
        asked = _cancelled(state, election, electorate.min_isr(topic.name))
    else:
        _check_target(image, state, wanted.replicas, command)
        asked = _moved(state, wanted.replicas, election, electorate.min_isr(topic.name))
    after = change(state, electorate, electorate.min_isr(topic.name), asked)
    if after is not None:
        changes.put(topic, after)


def _check_target(
    image: MetadataImage, state: PartitionState, target: tuple[BrokerId, ...], command: AlterReassignments
) -> None:
    error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target:
        raise Refused(error, "The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(set(target)):
        if target.count(broker_id) > 1:
            text = f"The manual partition assignment includes the broker {broker_id} more than once."
            raise Refused(error, text)
        if broker_id not in image.brokers:
            text = f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            raise Refused(error, text)
    before = len(state.replicas) - len(state.adding_replicas)
    if not command.allow_replication_factor_change and len(target) != before:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {before} to {len(target)}",
        )


def _moved(state: PartitionState, target: tuple[BrokerId, ...], election: Election, min_isr: int) -> Wanted:
    """Old and new replicas together, the new ones first: the first of them is the preferred leader to be.

    Replicas that an earlier reassignment was adding and this one does not want go at once, unless too few others have
    the data.
    """
    original = [b for b in state.replicas if b not in state.adding_replicas]
    adding = tuple(b for b in target if b not in original)
    removing = tuple(b for b in original if b not in target)
    if not _leaves_enough(state, (*target, *removing), min_isr):
        removing = tuple(b for b in state.replicas if b not in target)
    return Wanted(election, replicas=(*target, *removing), adding=adding, removing=removing)


def _leaves_enough(state: PartitionState, replicas: tuple[BrokerId, ...], min_isr: int) -> bool:
    """Whether, among these, as many have all that is committed as the topic demands, or all who have it."""
    holders = (*state.isr, *state.eligible_leader_replicas)
    left = sum(b in replicas for b in holders)
    return left >= max(1, min(min_isr, len(replicas), len(holders)))


def _cancelled(state: PartitionState, election: Election, min_isr: int) -> Wanted:
    if not state.adding_replicas and not state.removing_replicas:
        error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        raise Refused(error, "No partition reassignment is in progress.")
    replicas = tuple(b for b in state.replicas if b not in state.adding_replicas)
    isr = tuple(b for b in state.isr if b in replicas)
    eligible = any(b in replicas for b in state.eligible_leader_replicas)
    if not replicas or not (isr or eligible or election is Election.UNCLEAN):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The reassignment cannot be cancelled: none of the replicas to go back to is in sync, and"
            " unclean.leader.election.enable is off.",
        )
    if election is not Election.UNCLEAN and not _leaves_enough(state, replicas, min_isr):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The reassignment cannot be cancelled yet: fewer of the replicas to go back to are in sync than"
            " min.insync.replicas, and the others that have the data would be given up.",
        )
    return Wanted(election, isr=isr, replicas=replicas, adding=(), removing=())
