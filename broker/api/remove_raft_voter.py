"""RemoveRaftVoter (key 81), v0: take a node's vote on the metadata (KIP-853). It goes on as an observer.

Any broker takes the request; the leader of the quorum carries it out. One change at a time.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.raft.seam import NotLeader, ProposalFailed
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@responds_later
async def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """The answer comes when the others have agreed."""
    services = context.services
    if request.cluster_id is not None and request.cluster_id != services.controller.image.cluster_id:
        return _refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {services.controller.image.cluster_id}")
    try:
        status = await services.controller.quorum_status()
        if all(member.node_id != request.voter_id for member in status.voters):
            return _refused(ErrorCode.VOTER_NOT_FOUND, f"node {request.voter_id} does not vote")
        if len(status.voters) == 1:
            return _refused(ErrorCode.INVALID_REQUEST, "the last voter cannot be removed: nobody could decide any more")
        await services.controller.remove_voter(request.voter_id)
    except NotLeader as failure:
        return _refused(ErrorCode.NOT_CONTROLLER, str(failure))
    except ProposalFailed as failure:
        return _refused(ErrorCode.REQUEST_TIMED_OUT if failure.outcome_unknown else ErrorCode.INVALID_REQUEST, failure)
    return RemoveRaftVoterResponse(error_message=None)


def _refused(error: ErrorCode, why: object) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=error, error_message=str(why))
