"""Elections, reassignments, features, quorum and log directories: what every version of a client is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.broker.api import describe_log_dirs
from raftlog.broker.api.pace import ENTRIES_PER_TURN
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.runtime.controller import CHANGES_TOGETHER
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.partition_manager import PartitionManager
from raftlog.broker.store.descriptions import DirectoryDescription, LogDescription
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.log_moves import LogMoves
from raftlog.metadata.commands import NewTopic
from raftlog.metadata.records import ResourceType
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages import alter_partition_reassignments as reassignments
from raftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from raftlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from raftlog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from raftlog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from raftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from raftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from raftlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.api.turns_world import TurnsWorld
from tests.broker.runtime.admin_world import CLUSTER_ID, AdminWorld, versions
from tests.broker.store.log_world import FakeClock


def reassign(topic: str, *replicas: list[int] | None) -> reassignments.AlterPartitionReassignmentsRequest:
    partitions = [
        reassignments.ReassignablePartition(partition_index=index, replicas=each) for index, each in enumerate(replicas)
    ]
    topics = [reassignments.ReassignableTopic(name=topic, partitions=partitions)]
    return reassignments.AlterPartitionReassignmentsRequest(topics=topics)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
async def test_a_move_begins_is_listed_and_is_called_off(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.add_broker(2)
        await world.create(NewTopic("t", assignments=((0, (1,)), (1, (1,)))))
        begun = await world.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassign("t", [2], [9], None), version)
        assert begun.error_code == ErrorCode.NONE
        errors = {each.partition_index: ErrorCode(each.error_code) for each in begun.responses[0].partitions}
        assert errors == {
            0: ErrorCode.NONE,
            1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 7])]):
            listed = await world.call(
                ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=topics), 0
            )
            ((move,),) = [topic.partitions for topic in listed.topics]
            assert (move.partition_index, move.adding_replicas, move.removing_replicas) == (0, [2], [1])
            assert sorted(move.replicas) == [1, 2]
        ended = await world.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassign("t", None, None), version)
        errors = {each.partition_index: ErrorCode(each.error_code) for each in ended.responses[0].partitions}
        assert errors == {0: ErrorCode.NONE, 1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        listed = await world.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(), 0)
        assert listed.topics == []


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
async def test_an_election_that_is_not_needed_or_about_nothing_says_so(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 5])])
        answer = await world.call(ApiKey.ELECT_LEADERS, request, version)
        (topic,) = answer.replica_election_results
        assert [ErrorCode(each.error_code) for each in topic.partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        everything = await world.call(ApiKey.ELECT_LEADERS, ElectLeadersRequest(topic_partitions=None), version)
        assert everything.replica_election_results == []


async def test_of_many_partitions_all_are_answered_under_one_topic(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.create("t")
        count = 2 * CHANGES_TOGETHER + 7
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (count - 1)
        request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[*range(count)])])
        ((elected,),) = [(await world.call(ApiKey.ELECT_LEADERS, request, 2)).replica_election_results]
        errors = [ErrorCode(each.error_code) for each in elected.partition_result]
        assert errors == [ErrorCode.ELECTION_NOT_NEEDED, *unknown]
        begun = await world.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassign("t", *[None] * count), 1)
        ((moved,),) = [begun.responses]
        errors = [ErrorCode(each.error_code) for each in moved.partitions]
        assert errors == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, *unknown]


async def test_a_kind_of_election_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        answer = await world.call(ApiKey.ELECT_LEADERS, ElectLeadersRequest(election_type=7, topic_partitions=None), 2)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_FEATURES))
async def test_a_feature_that_nobody_knows_is_refused(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        update = FeatureUpdateKey(feature="no.such", max_version_level=1)
        answer = await world.call(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update]), version)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert not answer.results
        same = FeatureUpdateKey(feature="raftlog.metadata.version", max_version_level=1)
        answer = await world.call(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[same]), version)
        assert answer.error_code == ErrorCode.NONE
        told = [(each.feature, each.error_code, each.error_message) for each in answer.results]
        assert told == ([(same.feature, ErrorCode.NONE, "NONE")] if version < 2 else [])


@pytest.mark.parametrize(("version", "told"), [(3, False), (4, True)])
async def test_clients_are_told_of_features_as_they_change(tmp_path: Path, version: int, told: bool) -> None:
    async with AdminWorld(tmp_path) as world:
        ask = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        before = await world.call(ApiKey.API_VERSIONS, ask, version)
        supported = {each.name: (each.min_version, each.max_version) for each in before.supported_features}
        # A range that begins with 0 is a broken answer to clients before v4.
        newer = {"group.version": (0, 1), "transaction.version": (0, 2)}
        assert supported == {"raftlog.metadata.version": (1, 1), **(newer if told else {})}
        assert _finalized(before) == {"group.version": 1, "raftlog.metadata.version": 1, "transaction.version": 2}
        lower = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
        answer = await world.call(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[lower]), 2)
        assert answer.error_code == ErrorCode.NONE
        after = await world.call(ApiKey.API_VERSIONS, ask, version)
        assert _finalized(after)["transaction.version"] == 1
        assert after.finalized_features_epoch > before.finalized_features_epoch


def _finalized(answer: ApiVersionsResponse) -> dict[str, int]:
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def test_a_broker_that_is_down_is_forgotten(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        await world.add_broker(2, fenced=True)
        answers = [
            await world.call(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker), 0)
            for broker in (2, 2, 1)
        ]
        codes = [ErrorCode(answer.error_code) for answer in answers]
        assert codes == [ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.INVALID_REQUEST]
        assert list(world.image.brokers) == [1]


@pytest.mark.parametrize(
    ("cluster_id", "voter", "listeners", "expected"),
    [
        ("another", 2, 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (CLUSTER_ID, 2, 0, ErrorCode.INVALID_REQUEST),
        (None, 1, 1, ErrorCode.DUPLICATE_VOTER),
        # A broker alone has no peer port, so nobody can join it.
        (None, 2, 1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_voter_that_cannot_be_added_is_refused(
    tmp_path: Path, cluster_id: str | None, voter: int, listeners: int, expected: ErrorCode
) -> None:
    async with AdminWorld(tmp_path) as world:
        listener = Listener(name="CONTROLLER", host="h", port=1)
        request = AddRaftVoterRequest(cluster_id=cluster_id, voter_id=voter, listeners=[listener] * listeners)
        answer = await world.call(ApiKey.ADD_RAFT_VOTER, request, 1)
        assert answer.error_code == expected and answer.error_message


@pytest.mark.parametrize(
    ("cluster_id", "voter", "expected"),
    [
        ("another", 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (None, 2, ErrorCode.VOTER_NOT_FOUND),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_voter_that_cannot_be_removed_stays(
    tmp_path: Path, cluster_id: str | None, voter: int, expected: ErrorCode
) -> None:
    async with AdminWorld(tmp_path) as world:
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter)
        answer = await world.call(ApiKey.REMOVE_RAFT_VOTER, request, 0)
        assert answer.error_code == expected and answer.error_message


class DirectoryWorld(AdminWorld):
    """A broker with two data directories and another one in the metadata."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.paths = [f"{directory}/{name}" for name in "ab"]
        self.logs = LogManager(self.paths, FakeClock(), node_id=1, cluster_id=CLUSTER_ID)
        self.partitions = PartitionManager(1, self.logs, lambda _: LogConfig())
        self.services.update(logs=self.logs, partitions=self.partitions)

    async def __aenter__(self) -> DirectoryWorld:
        await super().__aenter__()
        for path in self.paths:
            Path(path).mkdir()
        self.logs.start()
        await self.add_broker(2)
        await self.create(NewTopic("t", assignments=((0, (1,)), (1, (1,)), (2, (2,)))))
        self.controller.subscribe(self.partitions.publish)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.logs.close()
        await super().__aexit__(*raised)

    async def where(self, version: int = 4) -> dict[tuple[str, int], int]:
        """In which of the two directories DescribeLogDirs tells each partition."""
        answer = await self.call(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None), version)
        assert [each.log_dir for each in answer.results] == self.paths
        return {
            (topic.name, partition.partition_index): number
            for number, each in enumerate(answer.results)
            for topic in each.topics
            for partition in topic.partitions
        }

    async def move(self, index: int, path: str) -> ErrorCode:
        topic = AlterReplicaLogDirTopic(name="t", partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        answer = await self.call(ApiKey.ALTER_REPLICA_LOG_DIRS, request, 2)
        ((result,),) = [each.partitions for each in answer.results]
        return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
async def test_a_partition_that_was_never_written_is_told_where_it_will_lie(tmp_path: Path, version: int) -> None:
    async with DirectoryWorld(tmp_path) as world:
        told = await world.where(version)
        assert sorted(told) == [("t", 0), ("t", 1)] and set(told.values()) == {0, 1}
        assert await world.where(version) == told
        for index in (1, 0):
            assert isinstance(world.partitions.find_by_name(b"t", index), Partition)
        assert await world.where(version) == told


def test_others_are_served_while_thousands_of_partitions_are_described() -> None:
    world, count = TurnsWorld(), 5 * ENTRIES_PER_TURN
    found = DirectoryDescription("/d", None, 1, 1, [LogDescription("t", index) for index in range(count)])
    services = cast(Any, world.context.services)
    services.logs = SimpleNamespace(describe=lambda _: [found])
    services.partitions = SimpleNamespace(unwritten=tuple)
    describe_log_dirs.handle(world.context, DescribeLogDirsRequest(topics=None))
    turns = 0
    while not world.responses:
        world.turn()
        turns += 1
    assert turns >= 4
    (answer,) = cast(list[DescribeLogDirsResponse], world.responses)
    assert [each.partition_index for each in answer.results[0].topics[0].partitions] == [*range(count)]


async def test_a_partition_that_was_never_written_goes_to_the_directory_that_is_asked_for(tmp_path: Path) -> None:
    async with DirectoryWorld(tmp_path) as world:
        for index in (0, 1):
            assert await world.move(index, world.paths[1]) == ErrorCode.NONE
        assert await world.where() == {("t", 0): 1, ("t", 1): 1}
        assert isinstance(world.partitions.find_by_name(b"t", 0), Partition)
        assert await world.where() == {("t", 0): 1, ("t", 1): 1}


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
async def test_a_replica_with_a_log_is_moved_and_until_then_told_twice(tmp_path: Path, version: int) -> None:
    async with DirectoryWorld(tmp_path) as world:
        assert await world.move(0, world.paths[0]) == ErrorCode.NONE
        assert isinstance(world.partitions.find_by_name(b"t", 0), Partition)
        assert await world.move(0, world.paths[0]) == ErrorCode.NONE
        assert await world.move(0, world.paths[1]) == ErrorCode.NONE
        answer = await world.call(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None), version)
        told = [
            (number, partition.is_future_key)
            for number, each in enumerate(answer.results)
            for topic in each.topics
            for partition in topic.partitions
            if partition.partition_index == 0
        ]
        assert told == [(0, False), (1, True)]
        await LogMoves(world.logs).do_all()
        assert (await world.where(version))["t", 0] == 1


