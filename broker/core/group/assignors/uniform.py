"""Kafka's `uniform`: as many partitions for everybody, and as few moves as that allows.

Topics with the same subscribers form a pool. In a pool the shares are computed at once: each member keeps what it has
up to its share, and the rest goes to those below theirs. With one pool, which is to say when all members subscribe to
the same, no other balanced assignment moves less. With several, each in turn is balanced over what its members have
from the others, until nothing moves or after MAX_ROUNDS, as Kafka does it; members are then balanced over each topic,
though not always over the whole group.

What one may have more of than another goes to members with a low rank: those who hear of it first.

Kafka 4.3 knows the members' racks and does nothing with them. Here, among the partitions that move anyway, a member
gets those that have a replica in its rack, and gives up first those that have none. Nothing moves for a rack's sake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import NamedTuple

from raftlog.broker.core.group.assignors.assignor import (
    NO_RACKS,
    STEPS_A_SLICE,
    MemberAssignment,
    Members,
    Steps,
    TopicId,
    Topics,
)

MAX_ROUNDS = 16
"""How often all pools are balanced: each round about halves what is left to balance."""

NO_MEMBER = -1

Pause = Generator[None, None, None]


def assign_uniformly(members: Members, topics: Topics) -> Steps:
    """See the module."""
    group = _Group(members)
    yield from group.form_pools(topics)
    yield from group.keep()
    pools = group.pools
    if len(pools) > 1:
        # What is free goes first: with it in place, less has to be taken away from those who have something.
        for pool in pools:
            yield from pool.balance(group, may_take=False)
    for _ in range(MAX_ROUNDS):
        before = group.moves
        for pool in pools:
            yield from pool.balance(group, may_take=True)
        if len(pools) == 1 or group.moves == before:
            break
    return (yield from group.assignment())


class _Group:
    """The members by number, in the order of their ranks and ids, and how many partitions each has."""

    def __init__(self, members: Members) -> None:
        self.ids = sorted(members, key=lambda member_id: (members[member_id].rank, member_id))
        self.members = [members[member_id] for member_id in self.ids]
        self.racks = [member.rack for member in self.members]
        self.loads = [0] * len(self.ids)
        # Members that may not have exactly what they had.
        self.changed = bytearray(len(self.ids))
        self.moves = 0
        self.pools: list[_Pool] = []
        self.pool_of: dict[TopicId, _Pool] = {}

    def form_pools(self, topics: Topics) -> Pause:
        """Find the topics with the same subscribers; those with most partitions for each subscriber come first."""
        by_subscription: dict[frozenset[TopicId], list[int]] = {}
        for number, member in enumerate(self.members):
            by_subscription.setdefault(member.subscribed, []).append(number)
            if number % STEPS_A_SLICE == STEPS_A_SLICE - 1:
                yield
        # topic -> which of the subscriptions have it
        wanted: dict[TopicId, list[int]] = {}
        steps = 0
        for place, subscription in enumerate(by_subscription):
            for topic_id in subscription:
                wanted.setdefault(topic_id, []).append(place)
            steps += len(subscription)
            if steps >= STEPS_A_SLICE:
                steps = 0
                yield
        yield from self._pool_topics(list(by_subscription.values()), wanted, topics)

    def _pool_topics(self, subscribers: list[list[int]], wanted: dict[TopicId, list[int]], topics: Topics) -> Pause:
        has_racks = any(rack is not None for rack in self.racks)
        pools: dict[tuple[int, ...], _Pool] = {}
        steps = 0
        for topic_id in sorted(wanted):
            topic = topics.get(topic_id)
            if topic is None or not topic.partition_count:
                continue
            places = tuple(wanted[topic_id])
            pool = pools.get(places)
            if pool is None:
                pool = pools[places] = _Pool(sorted(number for place in places for number in subscribers[place]))
                steps += len(pool.subscribers)
            pool.add(topic_id, topic.partition_count, topic.racks if has_racks else ())
            self.pool_of[topic_id] = pool
            steps += topic.partition_count
            if steps >= STEPS_A_SLICE:
                steps = 0
                yield
        self.pools = sorted(pools.values(), key=_Pool.rank)

    def keep(self) -> Pause:
        """Everybody has what it had and still subscribes to; of two who had the same the first one has it."""
        steps = 0
        for number, member in enumerate(self.members):
            had = 0
            for topic_id, partitions in member.target.items():
                had += len(partitions)
                if topic_id in member.subscribed and (pool := self.pool_of.get(topic_id)) is not None:
                    self.loads[number] += pool.keep(number, topic_id, partitions)
            self.changed[number] = self.loads[number] != had
            steps += had + 1
            if steps >= STEPS_A_SLICE:
                steps = 0
                yield
        for pool in self.pools:
            pool.free = [place for place, is_old in enumerate(pool.is_old) if not is_old]
            yield

    def assignment(self) -> Steps:
        """What everybody has now."""
        parts: list[dict[TopicId, tuple[int, ...]]] = [{} for _ in self.ids]
        steps = 0
        for pool in self.pools:
            for number, held in pool.held.items():
                if held and self.changed[number]:
                    parts[number].update(pool.by_topic(held))
                steps += len(held) + 1
                if steps >= STEPS_A_SLICE:
                    steps = 0
                    yield
        result: dict[str, MemberAssignment] = {}
        for number, member_id in enumerate(self.ids):
            target = self.members[number].target
            is_same = not self.changed[number] or parts[number] == target
            result[member_id] = target if is_same else parts[number]
        return result


class _Shares(NamedTuple):
    """How many partitions of a pool each subscriber is to have; and how many of the candidates are to have one more."""

    least: dict[int, int]
    candidates: list[int]
    extra: int


class _Takers:
    """Who gets the partitions that are given out: how many each lacks, who may have one more, and how many of these.

    Whoever has one more already keeps it, so far as it goes: `shares` is changed for that.
    """

    def __init__(self, racks: list[str | None], shares: _Shares, held: dict[int, list[int]]) -> None:
        least = shares.least
        self.extra = shares.extra
        self.candidates: dict[int, None] = {}
        for number in shares.candidates:
            if self.extra and len(held.get(number, ())) > least[number]:
                self.extra -= 1
                least[number] += 1
            else:
                self.candidates[number] = None
        self.lacks = {
            number: lack for number, count in least.items() if (lack := count - len(held.get(number, ()))) > 0
        }
        self.in_racks: dict[str, _Queues] = {}
        # How many the members of a rack lack.
        self.room: dict[str, int] = {}
        for number, lack in sorted(self.lacks.items()):
            rack = racks[number]
            if rack is not None:
                self.in_racks.setdefault(rack, _Queues(deque(), deque())).lacking.append(number)
                self.room[rack] = self.room.get(rack, 0) + lack
        for number in self.candidates:
            rack = racks[number]
            if rack is not None:
                self.in_racks.setdefault(rack, _Queues(deque(), deque())).candidates.append(number)
        self.everywhere = _Queues(deque(sorted(self.lacks)), deque())

    def next_in(self, racks: frozenset[str]) -> int:
        """Who is next in one of the racks, the one that lacks most; or NO_MEMBER."""
        for rack in sorted(racks & self.in_racks.keys(), key=lambda rack: (-self.room.get(rack, 0), rack)):
            number = self._next_of(self.in_racks[rack])
            if number != NO_MEMBER:
                self.room[rack] = self.room.get(rack, 0) - 1
                return number
        return NO_MEMBER

    def next(self) -> int:
        """Who is next of all."""
        if not self.lacks and not self.everywhere.candidates:
            self.everywhere.candidates.extend(self.candidates)
        return self._next_of(self.everywhere)

    def _next_of(self, queues: _Queues) -> int:
        lacking, candidates = queues
        while lacking:
            number = lacking.popleft()
            lack = self.lacks.get(number, 0)
            if lack > 1:
                self.lacks[number] = lack - 1
                lacking.append(number)
                return number
            if lack:
                del self.lacks[number]
                return number
        while candidates and self.extra:
            number = candidates.popleft()
            if number in self.candidates:
                del self.candidates[number]
                self.extra -= 1
                return number
        return NO_MEMBER


class _Queues(NamedTuple):
    """Members in the order in which they get one each, again and again; and those who get one more, once."""

    lacking: deque[int]
    candidates: deque[int]


class _Pool:
    """Topics with the same subscribers. Its partitions have places, from the first one of the first topic on.

    Invariant: each place is in `free` or in one list of `held`, once.
    """

    def __init__(self, subscribers: list[int]) -> None:
        self.subscribers = subscribers
        self.topic_ids: list[TopicId] = []
        self.size = 0
        # Of each topic, the place of its partition 0, and of each place, its topic.
        self.first: dict[TopicId, int] = {}
        self.topic_of: list[int] = []
        # Of each place, where its replicas are; empty when there is nothing to choose by.
        self.racks: list[frozenset[str]] = []
        self.free: list[int] = []
        # Of each subscriber that has something, what.
        self.held: dict[int, list[int]] = {}
        # Of each place, whether a member had it already when all began.
        self.is_old = bytearray()

    def rank(self) -> tuple[float, int, TopicId]:
        """In which order pools get their turn."""
        return -self.size / len(self.subscribers), len(self.subscribers), self.topic_ids[0]

    def add(self, topic_id: TopicId, count: int, racks: Sequence[frozenset[str]]) -> None:
        """Take in a topic."""
        if racks or self.racks:
            self.racks.extend([NO_RACKS] * (self.size - len(self.racks)))
            self.racks.extend(racks or [NO_RACKS] * count)
        self.first[topic_id] = self.size
        self.topic_of.extend([len(self.topic_ids)] * count)
        self.topic_ids.append(topic_id)
        self.size += count
        self.is_old.extend(bytes(count))

    def keep(self, number: int, topic_id: TopicId, partitions: Sequence[int]) -> int:
        """A member has what it had. Returns how many that are."""
        first = self.first[topic_id]
        topic = self.topic_of[first]
        held = self.held.setdefault(number, [])
        before = len(held)
        for partition in partitions:
            place = first + partition
            if place < self.size and self.topic_of[place] == topic and not self.is_old[place]:
                self.is_old[place] = 1
                held.append(place)
        return len(held) - before

    def by_topic(self, held: list[int]) -> dict[TopicId, tuple[int, ...]]:
        """Places as partitions."""
        parts: dict[int, list[int]] = {}
        topic_of = self.topic_of
        for place in sorted(held):
            parts.setdefault(topic_of[place], []).append(place)
        result = {}
        for topic, places in parts.items():
            topic_id = self.topic_ids[topic]
            first = self.first[topic_id]
            result[topic_id] = tuple([place - first for place in places])
        return result

    def balance(self, group: _Group, *, may_take: bool) -> Pause:
        """Give out what is free, so that the subscribers have as equal loads as can be; with `may_take` those who have
        too much give up some of this pool."""
        loads = [group.loads[number] for number in self.subscribers]
        if not self.free and (not may_take or max(loads) - min(loads) <= 1):
            return
        yield
        held = self.held if may_take else {}
        total = len(self.free) + (sum(map(len, held.values())) if may_take else 0)
        shares = self._shares(group, held, total)
        yield
        takers = _Takers(group.racks, shares, held)
        for number in self.subscribers:
            too_many = len(held.get(number, ())) - shares.least[number]
            if too_many > 0:
                yield from self._take(group, number, too_many)
        yield from self._give(group, takers)

    def _shares(self, group: _Group, held: dict[int, list[int]], total: int) -> _Shares:
        """Pour `total` partitions on what the subscribers have from elsewhere: the lowest get them first."""
        fixed = sorted((group.loads[number] - len(held.get(number, ())), number) for number in self.subscribers)
        below = 0
        level = extra = count = 0
        for count, (load, _) in enumerate(fixed, 1):
            below += load
            level, extra = divmod(total + below, count)
            if count == len(fixed) or level < fixed[count][0]:
                break
        least = {number: level - load for load, number in fixed[:count]}
        least.update((number, 0) for _, number in fixed[count:])
        return _Shares(least, sorted(number for _, number in fixed[:count]), extra)

    def _take(self, group: _Group, number: int, count: int) -> Pause:
        """Take partitions from a member: first what it only got in this turn, then what is not in its rack."""
        held = self.held[number]
        rack = group.racks[number]
        is_old, racks = self.is_old, self.racks
        if rack is None or not racks:
            held.sort(key=lambda place: (not is_old[place], place))
        else:
            held.sort(key=lambda place: (not is_old[place], rack not in racks[place], place))
        self.free.extend(held[-count:])
        del held[-count:]
        group.loads[number] -= count
        group.changed[number] = True
        group.moves += count
        if count >= STEPS_A_SLICE:
            yield

    def _give(self, group: _Group, takers: _Takers) -> Pause:
        """Give out all that is free, in the takers' own racks first, and of each topic to as many as can be."""
        self.free.sort()
        rest = self.free
        if takers.in_racks and self.racks:
            rest = yield from self._give_in_racks(group, takers)
        for step, place in enumerate(rest):
            self._hand_over(group, takers.next(), place)
            if step % STEPS_A_SLICE == STEPS_A_SLICE - 1:
                yield
        self.free = []

    def _give_in_racks(self, group: _Group, takers: _Takers) -> Generator[None, None, list[int]]:
        """Give out what is in a taker's rack, first what is in few such racks. Returns what is left."""
        racks, known = self.racks, takers.in_racks.keys()
        by_choice: dict[int, list[int]] = {}
        for step, place in enumerate(self.free):
            by_choice.setdefault(len(racks[place] & known), []).append(place)
            if step % STEPS_A_SLICE == STEPS_A_SLICE - 1:
                yield
        rest = []
        for choice in sorted(by_choice):
            for step, place in enumerate(by_choice[choice]):
                number = takers.next_in(racks[place])
                if number == NO_MEMBER:
                    rest.append(place)
                else:
                    self._hand_over(group, number, place)
                if step % STEPS_A_SLICE == STEPS_A_SLICE - 1:
                    yield
        rest.sort()
        return rest

    def _hand_over(self, group: _Group, number: int, place: int) -> None:
        held = self.held.get(number)
        if held is None:
            held = self.held[number] = []
        held.append(place)
        self.is_old[place] = 0
        group.loads[number] += 1
        group.changed[number] = 1
