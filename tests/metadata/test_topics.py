"""Creating, deleting and growing topics: what is allowed, and Kafka's error code for what is not."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.metadata import topic_control
from raftlog.metadata.cluster_commands import AlterReassignments, Reassignment
from raftlog.metadata.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
)
from raftlog.metadata.placement import place
from raftlog.metadata.records import ResourceType
from raftlog.metadata.topic_control import MAX_PARTITIONS_PER_REQUEST
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import World


def test_a_new_topic_has_the_partitions_and_replicas_asked_for() -> None:
    world = World(brokers=3)
    result = world.create(NewTopic("t", 4, 3, configs=(("retention.ms", "5"),)))
    assert (result.error, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 4, 3)
    topic = world.image.topics["t"]
    assert topic.topic_id == result.topic_id
    for index, partition in enumerate(topic.partitions):
        assert partition.partition_id == index
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert (partition.leader, partition.leader_epoch) == (partition.replicas[0], 0)
    assert world.image.configs_of(ResourceType.TOPIC, "t") == {"retention.ms": "5"}


def test_defaults_stand_in_for_minus_one() -> None:
    assert World().create(NewTopic("t")).num_partitions == 2


ILLEGAL_NAMES = ["", ".", "..", "a b", "é", "a/b", "x" * 250]


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_illegal_names_are_refused(name: str) -> None:
    assert World().create(name).error is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_"])
def test_legal_names_are_taken(name: str) -> None:
    assert World().create(name).error is ErrorCode.NONE


def test_names_that_collide_in_metrics_are_refused() -> None:
    world = World()
    world.create("a.b")
    collision = world.create("a_b")
    assert collision.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert collision.message == "Topic 'a_b' collides with existing topic: a.b"
    both = CreateTopics((NewTopic("x.y", 1, 1), NewTopic("x_y", 1, 1)))
    assert [r.error for r in world.execute(both).results] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    world.execute(DeleteTopics(("a.b",)))
    assert world.create("a_b").error is ErrorCode.NONE


def test_a_topic_that_exists_is_not_created_again_but_internally_that_is_fine() -> None:
    world = World()
    first = world.create("t")
    assert world.create("t").error is ErrorCode.TOPIC_ALREADY_EXISTS
    (again,) = world.execute(CreateTopics((NewTopic("t"),), internal=True)).results
    assert (again.error, again.topic_id) == (ErrorCode.NONE, first.topic_id)


def test_the_metadata_log_is_no_topic() -> None:
    assert World().create("__cluster_metadata").error is ErrorCode.INVALID_REQUEST


def test_a_name_given_twice_fails_and_the_others_do_not() -> None:
    world = World()
    command = CreateTopics((NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("a", 2, 1)))
    results = {result.name: result.error for result in world.execute(command).results}
    assert results == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}
    assert set(world.image.topics) == {"b"}


def test_validation_alone_changes_nothing() -> None:
    world = World()
    before = world.image
    assert world.create("t", validate_only=True).error is ErrorCode.NONE
    assert world.create("", validate_only=True).error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.image is before


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", MAX_PARTITIONS_PER_REQUEST + 1, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, -1, ((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (9,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (-1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (1,)), (2, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, ((0, (1,)), (1, (2, 3)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", 1, 1, configs=(("retention.ms", "x"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, configs=(("nope", "x"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, configs=(("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, 1, configs=(("remote.storage.enable", "true"),)), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_created_gets_kafkas_code(topic: NewTopic, error: ErrorCode) -> None:
    world = World(brokers=3)
    result = world.create(topic)
    assert result.error is error, result.message
    assert result.message
    assert not world.image.topics


def test_one_request_creates_at_most_ten_thousand_partitions() -> None:
    command = CreateTopics((NewTopic("a", 6000, 1), NewTopic("b", 6000, 1), NewTopic("c", 1, 1)))
    errors = [result.error for result in World().execute(command).results]
    assert errors == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]


def test_what_is_too_much_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of two kilobytes had a million partitions placed, while nobody else was served."""
    placed: list[int] = []

    def counted(brokers: Any, partitions: int, *rest: int) -> Any:
        placed.append(partitions)
        return place(brokers, partitions, *rest)

    monkeypatch.setattr(topic_control, "place", counted)
    results = World().execute(CreateTopics(tuple(NewTopic(f"t{n}", 10_000, 1) for n in range(100)))).results
    assert [result.error for result in results] == [ErrorCode.NONE, *[ErrorCode.POLICY_VIOLATION] * 99]
    assert placed == [10_000]


def test_replicas_placed_by_hand_are_taken_as_they_are() -> None:
    world = World(brokers=3)
    world.create(NewTopic("t", assignments=((1, (3, 1)), (0, (2, 3)))))
    assert [p.replicas for p in world.image.topics["t"].partitions] == [(2, 3), (3, 1)]


