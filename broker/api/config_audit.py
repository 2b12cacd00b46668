"""One log line for each change of settings: who changed which, for AlterConfigs and IncrementalAlterConfigs.

A value may be as long as a request; the beginning of it says enough.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.broker.server.limits import NAME_LENGTH_IN_LOGS_MAX
from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigChange, ConfigOperation, ConfigsAltered
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode


def log_config_changes(context: RequestContext, command: AlterConfigs, answer: ConfigsAltered) -> None:
    """Log the resources whose settings this command has changed."""
    if not command.validate_only:
        results = zip(command.resources, answer.results, strict=True)
        changed = [_changed(resource) for resource, (_, _, error, _) in results if error is ErrorCode.NONE]
        context.log_change("settings changed", changed)


def _changed(resource: AlterResource) -> str:
    kind = ResourceType(resource.resource_type).name.lower()
    settings = " ".join(map(_setting, resource.changes))
    return f"{kind} {resource.name or 'defaults'}: {settings or 'all as by default'}"


def _setting(change: ConfigChange) -> str:
    if change.operation == ConfigOperation.DELETE:
        return f"{change.name} as by default"
    sign = {ConfigOperation.APPEND: "+=", ConfigOperation.SUBTRACT: "-="}.get(ConfigOperation(change.operation), "=")
    return f"{change.name}{sign}{(change.value or '')[:NAME_LENGTH_IN_LOGS_MAX]}"
