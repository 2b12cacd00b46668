"""One partition's next state: who is in sync, who may lead, who is elected.

Kafka's rules for in-sync and eligible leader replicas (KIP-497, KIP-841, KIP-966) and for replicas on their way
(KIP-455).

The eligible leader replicas (ELR) hold everything that is committed without being in sync: they left the ISR when it
was already no larger than `min.insync.replicas`, and from then on nothing is committed (the high watermark stands
still while the ISR is too small). So one of them may lead, cleanly, when the ISR is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from raftlog.metadata.config_definition import Value
from raftlog.metadata.decision import Environment
from raftlog.metadata.image import BrokerRegistration, MetadataImage, PartitionState
from raftlog.metadata.records import NO_LEADER, ResourceType
from raftlog.wire.ids import BrokerId, LeaderEpoch, PartitionEpoch

NO_DIRECTORY = bytes(16)
"""A replica whose directory is not known, or is the only one of its broker."""


class Election(Enum):
    """What to look for. ONLINE: any clean leader, the present one first. PREFERRED: the first replica, if it is in
    sync. UNCLEAN: like ONLINE, and if there is none any replica that is there.
    """

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


Brokers: TypeAlias = tuple[BrokerId, ...]


class Wanted(NamedTuple):
    """What shall become of a partition; None leaves as it is.

    `lost`: brokers whose copy may lack committed records, to be dropped from ISR and ELR.
    """

    election: Election = Election.ONLINE
    isr: tuple[BrokerId, ...] | None = None
    replicas: tuple[BrokerId, ...] | None = None
    adding: tuple[BrokerId, ...] | None = None
    removing: tuple[BrokerId, ...] | None = None
    eligible: tuple[BrokerId, ...] | None = None
    lost: Collection[BrokerId] = ()
    recovering: bool | None = None


class Terms(NamedTuple):
    """A topic's min.insync.replicas, and the election that its settings allow when a leader is gone."""

    min_isr: int
    election: Election


NOTHING = Wanted()
"""Nothing but what follows from who is there."""


class Electorate:
    """Which brokers may lead, and what topics demand, at one moment of a decision.

    `brokers` are as they will be once the decision is carried out.
    """

    __slots__ = ("_environment", "_image", "_ordinary", "brokers", "usable")

    def __init__(
        self,
        image: MetadataImage,
        environment: Environment,
        brokers: Mapping[BrokerId, BrokerRegistration] | None = None,
    ) -> None:
        self._image = image
        self._environment = environment
        self.brokers = image.brokers if brokers is None else brokers
        self.usable = frozenset(
            broker_id
            for broker_id, broker in self.brokers.items()
            if not broker.fenced and not broker.in_controlled_shutdown
        )
        self._ordinary: Terms | None = None

    def may_lead(self, state: PartitionState, broker_id: BrokerId) -> bool:
        """Whether the broker is there, and so is the directory that holds its replica."""
        if broker_id not in self.usable:
            return False
        if not state.directories:
            return True
        directory = directory_of(state, broker_id)
        broker = self.brokers[broker_id]
        if directory == NO_DIRECTORY or not broker.directories:
            return True
        return directory in broker.directories and directory not in broker.offline_directories

    def terms(self, topic: str) -> Terms:
        """What the topic's settings demand. Most topics have none of their own, and share one value."""
        overrides = self._image.configs_of(ResourceType.TOPIC, topic)
        if overrides:
            return _terms(self._environment.resolver.with_overrides(self._image, overrides))
        if self._ordinary is None:
            self._ordinary = _terms(self._environment.resolver.with_overrides(self._image, {}))
        return self._ordinary

    def min_isr(self, topic: str) -> int:
        """The topic's min.insync.replicas."""
        return self.terms(topic).min_isr

    def election_for(self, topic: str) -> Election:
        """What a topic's settings allow when its leader is gone."""
        return self.terms(topic).election


def _terms(values: Mapping[str, Value]) -> Terms:
    min_isr = values["min.insync.replicas"]
    assert isinstance(min_isr, int)
    return Terms(min_isr, Election.UNCLEAN if values["unclean.leader.election.enable"] else Election.ONLINE)


def directory_of(state: PartitionState, broker_id: BrokerId) -> bytes:
    """The directory of a broker's replica, or NO_DIRECTORY."""
    if not state.directories or broker_id not in state.replicas:
        return NO_DIRECTORY
    return state.directories[state.replicas.index(broker_id)]


