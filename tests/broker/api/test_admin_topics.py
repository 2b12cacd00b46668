"""CreateTopics, DeleteTopics, CreatePartitions and DescribeTopicPartitions over the wire, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.broker.runtime.controller import CHANGES_TOGETHER
from raftlog.metadata.commands import NewTopic
from raftlog.metadata.configs import TOPIC_CONFIGS, ConfigSource
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from raftlog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.runtime.admin_world import AdminWorld, versions


def creation(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only)


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


@pytest.mark.parametrize("version", [4, 5, 7])
async def test_many_topics_are_created_in_steps_and_answered_together(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        names = [f"t{number}" for number in range(2 * CHANGES_TOGETHER + 7)]
        wanted = [topic(name) for name in names]
        before = world.image.version
        response = await world.call(
            ApiKey.CREATE_TOPICS, creation(*wanted, topic("twice"), topic("bad/name"), topic("twice")), version
        )
        errors = {result.name: result.error_code for result in response.topics}
        assert len(response.topics) == len(errors)
        assert errors.pop("twice") == ErrorCode.INVALID_REQUEST
        assert errors.pop("bad/name") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert errors == dict.fromkeys(names, ErrorCode.NONE)
        assert set(world.image.topics) == set(names)
        assert world.image.version - before >= 3, "one entry of the log for all of them"
        assert version < 5 or all(result.configs for result in response.topics if not result.error_code)


@pytest.mark.parametrize("count", [3, 170], ids=["in one step", "in two"])
async def test_a_request_for_more_partitions_than_one_may_make_is_refused_as_a_whole(
    tmp_path: Path, count: int
) -> None:
    async with AdminWorld(tmp_path) as world:
        wanted = [topic(f"t{number}", 10_002 // count + 1) for number in range(count)]
        others = [topic("bad/name"), topic("none", 0), topic("twice", 9_000), topic("twice", 9_000)]
        response = await world.call(ApiKey.CREATE_TOPICS, creation(*wanted, *others), 7)
        assert [result.name for result in response.topics] == [each.name for each in (*wanted, *others)]
        assert {result.error_code for result in response.topics} == {ErrorCode.POLICY_VIOLATION}
        assert not world.image.topics


async def test_topics_that_are_named_twice_do_not_count_for_the_limit_of_a_request(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        request = creation(topic("t", 10_000), topic("twice", 6_000), topic("twice", 6_000), validate_only=True)
        response = await world.call(ApiKey.CREATE_TOPICS, request, 7)
        errors = {result.name: result.error_code for result in response.topics}
        assert errors == {"t": ErrorCode.NONE, "twice": ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
async def test_topics_are_created_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        request = creation(topic("good", 3, 1, retention_ms="5"), topic("bad", 0))
        response = await world.call(ApiKey.CREATE_TOPICS, request, version)
        good, bad = sorted(response.topics, key=lambda result: -len(result.name))
        assert (good.name, good.error_code, good.error_message) == ("good", ErrorCode.NONE, None)
        assert (bad.name, bad.error_code) == ("bad", ErrorCode.INVALID_PARTITIONS)
        assert bad.error_message
        assert set(world.image.topics) == {"good"}
        if version >= 7:
            assert good.topic_id == world.image.topics["good"].topic_id
        if version >= 5:
            assert (good.num_partitions, good.replication_factor, good.topic_config_error_code) == (3, 1, 0)
            configs = {config.name: config for config in good.configs}
            assert list(configs) == sorted(TOPIC_CONFIGS)
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", ConfigSource.TOPIC)
            assert configs["flush.ms"].config_source == ConfigSource.DEFAULT
            assert (bad.num_partitions, bad.replication_factor) == (-1, -1)


async def test_validation_creates_nothing_and_replicas_may_be_assigned(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        response = await world.call(ApiKey.CREATE_TOPICS, creation(topic("t"), validate_only=True), 7)
        assert response.topics[0].error_code == ErrorCode.NONE and not world.image.topics
        assigned = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
        assigned.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        response = await world.call(ApiKey.CREATE_TOPICS, creation(assigned), 7)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert world.image.topics["t"].partitions[0].replicas == (1,)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
async def test_topics_are_deleted_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("a", "b")
        if version >= 6:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in ("a", "nope")])
        else:
            request = DeleteTopicsRequest(topic_names=["a", "nope"])
        response = await world.call(ApiKey.DELETE_TOPICS, request, version)
        assert {result.name: result.error_code for result in response.responses} == {
            "a": ErrorCode.NONE,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert set(world.image.topics) == {"b"}


async def test_topics_are_deleted_by_id_and_unclear_wishes_are_refused(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        first, second = await world.create("a", "b")
        request = DeleteTopicsRequest(
            topics=[
                DeleteTopicState(topic_id=first.topic_id),
                DeleteTopicState(topic_id=b"\7" * 16),
                DeleteTopicState(),
                DeleteTopicState(name="b", topic_id=second.topic_id),
                DeleteTopicState(name="d", topic_id=b"\7" * 16),
                DeleteTopicState(name="d"),
                DeleteTopicState(name="c"),
                DeleteTopicState(name="c"),
            ]
        )
        response = await world.call(ApiKey.DELETE_TOPICS, request, 6)
        results = {(result.name, result.topic_id): result.error_code for result in response.responses}
        assert results == {
            ("a", first.topic_id): ErrorCode.NONE,
            (None, b"\7" * 16): ErrorCode.UNKNOWN_TOPIC_ID,
            (None, bytes(16)): ErrorCode.INVALID_REQUEST,
            ("b", second.topic_id): ErrorCode.INVALID_REQUEST,
            ("d", b"\7" * 16): ErrorCode.INVALID_REQUEST,
            ("d", bytes(16)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("c", bytes(16)): ErrorCode.INVALID_REQUEST,
        }
        assert set(world.image.topics) == {"b"}


async def test_many_topics_are_deleted_in_steps_and_unclear_wishes_are_refused_in_whichever(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        names = [f"t{number}" for number in range(2 * CHANGES_TOGETHER + 7)]
        made = await world.create(*names, "kept")
        before = world.image.version
        states = [DeleteTopicState(name="kept"), *(DeleteTopicState(name=name) for name in names)]
        states += [DeleteTopicState(topic_id=made[-1].topic_id), DeleteTopicState(name="nope")]
        response = await world.call(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=states), 6)
        errors = {result.name: result.error_code for result in response.responses}
        assert len(errors) == len(response.responses)
        assert errors.pop("kept") == ErrorCode.INVALID_REQUEST
        assert errors.pop("nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == dict.fromkeys(names, ErrorCode.NONE)
        assert set(world.image.topics) == {"kept"}
        assert world.image.version - before >= 3, "one entry of the log for all of them"


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_switched_off(tmp_path: Path, version: int, error: ErrorCode) -> None:
    async with AdminWorld(tmp_path, delete_topic_enable="false") as world:
        await world.create("a")
        response = await world.call(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]), version)
        assert response.responses[0].error_code == error
        assert set(world.image.topics) == {"a"}


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
async def test_topics_grow_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("a", "b")
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="a", count=3, assignments=None),
                CreatePartitionsTopic(name="b", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1])]),
                CreatePartitionsTopic(name="c", count=2, assignments=None),
            ]
        )
        response = await world.call(ApiKey.CREATE_PARTITIONS, request, version)
        assert [(r.name, r.error_code) for r in response.results] == [
            ("a", ErrorCode.NONE),
            ("b", ErrorCode.NONE),
            ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert [len(world.image.topics[name].partitions) for name in "ab"] == [3, 2]


async def test_many_topics_grow_in_steps_and_what_is_too_much_for_one_request_is_refused(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        names = [f"t{number}" for number in range(2 * CHANGES_TOGETHER + 7)]
        await world.create(*names, "twice")
        wanted = [CreatePartitionsTopic(name=name, count=61, assignments=None) for name in ("twice", *names, "twice")]
        request = CreatePartitionsRequest(topics=wanted, validate_only=True)
        response = await world.call(ApiKey.CREATE_PARTITIONS, request, 3)
        errors = [(result.name, result.error_code) for result in response.results]
        fit = 10_000 // 60
        assert errors == [
            ("twice", ErrorCode.INVALID_REQUEST),
            *((name, ErrorCode.NONE) for name in names[:fit]),
            *((name, ErrorCode.POLICY_VIOLATION) for name in names[fit:]),
        ]


async def pages(world: AdminWorld, request: DescribeTopicPartitionsRequest) -> list[DescribeTopicPartitionsResponse]:
    found: list[DescribeTopicPartitionsResponse] = []
    while True:
        response = await world.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
        found.append(response)
        if response.next_cursor is None:
            return found
        request.cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
async def test_partitions_are_described_page_by_page_without_gap_or_repetition(tmp_path: Path, limit: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create(NewTopic("b", 3, 1), NewTopic("a", 4, 1), NewTopic("c", 1, 1))
        request = DescribeTopicPartitionsRequest(response_partition_limit=limit)
        found = await pages(world, request)
        listed = [(t.name, p.partition_index) for page in found for t in page.topics for p in t.partitions]
        assert listed == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        assert all(sum(len(t.partitions) for t in page.topics) <= limit for page in found)


async def test_described_partitions_carry_all_there_is(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path, max_request_partition_size_limit="2") as world:
        await world.create(NewTopic("t", 3, 1))
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in ("t", "nope", "a b")])
        (first, second) = await pages(world, request)
        described = {t.name: t for t in (*first.topics, *second.topics)}
        assert described["a b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert described["nope"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert described["t"].topic_id == world.image.topics["t"].topic_id
        partition = described["t"].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 0, [1])
        assert (partition.isr_nodes, partition.eligible_leader_replicas, partition.offline_replicas) == ([1], [], [])
        assert len(first.topics[-1].partitions) == 2
        assert not world.image.topics.get("nope")


@pytest.mark.parametrize(("name", "index"), [("t", -1), ("a", 0), ("u", 0), ("", 0)])
async def test_a_cursor_that_is_in_none_of_the_topics_asked_for_is_refused(
    tmp_path: Path, name: str, index: int
) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        request.cursor = DescribeTopicPartitionsRequestCursor(topic_name=name, partition_index=index)
        response = await world.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
        assert [t.error_code for t in response.topics] == [ErrorCode.INVALID_REQUEST]
