"""Administration of brokers, replicas and the metadata quorum, as plain values.

Every function raises KafkaError; Rejected carries the broker's error code and message. Any broker takes these
requests: the leader of the quorum decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import Rejected, check
from raftlog.client.router import ANY_BROKER, Router
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from raftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from raftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raftlog.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from raftlog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from raftlog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from raftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from raftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from raftlog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

METADATA_TOPIC = "__cluster_metadata"
THE_QUORUM = DescribeQuorumRequestTopicData(
    topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
)
PREFERRED, UNCLEAN = 0, 1
NOTHING_TO_DO = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

Partition = tuple[str, int]
"""A topic's name and a partition's index."""


class Member(NamedTuple):
    """A node of the metadata quorum. Times are milliseconds of the answering broker's clock, -1 when unknown."""

    node_id: int
    is_voter: bool
    address: Address | None
    log_end: int
    last_heard_ms: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    """The metadata quorum, as its leader sees it."""

    leader: int
    term: int
    committed: int
    members: tuple[Member, ...]

    @property
    def voters(self) -> list[Member]:
        return [member for member in self.members if member.is_voter]


class Reassignment(NamedTuple):
    """A move that is under way. `replicas` holds the old and the new ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Outcome(NamedTuple):
    """What became of one partition of a request about many."""

    partition: Partition
    error: ErrorCode
    message: str | None


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Indexes by topic, in the order given."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def raise_first_failure(outcomes: Iterable[Outcome]) -> None:
    """Raise Rejected for the first outcome that is one."""
    for (topic, index), error, message in outcomes:
        if error not in NOTHING_TO_DO:
            raise Rejected(error, f"{topic}[{index}]", message)


class ClusterAdmin:
    """Brokers, replicas and the metadata quorum."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe_cluster(self) -> DescribeClusterResponse:
        """The brokers, fenced ones included, and the cluster's id."""

        async def attempt() -> DescribeClusterResponse:
            answer = await self._router.ask(
                DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse
            )
            check(answer.error_code, "the cluster", answer.error_message)
            return answer

        return await self._router.retrying(attempt)

    async def describe_quorum(self) -> Quorum:
        """Leader, term, committed index and members of the metadata quorum."""
        async def attempt() -> Quorum:
            answer = await self._router.ask(DescribeQuorumRequest(topics=[THE_QUORUM]), DescribeQuorumResponse)
            check(answer.error_code, "the metadata quorum", answer.error_message)
            ((described,),) = [topic.partitions for topic in answer.topics]
            check(described.error_code, "the metadata quorum", described.error_message)
            addresses = {
                node.node_id: Address(node.listeners[0].host, node.listeners[0].port)
                for node in answer.nodes
                if node.listeners
            }

            def member(state: ReplicaState, is_voter: bool) -> Member:
                return Member(
                    node_id=state.replica_id,
                    is_voter=is_voter,
                    address=addresses.get(state.replica_id),
                    log_end=state.log_end_offset,
                    last_heard_ms=state.last_fetch_timestamp,
                    last_caught_up_ms=state.last_caught_up_timestamp,
                )

            members = [member(state, True) for state in described.current_voters]
            members += [member(state, False) for state in described.observers]
            return Quorum(described.leader_id, described.leader_epoch, described.high_watermark, tuple(members))

        return await self._router.retrying(attempt)

    async def add_voter(self, node_id: int, address: Address) -> None:
        """Give a broker that follows the quorum a vote; returns once it has one."""
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=int(self._router.timeout * 1000),
            voter_id=node_id,
            listeners=[Listener(name="CONTROLLER", host=address.host, port=address.port)],
        )

        async def attempt() -> None:
            answer = await self._router.ask(request, AddRaftVoterResponse)
            check(answer.error_code, f"node {node_id}", answer.error_message)

        await self._router.changing(attempt)

    async def remove_voter(self, node_id: int) -> None:
        """Take a node's vote; it goes on as an observer."""
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id)

        async def attempt() -> None:
            answer = await self._router.ask(request, RemoveRaftVoterResponse)
            check(answer.error_code, f"node {node_id}", answer.error_message)

        await self._router.changing(attempt)

    async def take_over_quorum(self, node_id: int) -> None:
        """Make a voter the leader of the metadata quorum. Raises Rejected: ELECTION_NOT_NEEDED if it is already."""
        (outcome,) = await self.elect([(METADATA_TOPIC, 0)], node=node_id)
        check(outcome.error, f"broker {node_id}", outcome.message)

    async def elect(
        self, partitions: Iterable[Partition] | None, kind: int = PREFERRED, *, node: int = ANY_BROKER
    ) -> list[Outcome]:
        """Elect leaders of these partitions; with None, of all that need it."""
        wanted = None
        if partitions is not None:
            wanted = [TopicPartitions(topic=topic, partitions=found) for topic, found in by_topic(partitions).items()]
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=wanted, timeout_ms=int(self._router.timeout * 1000)
        )

        async def attempt() -> list[Outcome]:
            answer = await self._router.ask(request, ElectLeadersResponse, node=node)
            check(answer.error_code, "the election")
            return [
                Outcome((topic.topic, each.partition_id), ErrorCode.of(each.error_code), each.error_message)
                for topic in answer.replica_election_results
                for each in topic.partition_result
            ]

        return await self._router.retrying(attempt)

    async def reassign(self, replicas: Mapping[Partition, Sequence[int] | None]) -> list[Outcome]:
        """Begin to move partitions to these replicas; None calls off what is under way."""
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=index,
                        replicas=None if (wanted := replicas[topic, index]) is None else list(wanted),
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(replicas).items()
        ]
        request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=int(self._router.timeout * 1000))

        async def attempt() -> list[Outcome]:
            answer = await self._router.ask(request, AlterPartitionReassignmentsResponse)
            check(answer.error_code, "the reassignment", answer.error_message)
            return [
                Outcome((topic.name, each.partition_index), ErrorCode.of(each.error_code), each.error_message)
                for topic in answer.responses
                for each in topic.partitions
            ]

        return await self._router.retrying(attempt)

    async def reassignments(self) -> dict[Partition, Reassignment]:
        """The moves that are under way."""

        async def attempt() -> dict[Partition, Reassignment]:
            answer = await self._router.ask(
                ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse
            )
            check(answer.error_code, "the reassignments", answer.error_message)
            return {
                (topic.name, each.partition_index): Reassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._router.retrying(attempt)

    async def replica_sizes(self, broker: int) -> dict[Partition, int]:
        """Bytes of each replica on a broker. Raises Rejected when that broker is not there."""
        answer = await self._router.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node=broker)
        return {
            (topic.name, each.partition_index): each.partition_size
            for directory in answer.results
            for topic in directory.topics
            for each in topic.partitions
        }

    async def unregister(self, broker: int) -> None:
        """Forget a broker that is gone for good."""

        async def attempt() -> None:
            answer = await self._router.ask(UnregisterBrokerRequest(broker_id=broker), UnregisterBrokerResponse)
            check(answer.error_code, f"broker {broker}", answer.error_message)

        await self._router.changing(attempt)
