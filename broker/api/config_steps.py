"""AlterConfigs and IncrementalAlterConfigs with thousands of resources: in steps, so that nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from raftlog.broker.api.config_audit import log_config_changes
from raftlog.broker.api.context import RequestContext
from raftlog.broker.runtime.controller import COMMAND_SECONDS_MAX
from raftlog.metadata.commands import AlterConfigs, AlterResource
from raftlog.metadata.config_control import NAMED_TWICE
from raftlog.metadata.decision import repeated
from raftlog.wire.errors import ErrorCode

RESOURCES_TOGETHER = 100
"""Resources of one command: some milliseconds, more if each has a name that is looked for among the known ones."""

Altered: TypeAlias = tuple[int, str, ErrorCode, str | None]
"""Type, name, and what became of it."""


async def alter_in_steps(
    context: RequestContext, resources: Sequence[AlterResource], *, validate_only: bool
) -> list[Altered]:
    """What became of each, in their order; those that were changed are logged."""
    services = context.services
    twice = repeated(resource[:2] for resource in resources)
    once = [resource for resource in resources if resource[:2] not in twice]
    deadline = services.loop.time() + COMMAND_SECONDS_MAX
    altered: dict[tuple[int, str], Altered] = {}
    for start in range(0, len(once), RESOURCES_TOGETHER):
        await asyncio.sleep(0)
        command = AlterConfigs(tuple(once[start : start + RESOURCES_TOGETHER]), validate_only=validate_only)
        answer = await services.controller.execute(command, max(0.0, deadline - services.loop.time()))
        log_config_changes(context, command, answer)
        altered.update(((result[0], result[1]), result) for result in answer.results)
    return [
        refused_twice(each) if each[:2] in twice else altered[each[:2]]
        for each in resources
    ]


def refused_twice(resource: AlterResource) -> Altered:
    """What is answered for a resource that is named more than once."""
    return *resource[:2], ErrorCode.INVALID_REQUEST, NAMED_TWICE
