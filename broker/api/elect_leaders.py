"""ElectLeaders (key 43), v0 to v2: preferred leaders, or unclean ones (KIP-183, KIP-460).

Any broker takes the request; the leader of the metadata quorum decides. For the partition of the metadata itself the
broker that is asked becomes the leader of the quorum: that is how `raftlog quorum transfer` says whom it means.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any

from raftlog.broker.api.by_topic import ByTopic
from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.cluster_commands import ElectionType, ElectLeaders, LeadersElected
from raftlog.raft.seam import ProposalFailed
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

METADATA_TOPIC = "__cluster_metadata"
_TYPES_FROM = 1


@responds_later
async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Each partition succeeds or fails on its own; when all are asked for, those that need nothing are left out."""
    if request.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        return _failed(context, ErrorCode.INVALID_REQUEST)
    wanted = request.topic_partitions
    if wanted is not None and len(wanted) == 1 and (wanted[0].topic, wanted[0].partitions) == (METADATA_TOPIC, [0]):
        return await _take_over_quorum(context)
    kind, seconds = ElectionType(request.election_type), metadata_timeout_seconds(request.timeout_ms)
    controller = context.services.controller
    if wanted is None:
        answers = _once(controller.execute(ElectLeaders(kind, None), seconds))
    else:
        partitions = [(each.topic, index) for each in wanted for index in each.partitions]
        answers = controller.execute_in_parts(partitions, partial(ElectLeaders, kind), seconds)
    topics = ByTopic(lambda name: ReplicaElectionResult(topic=name))
    async for answer in answers:
        if answer.error is not ErrorCode.NONE:
            # What has been elected already is no reason not to ask for all of it again.
            return _failed(context, answer.error)
        for topic, index, error, message in answer.results:
            topics[topic].partition_result.append(
                PartitionResult(partition_id=index, error_code=error, error_message=message)
            )
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


async def _once(work: Coroutine[Any, Any, LeadersElected]) -> AsyncIterator[LeadersElected]:
    yield await work


def _failed(context: RequestContext, error: ErrorCode) -> ElectLeadersResponse:
    if context.api_version < _TYPES_FROM:
        # There is no place for an error of the whole: an answer about nothing makes the client ask again.
        return ElectLeadersResponse()
    return ElectLeadersResponse(error_code=error)


async def _take_over_quorum(context: RequestContext) -> ElectLeadersResponse:
    services = context.services
    error, message = ErrorCode.NONE, None
    if services.controller.controller_id == services.node_id:
        error, message = ErrorCode.ELECTION_NOT_NEEDED, f"broker {services.node_id} leads the quorum already"
    else:
        try:
            await services.controller.transfer_leadership(services.node_id)
        except ProposalFailed as failure:
            error, message = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, str(failure)
    result = PartitionResult(partition_id=0, error_code=error, error_message=message)
    return ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic=METADATA_TOPIC, partition_result=[result])]
    )
