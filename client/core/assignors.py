"""How the leader of a classic group divides partitions: range, roundrobin, sticky and cooperative-sticky.

All members must come to the same division from the same input, so nothing depends on the order of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from raftlog.client.core.assignment import Assignment, assign_ranges
from raftlog.client.core.metadata import TopicPartition

COOPERATIVE = "cooperative-sticky"


class Subscription(NamedTuple):
    """What one member wants and has. `owned` counts only from the newest generation that any member tells of."""

    topics: Sequence[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None


Assign = Callable[[Mapping[str, Subscription], Mapping[str, int]], dict[str, Assignment]]


def assign(name: str, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    """Member id to its share. `partitions`: topic to number of partitions, unknown topics left out."""
    return ASSIGNORS[name](members, partitions)


def _range(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    # Static members keep their place when they come back under another member id (KIP-345).
    names = {_sort_key(member, each): member for member, each in members.items()}
    assigned = assign_ranges({name: members[names[name]].topics for name in names}, partitions)
    return {names[name]: share for name, share in assigned.items()}


def _round_robin(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    shares: dict[str, Assignment] = {member: {} for member in members}
    if not members:
        return shares
    turns = cycle(sorted(members, key=lambda member: _sort_key(member, members[member])))
    for topic, index in _all(partitions):
        if not any(topic in each.topics for each in members.values()):
            continue
        member = next(turns)
        while topic not in members[member].topics:
            member = next(turns)
        shares[member].setdefault(topic, []).append(index)
    return shares


def _sticky(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    return _as_assignments(_balance(members, partitions))


def _cooperative_sticky(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    """What moves from one member to another is given to nobody yet: the next generation, once it was given up."""
    held = _balance(members, partitions)
    owners = _owners(members, partitions)
    return _as_assignments(
        {
            member: {each for each in share if owners.get(each, member) == member}
            for member, share in held.items()
        }
    )


ASSIGNORS: dict[str, Assign] = {
    "range": _range,
    "roundrobin": _round_robin,
    "sticky": _sticky,
    COOPERATIVE: _cooperative_sticky,
}


def _balance(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """Numbers of partitions that differ by one at most where subscriptions allow it, moving as few as that takes."""
    order = sorted(members, key=lambda member: _sort_key(member, members[member]))
    held: dict[str, set[TopicPartition]] = {member: set() for member in order}
    owners = _owners(members, partitions)
    for partition, member in owners.items():
        held[member].add(partition)
    wanted: dict[str, list[str]] = {
        topic: [member for member in order if topic in members[member].topics] for topic in partitions
    }
    for partition in _all(partitions):
        takers = wanted[partition[0]]
        if partition not in owners and takers:
            held[min(takers, key=lambda member: (len(held[member]), order.index(member)))].add(partition)
    # Both go to the end, the fewest squares in sum: what nobody has yet never makes a second move necessary. So where
    # all have given up what moves, the next division takes nothing from anybody, and a cooperative group rests.
    for free_only in (True, False):
        while path := _next_moves(held, wanted, order, owners, free_only=free_only):
            for partition, giver, taker in path:
                held[giver].remove(partition)
                held[taker].add(partition)
    return held


Move = tuple[TopicPartition, str, str]


def _next_moves(
    held: Mapping[str, set[TopicPartition]],
    wanted: Mapping[str, list[str]],
    order: Sequence[str],
    owners: Mapping[TopicPartition, str],
    *,
    free_only: bool,
) -> list[Move]:
    """The shortest chain of moves that takes one partition from a member and gives one to a member with two fewer.

    Each chain makes the numbers more even, so they end. `free_only`: only what no member owns is moved. Otherwise too,
    what its owner does not hold any more goes first.
    """
    place = {member: at for at, member in enumerate(order)}
    movable: dict[str, dict[str, TopicPartition]] = {}
    for member, partitions in held.items():
        free = (each for each in partitions if not free_only or each not in owners)
        movable[member] = {
            each[0]: each for each in sorted(free, key=lambda each: (owners.get(each) != member, each))
        }
    for giver in sorted(order, key=lambda member: (-len(held[member]), place[member])):
        came: dict[str, Move | None] = {giver: None}
        nearest = [giver]
        while nearest:
            nearest = _reach(nearest, movable, wanted, came)
            least = min(nearest, key=lambda member: (len(held[member]), -place[member]), default=giver)
            if len(held[giver]) - len(held[least]) >= 2:
                return _chain(came, least)
    return []


def _reach(
    members: Sequence[str],
    movable: Mapping[str, Mapping[str, TopicPartition]],
    wanted: Mapping[str, list[str]],
    came: dict[str, Move | None],
) -> list[str]:
    """Who can take something from these members, and is not in `came` yet; it tells what, and from whom."""
    reached = []
    for member in members:
        for topic in sorted(movable[member], reverse=True):
            for taker in [each for each in wanted[topic] if each not in came]:
                came[taker] = (movable[member][topic], member, taker)
                reached.append(taker)
    return reached


def _chain(came: Mapping[str, Move | None], last: str) -> list[Move]:
    moves = []
    while move := came[last]:
        moves.append(move)
        last = move[1]
    return moves


def _owners(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who has what: the newest generation counts, and nobody where two members of one claim it (KIP-792)."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in sorted(members):
        each = members[member]
        for topic, index in sorted(each.owned):
            if topic in each.topics and index < partitions.get(topic, 0):
                claims.setdefault((topic, index), []).append((each.generation, member))
    owners = {}
    for partition, claimed in sorted(claims.items()):
        newest = max(generation for generation, _ in claimed)
        best = [member for generation, member in claimed if generation == newest]
        if len(best) == 1:
            owners[partition] = best[0]
    return owners


def _all(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [(topic, index) for topic in sorted(partitions) for index in range(partitions[topic])]


def _sort_key(member: str, subscription: Subscription) -> str:
    return subscription.instance_id or member


def _as_assignments(held: Mapping[str, set[TopicPartition]]) -> dict[str, Assignment]:
    shares: dict[str, Assignment] = {}
    for member, partitions in held.items():
        share = shares.setdefault(member, {})
        for topic, index in sorted(partitions):
            share.setdefault(topic, []).append(index)
    return shares
