"""BROKER_LOGGER (KIP-412) in DescribeConfigs and IncrementalAlterConfigs: the levels of this broker's loggers."""

from __future__ import annotations

from raftlog.broker.runtime import log_levels
from raftlog.metadata.commands import AlterResource, ConfigOperation
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_configs import DescribeConfigsResourceResult

DYNAMIC_BROKER_LOGGER = 6
"""Where the value of a level comes from, as DescribeConfigs has it (ConfigSource)."""
_STRING = 2

Outcome = tuple[ErrorCode, str | None]


def describe_loggers() -> list[DescribeConfigsResourceResult]:
    """Each logger with its level."""
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=DYNAMIC_BROKER_LOGGER, config_type=_STRING
        )
        for name, level in log_levels.described()
    ]


def refuse_other_broker(name: str, node_id: int) -> str | None:
    """Why this broker is not the one that is meant; None if it is."""
    return None if name == str(node_id) else f"Unexpected broker id, expected {node_id} but received {name}"


def alter_loggers(resource: AlterResource, node_id: int, *, validate_only: bool) -> Outcome:
    """Set and remove levels, all of them or none."""
    refusal = refuse_other_broker(resource.name, node_id)
    if refusal is not None:
        return ErrorCode.INVALID_REQUEST, refusal
    for change in resource.changes:
        if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            return ErrorCode.INVALID_REQUEST, "only SET and DELETE are allowed for the BROKER_LOGGER resource"
        level = change.value if change.operation == ConfigOperation.SET else None
        if level is None and change.operation == ConfigOperation.SET:
            return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
        problem = log_levels.problem(change.name, level)
        if problem is not None:
            is_root = change.name == log_levels.ROOT and level is None
            return ErrorCode.INVALID_REQUEST if is_root else ErrorCode.INVALID_CONFIG, problem
    if not validate_only:
        for change in resource.changes:
            log_levels.set_level(change.name, change.value if change.operation == ConfigOperation.SET else None)
    return ErrorCode.NONE, None
