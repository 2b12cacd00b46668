"""Decisions about the state of registered brokers: fenced, serving, shutting down, gone; and about their directories.

What each change of state means for the partitions of the broker: whoever cannot serve leaves ISR and leadership
in the same entry that says so.

```
          registers          first heartbeat that has caught up
 (none) ────────────▶ fenced ─────────────────────────────────▶ serving ──want_shut_down──▶ shutting down
                        ▲                                          │                              │
                        └───── not heard, or want_fence ───────────┴──────────────────────────────┘
```
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.metadata.cluster_commands import (
    AssignDirectories,
    BrokerHeartbeat,
    BrokersFenced,
    BrokerUnregistered,
    DirectoriesAssigned,
    DirectoryAssignment,
    FenceBrokers,
    HeartbeatAnswer,
    UnregisterBroker,
)
from raftlog.metadata.commands import RegisterBroker
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.elections import NO_DIRECTORY, Electorate, Wanted, change, directory_of
from raftlog.metadata.image import BrokerRegistration, MetadataImage, PartitionState, TopicImage
from raftlog.metadata.partition_records import Touched, change_partitions, changed_count, in_sync_on, waiting_for
from raftlog.metadata.records import (
    NO_LEADER,
    BrokerChangeRecord,
    CordonRecord,
    PartitionChangeRecord,
    Record,
    UnregisterBrokerRecord,
)
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId, PartitionEpoch

# -- heartbeats ------------------------------------------------------------------------------------


def heartbeat(image: MetadataImage, command: BrokerHeartbeat, environment: Environment) -> Decision[HeartbeatAnswer]:
    """Decide BrokerHeartbeat (KIP-631, KIP-858)."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.epoch != command.broker_epoch:
        known = "is not registered" if broker is None else f"has registered again as epoch {broker.epoch}"
        message = f"Broker {command.broker_id} epoch {command.broker_epoch} {known}."
        return Decision((), HeartbeatAnswer(ErrorCode.STALE_BROKER_EPOCH, message))
    after = _after_heartbeat(broker, command)
    records = _change_broker(image, broker, after, environment)
    # A broker that shuts down and whose leaders this very decision moves away has none left once it is committed.
    done = command.want_shut_down and (after.fenced or after.in_controlled_shutdown)
    answer = HeartbeatAnswer(ErrorCode.NONE, None, not command.want_fence, after.fenced, should_shut_down=done)
    return Decision(records, answer)


def _after_heartbeat(broker: BrokerRegistration, command: BrokerHeartbeat) -> BrokerRegistration:
    offline = tuple(d for d in broker.directories if d in command.offline_directories)
    cordoned = tuple(d for d in broker.directories if d in command.cordoned_directories)
    fenced, stopping = broker.fenced, broker.in_controlled_shutdown
    if command.want_fence:
        fenced = True
    elif command.want_shut_down:
        stopping = stopping or not fenced
    elif fenced:
        fenced = False
    return broker._replace(
        fenced=fenced,
        in_controlled_shutdown=stopping,
        offline_directories=offline,
        cordoned_directories=cordoned,
    )


def _change_broker(
    image: MetadataImage, before: BrokerRegistration, after: BrokerRegistration, environment: Environment
) -> tuple[Record, ...]:
    cordoned: tuple[Record, ...] = ()
    if after.cordoned_directories != before.cordoned_directories:
        cordoned = (CordonRecord(after.broker_id, after.epoch, after.cordoned_directories),)
    if before._replace(cordoned_directories=after.cordoned_directories) == after:
        # Who has partitions keeps them.
        return cordoned
    noted = BrokerChangeRecord(
        before.broker_id,
        before.epoch,
        fenced=_if_changed(before.fenced, after.fenced),
        in_controlled_shutdown=_if_changed(before.in_controlled_shutdown, after.in_controlled_shutdown),
        offline_directories=(
            after.offline_directories if after.offline_directories != before.offline_directories else None
        ),
    )
    electorate = Electorate(image, environment, {**image.brokers, after.broker_id: after})
    return (noted, *cordoned, *change_partitions(image, electorate, _touched_by(before, after)))


def _if_changed(before: bool, after: bool) -> bool | None:
    return after if before != after else None


def _touched_by(before: BrokerRegistration, after: BrokerRegistration) -> Touched:
    """Partitions that a change of the broker's state can touch: what it serves, and what waits for it."""
    serves = in_sync_on((after.broker_id,))
    waits = waiting_for(after.broker_id)
    if after.fenced or after.in_controlled_shutdown:
        return serves
    if before.fenced:
        return waits
    return lambda state: serves(state) or waits(state)


