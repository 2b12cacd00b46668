"""IncrementalAlterConfigs (key 44), v0 to v1: sets, deletes, appends to and subtracts from single settings
(KIP-339).
"""

from __future__ import annotations

from collections.abc import Container

from raftlog.broker.api.config_audit import log_config_changes
from raftlog.broker.api.config_steps import Altered, alter_in_steps, refused_twice
from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.logger_configs import alter_loggers
from raftlog.broker.api.pace import Pace
from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigChange, ConfigsAltered
from raftlog.metadata.decision import repeated
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@responds_later
async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Each resource changes as a whole or not at all. Log levels are changed here, all else by the controller."""
    pace = Pace()
    resources = await pace.each(request.resources, _resource)
    validate_only = request.validate_only
    kept = [each for each in resources if each.resource_type != ResourceType.BROKER_LOGGER]
    twice = repeated(await pace.each(resources, lambda each: each[:2]))
    results = iter(await alter_in_steps(context, kept, validate_only=validate_only))

    def altered(resource: AlterResource) -> AlterConfigsResourceResponse:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            return _response(*_alter_loggers(context, resource, twice, validate_only=validate_only))
        return _response(*next(results))

    return IncrementalAlterConfigsResponse(responses=await pace.each(resources, altered))


def _response(resource_type: int, name: str, error: ErrorCode, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error, error_message=message, resource_type=resource_type, resource_name=name
    )


def _alter_loggers(
    context: RequestContext, resource: AlterResource, twice: Container[tuple[int, str]], *, validate_only: bool
) -> Altered:
    kind, name = resource[:2]
    if (kind, name) in twice:
        return refused_twice(resource)
    error, message = alter_loggers(resource, context.services.node_id, validate_only=validate_only)
    altered = kind, name, error, message
    log_config_changes(context, AlterConfigs((resource,), validate_only=validate_only), ConfigsAltered((altered,)))
    return altered


def _resource(resource: AlterConfigsResource) -> AlterResource:
    changes = tuple(ConfigChange(c.name, c.config_operation, c.value) for c in resource.configs)
    return AlterResource(resource.resource_type, resource.resource_name, changes)
