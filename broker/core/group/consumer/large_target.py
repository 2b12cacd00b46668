"""The target assignment of a large group, computed and written in steps while heartbeats go on."""

from __future__ import annotations

from collections.abc import Iterator

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.member import Target
from raftlog.broker.core.group.consumer.records import TargetEpoch, TargetEpochRecord, TargetRecord
from raftlog.broker.core.group.consumer.target import assign, describe_members
from raftlog.broker.core.group.effects import Effects
from raftlog.broker.core.group.shard import GroupCoordinatorShard

RECORDS_A_STEP = 50
"""How many members get their new target in one write."""


def assign_in_steps(shard: GroupCoordinatorShard, group_id: str, now: Now) -> Iterator[Effects | None]:
    """Compute the target of a group for the epoch that it has now, and give it to those who are members by then. What
    is yielded is to be carried out before the next step. The group is in `shard.assigning` until all steps are taken.

    The epoch of the target is written last, and only when all else is in the log: until then the old one stands, and
    the next heartbeat has it computed again. A target that comes meanwhile, of an epoch no older, is left as it is.
    """
    try:
        group = shard.consumer(group_id)
        if group is not None and group.target_epoch.epoch < group.epoch.epoch:
            yield from _assign(shard, group, now)
    finally:
        del shard.assigning[group_id]


def _assign(shard: GroupCoordinatorShard, group: ConsumerGroup, now: Now) -> Iterator[Effects | None]:
    epoch = group.epoch.epoch
    ranks = shard.rank_members(group, now)
    specs = describe_members(group, group.members.values(), group.target, shard.image, ranks)
    instances = {member_id: spec.instance_id for member_id, spec in specs.items()}
    yield None
    assigned = yield from assign(specs, shard.assignor(group.preferred_assignor()), shard.image)
    new = list(assigned.items())
    for first in range(0, len(new), RECORDS_A_STEP):
        effects = Effects()
        targets = _still_to_write(shard, group, epoch, new[first : first + RECORDS_A_STEP], instances)
        if targets is None:
            return
        if targets:
            records = [TargetRecord(group.group_id, member_id, target) for member_id, target in targets]
            effects.write(tuple(records), None)
        yield effects
    if _still_to_write(shard, group, epoch, new, instances) == []:
        effects = Effects()
        effects.write((TargetEpochRecord(group.group_id, TargetEpoch(epoch, now.wall_ms)),), None)
        yield effects


def _still_to_write(
    shard: GroupCoordinatorShard,
    group: ConsumerGroup,
    epoch: int,
    new: list[tuple[str, Target]],
    instances: dict[str, str | None],
) -> list[tuple[str, Target]] | None:
    """The members that are to have something else than the log says, by the ids that they have now: static ones may
    have come back under others. None when the group is gone, or has another target that is no older.
    """
    if shard.consumer(group.group_id) is not group or group.target_epoch.epoch >= epoch:
        return None
    found = []
    for member_id, target in new:
        member = group.members.get(member_id) or group.static_member(instances[member_id])
        if member is not None and group.target.get(member.member_id) != target:
            found.append((member.member_id, target))
    return found