async def test_a_cordoned_directory_is_told_and_takes_no_replica(tmp_path: Path) -> None:
    async with DirectoryWorld(tmp_path) as world:
        world.logs.reconfigure(LogManagerSettings(cordoned=(world.paths[1],)))
        for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
            answer = await world.call(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None), version)
            assert [each.is_cordoned for each in answer.results] == [False, version >= 5]
        assert await world.where() == {("t", 0): 0, ("t", 1): 0}
        assert await world.move(0, world.paths[1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await world.move(0, world.paths[0]) == ErrorCode.NONE
        world.logs.reconfigure(LogManagerSettings(cordoned=("*",)))
        assert await world.move(0, world.paths[0]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        world.logs.reconfigure(LogManagerSettings())
        assert await world.move(0, world.paths[1]) == ErrorCode.NONE


@pytest.mark.parametrize("operation", [0, 2])
async def test_only_directories_that_a_broker_has_can_be_cordoned(tmp_path: Path, operation: int) -> None:
    async with AdminWorld(tmp_path) as world:

        async def alter(value: str, *, only_ask: bool = False) -> tuple[int, str | None]:
            config = AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_ask)
            (result,) = (await world.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)).responses
            return result.error_code, result.error_message

        for only_ask in (True, False):
            error, message = await alter(f"{tmp_path},/nowhere", only_ask=only_ask)
            assert error == ErrorCode.INVALID_REQUEST and message is not None
            assert message.endswith("must be present in log.dirs or log.dir. Missing entries : /nowhere")
        assert not world.image.configs_of(ResourceType.BROKER, "1")
        assert await alter(str(tmp_path)) == (ErrorCode.NONE, None)
        error, _ = await alter("*")
        # Beside another one it would say nothing.
        assert error == (ErrorCode.NONE if operation == 0 else ErrorCode.INVALID_REQUEST)


async def test_replicas_that_cannot_be_moved_are_told_why(tmp_path: Path) -> None:
    async with DirectoryWorld(tmp_path) as world:
        assert await world.move(0, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await world.move(2, world.paths[0]) == ErrorCode.REPLICA_NOT_AVAILABLE
        assert await world.move(7, world.paths[0]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.logs.directories[1].offline_reason = "it failed"
        assert await world.move(1, world.paths[1]) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_a_coordinator_that_was_found_comes_with_the_word_that_kafka_sends(tmp_path: Path, version: int) -> None:
    async with AdminWorld(tmp_path) as world:
        request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
        answer = await world.call(ApiKey.FIND_COORDINATOR, request, version)
        (found,) = (answer,) if version < 4 else answer.coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
        assert found.error_message == ("NONE" if 1 <= version < 4 else "")


async def test_the_coordinator_of_a_transactional_id_is_found_and_its_topic_made_as_kafka_makes_it(
    tmp_path: Path,
) -> None:
    async with AdminWorld(tmp_path, transaction_state_log_num_partitions="7") as world:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["id", "other"])
        answer = await world.call(ApiKey.FIND_COORDINATOR, request, 6)
        assert [(each.key, each.error_code, each.node_id) for each in answer.coordinators] == [
            ("id", ErrorCode.NONE, 1),
            ("other", ErrorCode.NONE, 1),
        ]
        topic = world.image.topics["__transaction_state"]
        assert topic.internal and len(topic.partitions) == 7
        values = world.image.configs_of(ResourceType.TOPIC, "__transaction_state")
        assert values == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        share = FindCoordinatorRequest(key_type=2, coordinator_keys=["x"])
        (refused,) = (await world.call(ApiKey.FIND_COORDINATOR, share, 6)).coordinators
        assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_QUORUM))
async def test_the_quorum_is_described_to_who_asks_for_its_partition_once_and_for_nothing_else(
    tmp_path: Path, version: int
) -> None:
    """So does Kafka, to which all is unknown otherwise: 8 MiB of the same question have a short answer."""

    def ask(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
        wanted = [
            DescribeQuorumRequestTopicData(
                topic_name=name,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ]
        return DescribeQuorumRequest(topics=wanted)

    metadata = "__cluster_metadata"
    async with AdminWorld(tmp_path) as world:
        world.services["clock"] = FakeClock()
        answer = await world.call(ApiKey.DESCRIBE_QUORUM, ask((metadata, [0])), version)
        (partition,) = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id, len(partition.current_voters)) == (ErrorCode.NONE, 1, 1)
        for topics in ([(metadata, [0, 0])], [(metadata, [0]), (metadata, [0])], [(metadata, [0]), ("t", [0])]):
            answer = await world.call(ApiKey.DESCRIBE_QUORUM, ask(*topics), version)
            told = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]
            assert told == topics
            errors = {each.error_code for topic in answer.topics for each in topic.partitions}
            assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert not any(each.current_voters for topic in answer.topics for each in topic.partitions)
