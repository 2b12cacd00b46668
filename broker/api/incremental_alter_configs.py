"""IncrementalAlterConfigs (key 44), v0 to v1: sets, deletes, appends to and subtracts from single settings
(KIP-339).
"""

from __future__ import annotations

from raftlog.broker.api.config_audit import log_config_changes
from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigChange
from raftlog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@responds_later
async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Each resource changes as a whole or not at all."""
    command = AlterConfigs(tuple(map(_resource, request.resources)), validate_only=request.validate_only)
    answer = await context.services.controller.execute(command)
    log_config_changes(context, command, answer)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error, error_message=message, resource_type=resource_type, resource_name=name
            )
            for resource_type, name, error, message in answer.results
        ]
    )


def _resource(resource: AlterConfigsResource) -> AlterResource:
    changes = tuple(ConfigChange(c.name, c.config_operation, c.value) for c in resource.configs)
    return AlterResource(resource.resource_type, resource.resource_name, changes)
