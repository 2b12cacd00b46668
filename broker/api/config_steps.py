"""AlterConfigs and IncrementalAlterConfigs with thousands of resources: in steps, so that nobody else waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from raftlog.broker.api.config_audit import log_config_changes
from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.pace import Pace
from raftlog.broker.runtime.controller import COMMAND_SECONDS_MAX
from raftlog.metadata.commands import AlterConfigs, AlterResource
from raftlog.metadata.config_control import NAMED_TWICE
from raftlog.metadata.decision import repeated
from raftlog.wire.errors import ErrorCode

Altered: TypeAlias = tuple[int, str, ErrorCode, str | None]
"""Type, name, and what became of it."""


async def alter_in_steps(
    context: RequestContext, resources: Sequence[AlterResource], *, validate_only: bool
) -> list[Altered]:
    """What became of each, in their order; those that were changed are logged."""
    pace = Pace()
    keys = await pace.each(resources, lambda resource: resource[:2])
    twice = repeated(keys)
    once = [resource for resource, key in zip(resources, keys, strict=True) if key not in twice]
    command = partial(AlterConfigs, validate_only=validate_only)
    altered: dict[tuple[int, str], Altered] = {}
    async for answer in context.services.controller.execute_in_parts(once, command, COMMAND_SECONDS_MAX):
        asked = once[len(altered) : len(altered) + len(answer.results)]
        log_config_changes(context, command(tuple(asked)), answer)
        altered.update(((result[0], result[1]), result) for result in answer.results)
    return await pace.each(
        resources, lambda each: refused_twice(each) if each[:2] in twice else altered[each[:2]]
    )


def refused_twice(resource: AlterResource) -> Altered:
    """What is answered for a resource that is named more than once."""
    return *resource[:2], ErrorCode.INVALID_REQUEST, NAMED_TWICE