def test_a_fenced_broker_holds_replicas_but_is_not_in_sync() -> None:
    world = World(brokers=1)
    world.register(2, fenced=True)
    world.create(NewTopic("t", assignments=((0, (2, 1)),)))
    (partition,) = world.image.topics["t"].partitions
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 1), (1,), 1)
    assert world.create(NewTopic("u", assignments=((0, (2,)),))).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_internal_topics_are_marked() -> None:
    world = World()
    world.create("__consumer_offsets")
    world.create("__mine")
    assert world.image.topics["__consumer_offsets"].internal
    assert not world.image.topics["__mine"].internal


def test_a_capped_replication_factor_is_the_number_of_brokers() -> None:
    world = World(brokers=2)
    command = CreateTopics((NewTopic("t", 1, 3),), internal=True, cap_replication=True)
    assert world.execute(command).results[0].replication_factor == 2


def test_topics_are_deleted_by_name_and_by_id_with_their_settings() -> None:
    world = World()
    first = world.create(NewTopic("a", 1, 1, configs=(("retention.ms", "5"),)))
    second = world.create("b")
    results = world.execute(DeleteTopics(("a", second.topic_id, "nope", b"\7" * 16))).results
    assert [(r.name, r.error) for r in results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not world.image.topics and not world.image.topics_by_id and not world.image.configs
    assert world.create("a").topic_id != first.topic_id


def test_a_topic_that_is_named_by_name_and_by_id_is_not_deleted() -> None:
    """As by Kafka: who says it twice may have meant another topic."""
    world = World()
    first = world.create("a")
    world.create("b")
    results = world.execute(DeleteTopics(("a", "b", first.topic_id))).results
    assert sorted((r.name, r.topic_id == first.topic_id, r.error) for r in results) == [
        ("a", True, ErrorCode.INVALID_REQUEST),
        ("b", False, ErrorCode.NONE),
    ]
    assert set(world.image.topics) == {"a"}


def grow(world: World, *topics: MorePartitions, validate_only: bool = False) -> list[ErrorCode]:
    answer = world.execute(CreatePartitions(topics, validate_only))
    return [error for _, error, _ in answer.results]


def test_a_topic_grows_and_its_old_partitions_stay() -> None:
    world = World(brokers=3)
    world.create(NewTopic("t", 2, 2))
    before = world.image.topics["t"].partitions
    assert grow(world, MorePartitions("t", 5)) == [ErrorCode.NONE]
    after = world.image.topics["t"].partitions
    assert after[:2] == before and len(after) == 5
    assert [p.partition_id for p in after] == list(range(5))
    assert {len(p.replicas) for p in after} == {2}


def test_a_topic_that_is_moved_grows_by_partitions_with_as_many_replicas_as_it_will_have() -> None:
    world = World(brokers=4)
    world.create(NewTopic("t", assignments=((0, (1, 2)),)))
    world.execute(AlterReassignments((Reassignment("t", 0, (3, 4)),)))
    assert len(world.image.topics["t"].partitions[0].replicas) == 4, "old and new ones"
    assert grow(world, MorePartitions("t", 2)) == [ErrorCode.NONE]
    assert grow(world, MorePartitions("t", 3, ((1, 2),))) == [ErrorCode.NONE]
    assert [len(p.replicas) for p in world.image.topics["t"].partitions] == [4, 2, 2]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (MorePartitions("nope", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 3, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, ((1,), (2,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, ((1, 9),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_cannot_grow_gets_kafkas_code(more: MorePartitions, error: ErrorCode) -> None:
    world = World(brokers=2)
    world.create(NewTopic("t", 2, 2))
    before = world.image
    assert grow(world, more) == [error]
    assert world.image is before


def test_one_request_adds_no_more_partitions_than_an_entry_may_have() -> None:
    """Each topic of it could grow by ten thousand: hundreds of thousands of partitions in one entry of the log."""
    world = World()
    for name in ("a", "b", "c"):
        world.create(NewTopic(name, 1, 1))
    more = MAX_PARTITIONS_PER_REQUEST - 1
    grown = grow(world, MorePartitions("a", 1 + more), MorePartitions("b", 3), MorePartitions("c", 2))
    assert grown == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert [len(world.image.topics[name].partitions) for name in ("a", "b", "c")] == [1 + more, 1, 2]


def test_growing_by_hand_validating_and_repeating() -> None:
    world = World(brokers=2)
    world.create(NewTopic("t", 1, 1))
    assert grow(world, MorePartitions("t", 2, ((2,),)), validate_only=True) == [ErrorCode.NONE]
    assert len(world.image.topics["t"].partitions) == 1
    assert grow(world, MorePartitions("t", 2), MorePartitions("t", 3)) == [ErrorCode.INVALID_REQUEST]
    assert grow(world, MorePartitions("t", 2, ((2,),))) == [ErrorCode.NONE]
    assert world.image.topics["t"].partitions[1].replicas == (2,)
