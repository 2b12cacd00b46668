"""Patterns that members of a consumer group subscribe with (KIP-848): which topics each matches is found out once for
the whole group, beside its heartbeats, and is a record of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import Enum, auto

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.consumer.change import GroupChange, Refused
from raftlog.broker.core.group.consumer.member import Subscription
from raftlog.broker.core.group.consumer.records import RegexRecord, ResolvedRegex
from raftlog.broker.core.group.effects import Effects, RegexResolution
from raftlog.broker.core.group.regular_expressions import (
    InvalidRegularExpression,
    check_regular_expression,
    refresh_is_due,
    resolve_regular_expressions,
)
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode

NEVER_REFRESHED_MS = -(1 << 62)


class RegexChange(Enum):
    """What a heartbeat means to the patterns of the group."""

    NONE = auto()
    UPDATED = auto()
    """The member has another pattern, and what it matches is not known yet."""
    RESOLVED = auto()
    """The member has another pattern, or none any more, and what it consumes is known."""


def change_regex(change: GroupChange, before: Subscription, after: Subscription) -> RegexChange:
    """Take note of the pattern that the member has now. Raises Refused for one that is invalid."""
    old, new = before.regex or "", after.regex or ""
    if before.regex == after.regex:
        return RegexChange.NONE
    group = change.group
    if old and group.regex_subscribers[old] == 1:
        change.records.append(RegexRecord(group.group_id, old, None))
    if not new:
        return RegexChange.RESOLVED if old else RegexChange.UPDATED
    if not group.regex_subscribers[new]:
        try:
            check_regular_expression(new)
        except InvalidRegularExpression as error:
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
        return RegexChange.UPDATED
    return RegexChange.RESOLVED if new in group.resolved else RegexChange.UPDATED


def refresh_regexes(change: GroupChange, before: Subscription, after: Subscription) -> None:
    """Have topics matched with the patterns of the group, if that is due."""
    group, shard = change.group, change.shard
    used = group.regex_subscribers.copy()
    if before.regex:
        used[before.regex] -= 1
    if after.regex:
        used[after.regex] += 1
    regexes = tuple(sorted(+used))
    if not regexes or group.group_id in shard.resolving:
        return
    known = next(iter(group.resolved.values()), None)
    if refresh_is_due(
        change.now.wall_ms,
        NEVER_REFRESHED_MS if known is None else known.resolved_ms,
        has_unresolved=any(regex not in group.resolved for regex in regexes),
        has_new_topics=known is not None and known.version < shard.topics_created_version,
        interval_ms=shard.config.regex_refresh_interval_ms,
    ):
        change.effects.resolutions.append(RegexResolution(group.group_id, regexes))


def resolve(
    resolution: RegexResolution, image: MetadataImage, now: Now
) -> Generator[None, None, Mapping[str, ResolvedRegex]]:
    """What each pattern matches among the topics of `image`, in small steps."""
    found = yield from resolve_regular_expressions(resolution.regexes, list(image.topics))
    return {regex: ResolvedRegex(topics, image.version, now.wall_ms) for regex, topics in found.items()}


def regexes_resolved(
    shard: GroupCoordinatorShard, group_id: str, resolved: Mapping[str, ResolvedRegex], now: Now
) -> Effects:
    """It is known what the patterns match: the group gets a new epoch if that is something else than before."""
    effects = Effects()
    shard.resolving.pop(group_id, None)
    group = shard.consumer(group_id)
    if group is None:
        return effects
    change = GroupChange(shard, group, now, effects)
    topics = group.topic_subscribers.copy()
    has_changed = False
    for regex, new in resolved.items():
        if not group.regex_subscribers[regex]:
            continue
        old = group.resolved.get(regex)
        before = frozenset[str]() if old is None else old.topics
        if before != new.topics:
            has_changed = True
            topics.subtract(before)
            topics.update(new.topics)
        change.records.append(RegexRecord(group_id, regex, new))
    change.check_topics(+topics, "topics match a pattern or do so no more" if has_changed else None)
    if change.records:
        effects.write(tuple(change.records), None)
    return effects