def change(
    state: PartitionState, electorate: Electorate, min_isr: int, wanted: Wanted = NOTHING
) -> PartitionState | None:
    """The partition's next state, or None when nothing changes.

    Whoever may not lead leaves the ISR; a reassignment whose new replicas are all in sync is completed; a leader is
    elected when there is none. Epochs grow by one: the partition's with every change, the leader's when another broker
    leads or a replica was taken away.
    """
    replicas = state.replicas if wanted.replicas is None else wanted.replicas
    adding = state.adding_replicas if wanted.adding is None else wanted.adding
    removing = state.removing_replicas if wanted.removing is None else wanted.removing
    asked = state.isr if wanted.isr is None else wanted.isr
    lost = wanted.lost
    isr = tuple([b for b in asked if b in replicas and b not in lost and electorate.may_lead(state, b)])
    if isr == state.isr:
        isr = state.isr
    if adding or removing:
        replicas, isr, adding, removing = _complete_reassignment(replicas, isr, adding, removing, min_isr)
    candidates = wanted.eligible if wanted.eligible is not None else (*state.isr, *state.eligible_leader_replicas)
    holders = tuple([b for b in replicas if b in candidates and b not in lost])
    leader, isr, unclean = _elect(state, electorate, wanted.election, _Choice(replicas, isr, holders))
    # An ISR that may commit ends the ELR, be it of one that was elected from there; so does an unclean leader.
    ends_elr = unclean or len(isr) >= min(min_isr, len(replicas))
    eligible = () if ends_elr else tuple([b for b in holders if b not in isr])
    taken_away = replicas != state.replicas and any(b not in replicas for b in state.replicas)
    recovering = state.leader_recovering if wanted.recovering is None else wanted.recovering
    after = PartitionState(
        partition_id=state.partition_id,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + (leader != state.leader or unclean or taken_away)),
        partition_epoch=state.partition_epoch,
        replicas=replicas,
        isr=isr,
        directories=_directories(state, replicas),
        eligible_leader_replicas=eligible,
        adding_replicas=adding,
        removing_replicas=removing,
        last_known_leader=_last_known_leader(state, leader),
        leader_recovering=unclean or recovering,
    )
    return None if after == state else after._replace(partition_epoch=PartitionEpoch(state.partition_epoch + 1))


def _complete_reassignment(
    replicas: Brokers, isr: Brokers, adding: Brokers, removing: Brokers, min_isr: int
) -> tuple[Brokers, Brokers, Brokers, Brokers]:
    """Copies are given up when as many of those that stay are in sync as the topic demands, and all the new ones.

    Kafka looks at the new ones alone, and may leave a single copy of what `min.insync.replicas` had on several.
    """
    target = tuple(b for b in replicas if b not in removing)
    staying = tuple(b for b in isr if b not in removing)
    if len(staying) < max(1, min(min_isr, len(target))) or any(b not in staying for b in adding):
        return replicas, isr, adding, removing
    return target, staying, (), ()


class _Choice(NamedTuple):
    """`holders`: who has all that is committed."""

    replicas: Brokers
    isr: Brokers
    holders: Brokers


def _elect(
    state: PartitionState, electorate: Electorate, election: Election, choice: _Choice
) -> tuple[BrokerId, Brokers, bool]:
    """(leader, ISR, whether the election was unclean). Every member of the ISR in `choice` may lead."""
    replicas, isr, holders = choice
    if isr:
        if election is Election.PREFERRED and replicas[0] in isr:
            return replicas[0], isr, False
        if state.leader in isr:
            return state.leader, isr, False
        return next(b for b in replicas if b in isr), isr, False
    for broker_id in holders:
        if electorate.may_lead(state, broker_id):
            return broker_id, (broker_id,), False
    if election is Election.UNCLEAN:
        for broker_id in replicas:
            if electorate.may_lead(state, broker_id):
                return broker_id, (broker_id,), True
    return NO_LEADER, isr, False


def _last_known_leader(state: PartitionState, leader: BrokerId) -> BrokerId:
    if leader != NO_LEADER:
        return NO_LEADER
    return state.leader if state.leader != NO_LEADER else state.last_known_leader


def _directories(state: PartitionState, replicas: Brokers) -> tuple[bytes, ...]:
    if replicas is state.replicas or not state.directories:
        return state.directories
    found = tuple(directory_of(state, b) for b in replicas)
    return found if any(directory != NO_DIRECTORY for directory in found) else ()
