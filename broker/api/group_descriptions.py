"""What DescribeGroups and ConsumerGroupDescribe have in common: each group as it is, or with an error of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.parts import in_parts
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode

# The bits of Kafka's AclOperation READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


class Described(Protocol):
    """A group in a response."""

    error_code: int
    authorized_operations: int


G = TypeVar("G", bound=Described)


def describe_groups(
    context: RequestContext,
    group_ids: Sequence[str],
    describe: Callable[[GroupHost, str], G],
    refused: Callable[[str, ErrorCode], G],
    done: Callable[[list[G]], None],
    *,
    with_operations: bool,
) -> None:
    """Describe each group once, and give all of them to `done`; `refused` is a group that could not be described."""

    def begin(group_id: str, answer: Callable[[G], None]) -> None:
        def refuse(error: ErrorCode) -> None:
            answer(refused(group_id, error))

        def found(host: GroupHost) -> None:
            host.commit(Decision(describe(host, group_id), []), answer, refuse)

        context.services.groups.run(group_id, found, refuse)

    def all_done(described: list[G]) -> None:
        for group in described:
            if with_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OPERATIONS
        done(described)

    # One asked for a thousand times is described once.
    in_parts(list(dict.fromkeys(group_ids)), begin, all_done)
