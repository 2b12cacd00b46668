"""DescribeCluster (key 60), v0 to v2.

Brokers of the cluster (KIP-700), endpoint types (KIP-919, v1), fenced brokers on request (KIP-1073, v2).
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds
from raftlog.broker.api.metadata import CLUSTER_OPERATIONS, client_brokers, client_controller_id
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


@responds
def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The brokers as this client should see them."""
    image = context.services.controller.image
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to a broker, and asks for controllers.",
        )
    brokers = [
        DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=fenced)
        for fenced in ((False, True) if request.include_fenced_brokers else (False,))
        for broker_id, host, port, rack in client_brokers(context, image, fenced=fenced)
    ]
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id, controller_id=client_controller_id(context, image), brokers=brokers
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
