"""Decisions about topics and their partitions: create, delete, grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raftlog.metadata.commands import (
    USE_DEFAULT,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    PartitionsCreated,
    TopicDeleted,
    TopicResult,
    TopicsCreated,
    TopicsDeleted,
)
from raftlog.metadata.config_definition import Value
from raftlog.metadata.configs import InvalidConfig, check_topic_configs
from raftlog.metadata.decision import Decision, Environment, repeated
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.metadata.placement import Unplaceable, place
from raftlog.metadata.records import (
    ConfigRecord,
    NewPartitionsRecord,
    Record,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from raftlog.metadata.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, colliding_form, topic_name_error
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId, LeaderEpoch, PartitionEpoch

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's limit: a request becomes one log entry, and an entry has to have a bound."""


class Refused(Exception):
    """A topic cannot be made or changed as asked: the outcome for the one who asked, not a failure of ours."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


# -- create ------------------------------------------------------------------------------------------


def create_topics(image: MetadataImage, command: CreateTopics, environment: Environment) -> Decision[TopicsCreated]:
    """Decide CreateTopics: each topic succeeds or fails on its own."""
    twice = repeated(topic.name for topic in command.topics)
    taken: dict[str, str] = {}  # colliding form -> name, of the topics made here
    records: list[Record] = []
    results: dict[str, TopicResult] = {}
    room = MAX_PARTITIONS_PER_REQUEST
    for topic in command.topics:
        try:
            if topic.name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            # Before anything is made: others wait while this is decided.
            _check_room(_wanted_partitions(topic, environment), room)
            record, configs = _new_topic(image, command, topic, taken, environment)
            room -= len(record.partitions)
        except Refused as refused:
            if refused.error is ErrorCode.POLICY_VIOLATION:
                room = 0
            results[topic.name] = _refused_topic(image, command, topic.name, refused)
            continue
        form = colliding_form(topic.name)
        if form is not None:
            taken[form] = topic.name
        results[topic.name] = TopicResult(
            name=topic.name,
            topic_id=record.topic_id,
            num_partitions=len(record.partitions),
            replication_factor=len(record.partitions[0].replicas),
            configs=tuple(configs.items()),
        )
        records.append(record)
        if configs:
            records.append(ConfigRecord(ResourceType.TOPIC, topic.name, dict(configs)))
    response = TopicsCreated(tuple(results.values()))
    return Decision(() if command.validate_only else tuple(records), response)


def _check_room(partitions: int, room: int) -> None:
    if partitions > room:
        raise Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _wanted_partitions(topic: NewTopic, environment: Environment) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return environment.num_partitions if topic.num_partitions == USE_DEFAULT else max(1, topic.num_partitions)


def _refused_topic(image: MetadataImage, command: CreateTopics, name: str, refused: Refused) -> TopicResult:
    existing = image.topics.get(name)
    if command.internal and existing is not None and refused.error is ErrorCode.TOPIC_ALREADY_EXISTS:
        # Two requests wanted the topic at once, and the other one came first: all is as both wished.
        return TopicResult(
            name=name,
            topic_id=existing.topic_id,
            num_partitions=len(existing.partitions),
            replication_factor=len(existing.partitions[0].replicas),
        )
    return TopicResult(name=name, error=refused.error, message=refused.message)


def _new_topic(
    image: MetadataImage, command: CreateTopics, topic: NewTopic, taken: dict[str, str], environment: Environment
) -> tuple[TopicRecord, dict[str, str]]:
    _check_name(image, topic.name, taken)
    configs = _checked_configs(topic.configs, environment.resolver.with_overrides(image, {}))
    topic_id = environment.new_id()
    if topic.assignments:
        replicas = _assigned(image, topic)
    else:
        replicas = _placed(image, command, topic, topic_id, environment)
    partitions = tuple(_new_partition(image, index, brokers) for index, brokers in enumerate(replicas))
    return TopicRecord(topic.name, topic_id, partitions, topic.name in INTERNAL_TOPICS), configs


def _check_name(image: MetadataImage, name: str, taken: dict[str, str]) -> None:
    problem = topic_name_error(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == CLUSTER_METADATA_TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    form = colliding_form(name)
    if form is not None:
        other = taken.get(form) or image.colliding_names.get(form)
        if other is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _checked_configs(configs: Iterable[tuple[str, str | None]], inherited: Mapping[str, Value]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        values[name] = value
    if not values:
        return values  # the topic can be made whatever the brokers' own settings are
    try:
        check_topic_configs(values, inherited)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    return values


def _placed(
    image: MetadataImage, command: CreateTopics, topic: NewTopic, topic_id: bytes, environment: Environment
) -> Sequence[tuple[BrokerId, ...]]:
    count, factor = topic.num_partitions, topic.replication_factor
    if factor == USE_DEFAULT:
        factor = environment.default_replication_factor
    if factor <= 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if count == USE_DEFAULT:
        count = environment.num_partitions
    if count <= 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)
    if command.cap_replication:
        factor = max(1, min(factor, sum(not broker.is_cordoned for broker in image.brokers.values())))
    try:
        return place(image.brokers.values(), count, factor, int.from_bytes(topic_id[:4], "big"))
    except Unplaceable as error:
        message = f"Unable to replicate the partition {factor} time(s): {error}"
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message) from error


def _assigned(image: MetadataImage, topic: NewTopic) -> Sequence[tuple[BrokerId, ...]]:
    if topic.replication_factor != USE_DEFAULT:
        message = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if topic.num_partitions != USE_DEFAULT:
        message = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    by_index: dict[int, tuple[BrokerId, ...]] = {}
    factor: int | None = None
    for index, replicas in topic.assignments:
        if index in by_index:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        _check_replicas(image, index, replicas, factor)
        factor = len(replicas)
        by_index[index] = replicas
    if sorted(by_index) != list(range(len(by_index))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [by_index[index] for index in range(len(by_index))]


def _check_replicas(image: MetadataImage, index: int, replicas: tuple[BrokerId, ...], factor: int | None) -> None:
    problem = None
    if not replicas:
        problem = "The manual partition assignment includes an empty replica list."
    for broker in sorted(set(replicas)):
        if broker not in image.brokers:
            problem = f"The manual partition assignment includes broker {broker}, but no such broker is registered."
        elif replicas.count(broker) > 1:
            problem = f"The manual partition assignment includes the broker {broker} more than once."
    if problem is None and factor is not None and len(replicas) != factor:
        problem = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
            f" consistent with previous partitions, which have {factor} replica(s)."
        )
    if problem is None and not any(image.is_usable(broker) for broker in replicas):
        problem = (
            "All brokers specified in the manual partition assignment for partition"
            f" {index} are fenced or in controlled shutdown."
        )
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _new_partition(image: MetadataImage, index: int, replicas: tuple[BrokerId, ...]) -> PartitionState:
    isr = tuple(broker for broker in replicas if image.is_usable(broker))
    if len(isr) == len(replicas):
        isr = replicas  # one tuple instead of two, ten thousand times
    return PartitionState(index, isr[0], LeaderEpoch(0), PartitionEpoch(0), replicas, isr)


# -- delete ------------------------------------------------------------------------------------------


def delete_topics(image: MetadataImage, command: DeleteTopics) -> Decision[TopicsDeleted]:
    """Decide DeleteTopics. A topic that is named by name and by id, or twice, is refused."""
    found = [
        image.topics.get(wanted) if isinstance(wanted, str) else image.topics_by_id.get(wanted)
        for wanted in command.topics
    ]
    twice = repeated(topic.topic_id for topic in found if topic is not None)
    records: list[Record] = []
    results: list[TopicDeleted] = []
    refused: dict[bytes, TopicDeleted] = {}
    for wanted, topic in zip(command.topics, found, strict=True):
        if topic is not None and topic.topic_id in twice:
            text = "The provided topic name maps to an ID that was already supplied."
            refused[topic.topic_id] = TopicDeleted(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, text)
        elif topic is not None:
            records.append(RemoveTopicRecord(topic.topic_id))
            results.append(TopicDeleted(topic.name, topic.topic_id))
        elif isinstance(wanted, str):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(TopicDeleted(wanted, bytes(16), error, error.message))
        else:
            error = ErrorCode.UNKNOWN_TOPIC_ID
            results.append(TopicDeleted(None, wanted, error, error.message))
    return Decision(tuple(records), TopicsDeleted((*refused.values(), *results)))


# -- grow --------------------------------------------------------------------------------------------


def create_partitions(
    image: MetadataImage, command: CreatePartitions, environment: Environment
) -> Decision[PartitionsCreated]:
    """Decide CreatePartitions: each topic succeeds or fails on its own."""
    twice = repeated(topic.name for topic in command.topics)
    records: list[Record] = []
    results: dict[str, tuple[str, ErrorCode, str | None]] = {}
    room = MAX_PARTITIONS_PER_REQUEST
    for wanted in command.topics:
        try:
            if wanted.name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            record = _more_partitions(image, wanted, room)
            room -= len(record.partitions)
            records.append(record)
            results[wanted.name] = (wanted.name, ErrorCode.NONE, None)
        except Refused as refused:
            results[wanted.name] = (wanted.name, refused.error, refused.message)
    response = PartitionsCreated(tuple(results.values()))
    return Decision(() if command.validate_only else tuple(records), response)


def _more_partitions(image: MetadataImage, wanted: MorePartitions, room: int) -> NewPartitionsRecord:
    topic = image.topics.get(wanted.name)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused(error, error.message)
    current = len(topic.partitions)
    additional = wanted.partitions - current
    if additional == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if additional < 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {current} partition(s); {wanted.partitions} would not be an"
            " increase.",
        )
    _check_room(additional, room)
    first = topic.partitions[0]
    # While it is moved it has old and new replicas.
    factor = len(first.replicas) - len(first.removing_replicas)
    if wanted.assignments is None:
        replicas = _placed_after(image, topic, additional, factor)
    else:
        replicas = wanted.assignments
        if len(replicas) != additional:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(replicas)} assignment(s) were"
                " specified.",
            )
        for index, brokers in enumerate(replicas, current):
            _check_replicas(image, index, brokers, factor)
    new = tuple(_new_partition(image, index, brokers) for index, brokers in enumerate(replicas, current))
    return NewPartitionsRecord(topic.topic_id, new)


def _placed_after(
    image: MetadataImage, topic: TopicImage, additional: int, factor: int
) -> Sequence[tuple[BrokerId, ...]]:
    """Places that go on where the topic's last round ended, so that leaders stay even."""
    seed = int.from_bytes(topic.topic_id[:4], "big")
    current = len(topic.partitions)
    try:
        return place(image.brokers.values(), current + additional, factor, seed)[current:]
    except Unplaceable as error:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from error
