"""AddRaftVoter (key 80), v0 and v1: give a broker that follows the metadata a vote (KIP-853, KIP-1186).

Any broker takes the request; the leader of the quorum carries it out, once the broker has caught up. One change at a
time. Directory ids are not looked at: a node that lost its log is refused by the quorum itself.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.raft.seam import NotLeader, ProposalFailed
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


@responds_later
async def handle(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """The answer comes when the voter is one."""
    services = context.services
    if request.cluster_id is not None and request.cluster_id != services.controller.image.cluster_id:
        return _refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {services.controller.image.cluster_id}")
    if not request.listeners:
        return _refused(ErrorCode.INVALID_REQUEST, "no listener is given at which other voters reach the new one")
    listener = request.listeners[0]
    try:
        status = await services.controller.quorum_status()
        if any(member.node_id == request.voter_id for member in status.voters):
            return _refused(ErrorCode.DUPLICATE_VOTER, f"node {request.voter_id} votes already")
        await services.controller.add_voter(request.voter_id, listener.host, listener.port)
    except NotLeader as failure:
        return _refused(ErrorCode.NOT_CONTROLLER, str(failure))
    except ProposalFailed as failure:
        return _refused(ErrorCode.REQUEST_TIMED_OUT if failure.outcome_unknown else ErrorCode.INVALID_REQUEST, failure)
    return AddRaftVoterResponse(error_message=None)


def _refused(error: ErrorCode, why: object) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=error, error_message=str(why))
