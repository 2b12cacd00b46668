"""Where replicas go: spread over racks first, then over brokers, with leaders going round.

Deterministic: the same brokers and the same seed give the same places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from raftlog.metadata.image import BrokerRegistration
from raftlog.wire.ids import BrokerId

_T = TypeVar("_T")


class Unplaceable(Exception):
    """There are not enough brokers; the text says so."""


def place(
    brokers: Collection[BrokerRegistration], partitions: int, replication_factor: int, seed: int
) -> tuple[tuple[BrokerId, ...], ...]:
    """The replicas of each partition, the one to lead first. Raises Unplaceable.

    Brokers with all directories cordoned get none (KIP-1066).
    Brokers that are fenced or shut down hold replicas only when there are not enough others, and never come first.
    `seed` chooses where the round begins, so that topics with one partition do not all fall on one broker.
    """
    brokers = [broker for broker in brokers if not broker.is_cordoned]
    usable = [broker for broker in brokers if not broker.fenced and not broker.in_controlled_shutdown]
    if not usable:
        raise Unplaceable("All brokers are currently fenced, or have all their log directories cordoned.")
    if len(brokers) < replication_factor:
        raise Unplaceable(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)}"
            " broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(brokers) == 1:
        return ((usable[0].broker_id,),) * partitions
    round_of_usable = _alternate_racks(usable, seed)
    others = [broker for broker in brokers if broker.fenced or broker.in_controlled_shutdown]
    reserve = _alternate_racks(others, seed)
    return tuple(_place_one(round_of_usable, reserve, replication_factor, index, seed) for index in range(partitions))


def _alternate_racks(brokers: Sequence[BrokerRegistration], seed: int) -> list[BrokerRegistration]:
    """Brokers in an order in which racks take turns; `seed` turns the racks and the brokers within each."""
    racks: dict[str | None, list[BrokerRegistration]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks.setdefault(broker.rack, []).append(broker)
    names = sorted(racks, key=lambda name: (name is not None, name or ""))
    turned = [_turn(racks[name], seed // 7) for name in _turn(names, seed)]
    ordered: list[BrokerRegistration] = []
    for lap in range(max(map(len, turned), default=0)):
        ordered.extend(rack[lap] for rack in turned if lap < len(rack))
    return ordered


def _turn(items: list[_T], by: int) -> list[_T]:
    at = by % len(items) if items else 0
    return items[at:] + items[:at]


def _place_one(
    usable: list[BrokerRegistration], reserve: list[BrokerRegistration], replication_factor: int, index: int, seed: int
) -> tuple[BrokerId, ...]:
    count = len(usable)
    at = index % count
    leader = usable[at]
    # Each lap of leaders begins its followers one broker further on: otherwise the followers of one broker would be
    # the same few, and would have to take all of its partitions when it dies.
    rest = usable[at + 1 :] + usable[:at]
    shift = (index // count + seed) % max(1, count - 1)
    others = rest[shift:] + rest[:shift]
    chosen = [leader]
    racks = {leader.rack}
    # A rack that has no replica yet comes first, then any broker.
    for candidates, fresh_racks_only in ((others, True), (others + reserve, False)):
        for broker in candidates:
            if len(chosen) == replication_factor:
                break
            if broker not in chosen and not (fresh_racks_only and broker.rack in racks):
                chosen.append(broker)
                racks.add(broker.rack)
    return tuple(broker.broker_id for broker in chosen)
