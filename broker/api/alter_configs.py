"""AlterConfigs (key 33), v0 to v2.

Replaces all settings of a resource: those not named go back to their default (KIP-133). IncrementalAlterConfigs is
the better request, because two clients do not undo each other's changes with it.
"""

from __future__ import annotations

from raftlog.broker.api.config_steps import Altered, alter_in_steps
from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.pace import Pace
from raftlog.metadata.commands import AlterResource, ConfigChange, ConfigOperation
from raftlog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@responds_later
async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Each resource changes as a whole or not at all."""
    pace = Pace()
    resources = await pace.each(request.resources, _resource)
    altered = await alter_in_steps(context, resources, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=await pace.each(altered, _response)
    )


def _response(altered: Altered) -> AlterConfigsResourceResponse:
    resource_type, name, error, message = altered
    return AlterConfigsResourceResponse(
        error_code=error, error_message=message, resource_type=resource_type, resource_name=name
    )


def _resource(resource: AlterConfigsResource) -> AlterResource:
    changes = tuple(ConfigChange(c.name, ConfigOperation.SET, c.value) for c in resource.configs)
    return AlterResource(resource.resource_type, resource.resource_name, changes, replace=True)
