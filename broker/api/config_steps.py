"""AlterConfigs and IncrementalAlterConfigs with thousands of resources: in steps, so that nobody else waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from raftlog.broker.api.config_audit import log_config_changes
from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.pace import Pace
from raftlog.broker.runtime.controller import COMMAND_SECONDS_MAX
from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigOperation
from raftlog.metadata.config_control import NAMED_TWICE
from raftlog.metadata.configs import InvalidConfig, broker_definition, check_directories
from raftlog.metadata.decision import repeated
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode

CORDONED = "cordoned.log.dirs"

Altered: TypeAlias = tuple[int, str, ErrorCode, str | None]
"""Type, name, and what became of it."""


async def alter_in_steps(
    context: RequestContext, resources: Sequence[AlterResource], *, validate_only: bool
) -> list[Altered]:
    """What became of each, in their order; those that were changed are logged."""
    pace = Pace()
    keys = await pace.each(resources, lambda resource: resource[:2])
    twice = repeated(keys)
    command = partial(AlterConfigs, validate_only=validate_only)
    altered: dict[tuple[int, str], Altered] = {}
    once = []
    for resource, key in zip(resources, keys, strict=True):
        if key in twice:
            continue
        problem = _problem_here(context, resource)
        if problem is None:
            once.append(resource)
        else:
            altered[key] = *key, ErrorCode.INVALID_REQUEST, problem
    done = 0
    async for answer in context.services.controller.execute_in_parts(once, command, COMMAND_SECONDS_MAX):
        asked = once[done : done + len(answer.results)]
        done += len(asked)
        log_config_changes(context, command(tuple(asked)), answer)
        altered.update(((result[0], result[1]), result) for result in answer.results)
    return await pace.each(
        resources, lambda each: refused_twice(each) if each[:2] in twice else altered[each[:2]]
    )


def _problem_here(context: RequestContext, resource: AlterResource) -> str | None:
    """Why this broker refuses what concerns it alone: nobody else knows its directories."""
    services = context.services
    if resource.resource_type != ResourceType.BROKER or resource.name != str(services.node_id):
        return None
    for change in resource.changes:
        is_given = change.operation in (ConfigOperation.SET, ConfigOperation.APPEND)
        if change.name == CORDONED and change.value and is_given:
            try:
                paths = broker_definition(CORDONED).read(change.value)
                assert isinstance(paths, tuple)
                check_directories(paths, services.config.data_dirs)
            except InvalidConfig as error:
                return str(error)
    return None


def refused_twice(resource: AlterResource) -> Altered:
    """What is answered for a resource that is named more than once."""
    return *resource[:2], ErrorCode.INVALID_REQUEST, NAMED_TWICE
