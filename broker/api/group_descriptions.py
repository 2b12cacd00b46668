"""What DescribeGroups and ConsumerGroupDescribe have in common: each group as it is, or with an error of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode

# The bits of Kafka's AclOperation READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

TOLD_MAX = 10
"""How often one group is told in one answer."""


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
    """Describe each group, and give all of them to `done`, one that is named again again; `refused` is a group that
    could not be described.
    """
    # One asked for a thousand times is described once, and not told as often.
    once = list(dict.fromkeys(group_ids))

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
        by_id = dict(zip(once, described, strict=True))
        done([by_id[group_id] for group_id in _named(group_ids)])

    gather(context, once, begin, all_done)


def _named(group_ids: Sequence[str]) -> Iterator[str]:
    times: dict[str, int] = {}
    for group_id in group_ids:
        times[group_id] = times.get(group_id, 0) + 1
        if times[group_id] <= TOLD_MAX:
            yield group_id