def fence_brokers(image: MetadataImage, command: FenceBrokers, environment: Environment) -> Decision[BrokersFenced]:
    """Decide FenceBrokers: all of them at once, so that no partition moves to one that is fenced with the first."""
    brokers = dict(image.brokers)
    records: list[Record] = []
    for broker_id, epoch in command.brokers:
        broker = image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch and not broker.fenced:
            brokers[broker_id] = broker._replace(fenced=True)
            records.append(BrokerChangeRecord(broker_id, epoch, fenced=True))
    fenced = tuple(record.broker_id for record in records if isinstance(record, BrokerChangeRecord))
    if fenced:
        records += change_partitions(image, Electorate(image, environment, brokers), in_sync_on(fenced))
    return Decision(tuple(records), BrokersFenced(ErrorCode.NONE, fenced, changed_count(records)))


def unregister(
    image: MetadataImage, command: UnregisterBroker, environment: Environment
) -> Decision[BrokerUnregistered]:
    """Decide UnregisterBroker. Its replicas stay where they are assigned until they are reassigned.

    Unlike in Kafka a broker that is running is refused: it would lose its partitions, and come back at once.
    """
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        message = f"Broker ID {command.broker_id} is not currently registered"
        return Decision((), BrokerUnregistered(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    if not broker.fenced:
        # Kafka lets go of a running broker too. Here a mistyped number would take its partitions from their readers.
        message = f"broker {command.broker_id} is running: stop it first, or move its partitions to others"
        return Decision((), BrokerUnregistered(ErrorCode.INVALID_REQUEST, message))
    broker_id = command.broker_id
    brokers = {other_id: other for other_id, other in image.brokers.items() if other_id != broker_id}
    changes = change_partitions(
        image,
        Electorate(image, environment, brokers),
        lambda state: broker_id in state.isr or broker_id in state.eligible_leader_replicas,
        # Should the same id come again, it may be another machine with nothing on it.
        lambda _topic, _state: Wanted(lost=(broker_id,)),
    )
    records = _remember_last_holder(image, changes, broker_id, broker.directories)
    gone = UnregisterBrokerRecord(broker.broker_id, broker.epoch)
    return Decision((*records, gone), BrokerUnregistered(ErrorCode.NONE))


# -- coming back -----------------------------------------------------------------------------------


def returned(
    image: MetadataImage,
    command: RegisterBroker,
    known: BrokerRegistration | None,
    registered: BrokerRegistration,
    environment: Environment,
) -> tuple[PartitionChangeRecord, ...]:
    """What happens to the partitions of a broker that registers again.

    It is out of every ISR until it has caught up. After a crash of its machine it may have lost the end of its logs,
    so it is no eligible leader either, unless nobody else is; then it will lead as one that was elected uncleanly, and
    say so (KIP-966 does this with the last known leader). A replica whose directory is not among those that the broker
    brings is not there at all: it is never eligible, be it the last.
    """
    broker_id = command.broker_id
    sound = command.log_survived or (known is not None and known.epoch == command.previous_broker_epoch)
    brought = command.directories
    before = known.directories if known is not None else ()
    some_lost = bool(brought) and any(directory not in brought for directory in before)
    if not command.fenced and len(before) > 1:
        # A broker alone opens a log when it is first used, and has told where each one lies.
        some_lost = False

    def decide(_: TopicImage, state: PartitionState) -> Wanted:
        holders = {*state.isr, *state.eligible_leader_replicas}
        if broker_id in holders:
            if _is_lost(state, broker_id, brought, some_lost) or (not sound and holders != {broker_id}):
                return Wanted(lost=(broker_id,))
            if not sound and len(state.replicas) > 1:
                return Wanted(recovering=True)
        elif _is_back(state, broker_id, brought):
            return Wanted(eligible=(broker_id,))
        return Wanted()

    def touched(state: PartitionState) -> bool:
        return (
            broker_id in state.isr
            or broker_id in state.eligible_leader_replicas
            or (state.leader == NO_LEADER and broker_id in state.replicas)
        )

    electorate = Electorate(image, environment, {**image.brokers, broker_id: registered})
    records = change_partitions(image, electorate, touched, decide)
    return _remember_last_holder(image, records, broker_id, before)


def _is_lost(state: PartitionState, broker_id: BrokerId, brought: tuple[bytes, ...], some_lost: bool) -> bool:
    directory = directory_of(state, broker_id)
    if directory == NO_DIRECTORY:
        # It lies in one of the directories that the broker had, and nobody said in which.
        return some_lost
    return bool(brought) and directory not in brought


def _is_back(state: PartitionState, broker_id: BrokerId, brought: tuple[bytes, ...]) -> bool:
    """Whether the last holder of the data comes back with the very directory that it was missing."""
    nobody = not state.isr and not state.eligible_leader_replicas
    return nobody and state.last_known_leader == broker_id and directory_of(state, broker_id) in brought


def _remember_last_holder(
    image: MetadataImage,
    records: Iterable[PartitionChangeRecord],
    broker_id: BrokerId,
    directories: tuple[bytes, ...],
) -> tuple[PartitionChangeRecord, ...]:
    """Note whose replica was the last with the data, and in which directory: should that come back, so is the data."""
    noted = []
    for record in records:
        before = image.topics_by_id[record.topic_id].partitions
        states = tuple(_noted(before[s.partition_id], s, broker_id, directories) for s in record.partitions)
        noted.append(record._replace(partitions=states))
    return tuple(noted)


def _noted(
    before: PartitionState, after: PartitionState, broker_id: BrokerId, directories: tuple[bytes, ...]
) -> PartitionState:
    if after.isr or after.eligible_leader_replicas or {*before.isr, *before.eligible_leader_replicas} != {broker_id}:
        return after
    if len(directories) == 1:
        after = _with_directory(after, broker_id, directories[0])
    return after._replace(last_known_leader=broker_id)


def _with_directory(state: PartitionState, broker_id: BrokerId, directory: bytes) -> PartitionState:
    if directory_of(state, broker_id) != NO_DIRECTORY:
        return state
    before = state.directories or (NO_DIRECTORY,) * len(state.replicas)
    return state._replace(
        directories=tuple(
            directory if b == broker_id else known for b, known in zip(state.replicas, before, strict=True)
        )
    )


# -- directories -----------------------------------------------------------------------------------


def assign_directories(
    image: MetadataImage, command: AssignDirectories, environment: Environment
) -> Decision[DirectoriesAssigned]:
    """Decide AssignDirectories: each replica for itself.

    A replica that turns up in another directory while the one it was in is gone is a new, empty one. It does not count
    in place of the last copy of all.
    """
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return Decision((), DirectoriesAssigned(ErrorCode.STALE_BROKER_EPOCH))
    electorate = Electorate(image, environment)
    changed: dict[bytes, dict[int, PartitionState]] = {}
    results: list[ErrorCode] = []
    for assignment in command.assignments:
        topic = image.topics_by_id.get(assignment.topic_id)
        if topic is None:
            results.append(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        known = changed.setdefault(topic.topic_id, {})
        error = _assign(topic, broker, assignment, electorate, known)
        results.append(error)
    records = tuple(PartitionChangeRecord(topic_id, tuple(s.values())) for topic_id, s in changed.items() if s)
    return Decision(records, DirectoriesAssigned(ErrorCode.NONE, tuple(results)))


def _assign(
    topic: TopicImage,
    broker: BrokerRegistration,
    assignment: DirectoryAssignment,
    electorate: Electorate,
    changed: dict[int, PartitionState],
) -> ErrorCode:
    index = assignment.partition_id
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = changed.get(index, topic.partitions[index])
    broker_id = broker.broker_id
    if broker_id not in before.replicas or assignment.directory_id not in broker.directories:
        return ErrorCode.INVALID_REQUEST
    old = directory_of(before, broker_id)
    if old == assignment.directory_id:
        return ErrorCode.NONE
    states = before.directories or (NO_DIRECTORY,) * len(before.replicas)
    placed = tuple(
        assignment.directory_id if b == broker_id else known for b, known in zip(before.replicas, states, strict=True)
    )
    moved = before._replace(directories=placed)
    gone = old != NO_DIRECTORY and old not in broker.directories
    if gone and before.last_known_leader == broker_id:
        # The last copy of all lies in the directory that is gone, and must count when that is back.
        return ErrorCode.INELIGIBLE_REPLICA
    wanted = Wanted(electorate.election_for(topic.name), lost=(broker_id,) if gone else ())
    after = change(moved, electorate, electorate.min_isr(topic.name), wanted)
    final = after or moved
    changed[index] = final._replace(partition_epoch=PartitionEpoch(topic.partitions[index].partition_epoch + 1))
    return ErrorCode.NONE
