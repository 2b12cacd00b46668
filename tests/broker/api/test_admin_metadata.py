"""Metadata: what every version of a client is told about topics and brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.broker.api.metadata import CLUSTER_OPERATIONS
from raftlog.broker.api.topics_encoding import TOPIC_OPERATIONS, encode_topics
from raftlog.broker.runtime.controller import CHANGES_TOGETHER
from raftlog.metadata.commands import NewTopic
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.metadata.topic_control import MAX_PARTITIONS_PER_REQUEST
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.broker.runtime.admin_world import ADVERTISED, CLUSTER_ID, AdminWorld, versions

METADATA = ApiKey.METADATA


def ask(*names: str, create: bool = True) -> MetadataRequest:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    request.allow_auto_topic_creation = create
    return request


def everything(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


@pytest.mark.parametrize("version", versions(METADATA))
async def test_all_topics_are_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create(NewTopic("wide", 3, 1), "narrow")
        await world.controller.ensure_internal_topic("__consumer_offsets")
        response: MetadataResponse = await world.call(METADATA, everything(version), version)
        topics = {topic.name: topic for topic in response.topics}
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {
            "wide": 3,
            "narrow": 1,
            "__consumer_offsets": 50,
        }
        partition = topics["wide"].partitions[2]
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, 2, 1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert topics["__consumer_offsets"].is_internal is (version >= 1)
        if version >= 10:
            assert topics["wide"].topic_id == world.image.topics["wide"].topic_id
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, *ADVERTISED)
        assert broker.rack == ("r1" if version >= 1 else None)
        assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)
        assert response.controller_id == (1 if version >= 1 else -1)


async def test_an_empty_list_means_all_topics_only_in_version_0(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        for version in versions(METADATA):
            response = await world.call(METADATA, MetadataRequest(topics=[]), version)
            assert len(response.topics) == (1 if version == 0 else 0)


@pytest.mark.parametrize("version", versions(METADATA))
async def test_a_topic_that_is_not_there_is_created_and_described_at_once(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path, num_partitions="4") as world:
        response = await world.call(METADATA, ask("fresh"), version)
        (topic,) = response.topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == ("fresh", ErrorCode.NONE, 4)


async def test_a_topic_is_not_created_when_the_client_or_the_broker_forbids_it(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path / "a") as world:
        response = await world.call(METADATA, ask("fresh", create=False), 12)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with AdminWorld(tmp_path / "b", auto_create_topics_enable="false") as world:
        response = await world.call(METADATA, ask("fresh"), 12)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not world.image.topics


@pytest.mark.parametrize("create", [True, False])
async def test_a_name_that_no_topic_can_have_is_an_invalid_topic(tmp_path: Path, create: bool) -> None:
    async with AdminWorld(tmp_path) as world:
        response = await world.call(METADATA, ask("bad name", "fine", create=create), 9)
        errors = {topic.name: topic.error_code for topic in response.topics}
        assert errors["bad name"] == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_creation_that_fails_tells_why(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path, default_replication_factor="3") as world:
        response = await world.call(METADATA, ask("fresh"), 9)
        assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_the_offsets_topic_is_created_with_its_own_settings(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path, offsets_topic_num_partitions="7") as world:
        response = await world.call(METADATA, ask("__consumer_offsets"), 9)
        assert len(response.topics[0].partitions) == 7
        values = world.config.resolver.topic_values(world.image, "__consumer_offsets")
        assert values["cleanup.policy"] == ("compact",)
        assert values["segment.bytes"] == 104857600


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_are_found_by_id(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        (created,) = await world.create("t")
        unknown = b"\7" * 16
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=i, name=None) for i in (created.topic_id, unknown)]
        )
        found, missing = (await world.call(METADATA, request, version)).topics
        assert (found.name, found.error_code) == ("t", ErrorCode.NONE)
        assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_before_version_12(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        (created,) = await world.create("t")
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=created.topic_id, name=None)])
        response = await world.call(METADATA, request, version)
        (topic,) = response.topics
        assert (topic.error_code, topic.topic_id) == (ErrorCode.INVALID_REQUEST, created.topic_id)


async def test_a_topic_without_name_and_id_is_refused(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        response = await world.call(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 12)
        assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


async def test_authorized_operations_are_told_to_those_who_ask(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        for topics in (None, [MetadataRequestTopic(name="t")]):
            request = MetadataRequest(topics=topics)
            request.include_topic_authorized_operations = True
            request.include_cluster_authorized_operations = True
            response = await world.call(METADATA, request, 10)
            assert response.cluster_authorized_operations == CLUSTER_OPERATIONS
            assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


async def test_fenced_brokers_are_told_to_no_client(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.add_broker(2, "r2")
        await world.add_broker(3, "r3", fenced=True)
        response = await world.call(METADATA, everything(9), 9)
        assert [(b.node_id, b.host, b.rack) for b in response.brokers] == [
            (1, ADVERTISED[0], "r1"),
            (2, "broker-2.test", "r2"),
        ]


async def test_the_answer_for_all_topics_changes_with_the_metadata(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        for count in range(1, 4):
            await world.create(f"t{count}")
            for _ in range(2):
                assert len((await world.call(METADATA, everything(9), 9)).topics) == count


def test_topics_encoded_by_hand_equal_the_compiled_codec() -> None:
    partitions = (
        PartitionState(0, 1, 3, 4, (1, 2), (1,)),
        PartitionState(1, -1, 5, 6, (2, 1), (2,)),
        PartitionState(2, 1, 0, 0, (1,), (1,)),
    )
    topics = [TopicImage("première", b"\1" * 16, partitions), TopicImage("x", b"\2" * 16, partitions[:1], True)]
    image = MetadataImage()
    for version in versions(METADATA):
        if version == 0:
            continue  # v0 leaves out replicas that are not there: the test of all versions covers it
        expected = MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    is_internal=topic.internal,
                    partitions=[
                        MetadataResponsePartition(
                            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                            partition_index=p.partition_id,
                            leader_id=-1,
                            leader_epoch=p.leader_epoch,
                            replica_nodes=list(p.replicas),
                            isr_nodes=list(p.isr),
                            offline_replicas=list(p.replicas),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )
        assert encode_topics(image, topics, version) in encode(expected, version)


async def test_many_topics_are_created_on_first_use_in_steps_and_within_a_requests_limit(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path, num_partitions="90") as world:
        before = world.image.version
        names = [f"t{number}" for number in range(2 * CHANGES_TOGETHER + 7)]
        response = await world.call(METADATA, ask(*names), 9)
        errors = {topic.name: topic.error_code for topic in response.topics}
        made = dict.fromkeys(names[: len(world.image.topics)], ErrorCode.NONE)
        assert len(made) * 90 <= 2 * MAX_PARTITIONS_PER_REQUEST
        assert errors == {**dict.fromkeys(names, ErrorCode.POLICY_VIOLATION), **made}
        assert world.image.version - before == 2, "a step is an entry"
