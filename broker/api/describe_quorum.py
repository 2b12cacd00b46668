"""DescribeQuorum (key 55), v0 to v2: leader, voters and observers of the metadata quorum (KIP-595, KIP-836, KIP-853).

Any broker takes the request; the leader of the quorum answers it, as long as there is one. Ages become timestamps of
this broker's clock. Node ids alone tell members apart here, so directory ids are zero.
"""

from __future__ import annotations

from dataclasses import replace

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.pace import Pace
from raftlog.raft.seam import ProposalFailed, QuorumMember, QuorumStatus
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

METADATA_TOPIC = "__cluster_metadata"
_LISTENER_NAME = "CONTROLLER"


@responds_later
async def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The one partition of the metadata. As in Kafka all is unknown to who asks for anything else, too: the answer
    stays in proportion to the question.
    """
    wanted = request.topics
    if len(wanted) != 1 or (wanted[0].topic_name, _indexes(wanted[0])) != (METADATA_TOPIC, [0]):
        return DescribeQuorumResponse(topics=await Pace().each(wanted, _unknown))
    status = await _status(context)
    partition = _described(status, context.services.clock.now_ms())
    topic = DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = []
    if context.api_version >= 2:
        for member in (*status.voters, *status.observers):
            listeners = [Listener(name=_LISTENER_NAME, host=member.host, port=member.port)] if member.host else []
            nodes.append(Node(node_id=member.node_id, listeners=listeners))
    return DescribeQuorumResponse(topics=[topic], nodes=nodes)


def _indexes(topic: DescribeQuorumRequestTopicData) -> list[int]:
    return [each.partition_index for each in topic.partitions]


def _unknown(topic: DescribeQuorumRequestTopicData) -> DescribeQuorumResponseTopicData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = [
        DescribeQuorumResponsePartitionData(partition_index=index, error_code=error) for index in _indexes(topic)
    ]
    return DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=partitions)


async def _status(context: RequestContext) -> QuorumStatus:
    """The leader's view; without a leader this broker's own, which is better than none to who looks for the fault."""
    controller = context.services.controller
    own = controller.log.status()
    if own.leader_id < 0:
        return own
    try:
        return await controller.quorum_status()
    except ProposalFailed:
        return replace(controller.log.status(), leader_id=-1)


def _described(status: QuorumStatus, now_ms: int) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=0,
        leader_id=status.leader_id,
        leader_epoch=status.term,
        high_watermark=status.committed_index,
        current_voters=[_state(status, member, now_ms) for member in status.voters],
        observers=[_state(status, member, now_ms) for member in status.observers],
    )


def _state(status: QuorumStatus, member: QuorumMember, now_ms: int) -> ReplicaState:
    if member.node_id == status.leader_id:
        return ReplicaState(
            replica_id=member.node_id,
            log_end_offset=status.last_index,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
    return ReplicaState(
        replica_id=member.node_id,
        log_end_offset=member.match_index,
        last_fetch_timestamp=_at(now_ms, member.last_contact_seconds),
        last_caught_up_timestamp=_at(now_ms, member.last_caught_up_seconds),
    )


def _at(now_ms: int, age_seconds: float) -> int:
    return -1 if age_seconds < 0 else now_ms - int(age_seconds * 1000)
