"""What brokers, operators and the leader itself ask of the metadata controller about brokers and replicas.

Topics and configs are in `commands`. A broker epoch of -1 stands for "not known" wherever Kafka allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from raftlog.metadata.commands import NO_EPOCH, Command
from raftlog.metadata.records import PartitionState
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch

# -- brokers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Command["HeartbeatAnswer"]):
    """A broker is alive and says what it wants (KIP-631). Answered by HeartbeatAnswer.

    `metadata_offset`: the last log entry that it has replayed. `offline_directories`: ids of its directories that
    failed (KIP-858), `cordoned_directories` of those that get no more partitions (KIP-1066).
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_directories: tuple[bytes, ...] = ()
    cordoned_directories: tuple[bytes, ...] = ()

    repeatable: ClassVar[bool] = True

    @property
    def liveness_only(self) -> bool:
        """See Command."""
        return not self.want_shut_down

    def refused(self, error: ErrorCode, message: str) -> HeartbeatAnswer:
        """See Command."""
        return HeartbeatAnswer(error, message)


class HeartbeatAnswer(NamedTuple):
    """How the controller sees the broker. `should_shut_down`: it leads nothing any more and may stop."""

    error: ErrorCode
    message: str | None = None
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True)
class FenceBrokers(Command["BrokersFenced"]):
    """The leader has not heard these (broker id, broker epoch): they lead nothing from now on.

    A broker that has registered again since is left alone. Answered by BrokersFenced.
    """

    brokers: tuple[tuple[BrokerId, BrokerEpoch], ...]

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> BrokersFenced:
        """See Command."""
        return BrokersFenced(error)


class BrokersFenced(NamedTuple):
    """The ids that were fenced by this, and how many partitions changed."""

    error: ErrorCode
    fenced: tuple[BrokerId, ...] = ()
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Command["BrokerUnregistered"]):
    """Forget a broker that is gone for good. Answered by BrokerUnregistered."""

    broker_id: BrokerId

    def refused(self, error: ErrorCode, message: str) -> BrokerUnregistered:
        """See Command."""
        return BrokerUnregistered(error, message)


class BrokerUnregistered(NamedTuple):
    """BROKER_ID_NOT_REGISTERED when nobody has that id."""

    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AssignDirectories(Command["DirectoriesAssigned"]):
    """A broker says in which of its directories replicas lie (KIP-858). Answered by DirectoriesAssigned, in order."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    assignments: tuple[DirectoryAssignment, ...]

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> DirectoriesAssigned:
        """See Command."""
        return DirectoriesAssigned(error)


class DirectoryAssignment(NamedTuple):
    """One replica and the id of its directory."""

    topic_id: bytes
    partition_id: int
    directory_id: bytes


class DirectoriesAssigned(NamedTuple):
    """`results`: one error for each assignment, in order; empty when `error` is set."""

    error: ErrorCode
    results: tuple[ErrorCode, ...] = ()


# -- partitions ------------------------------------------------------------------------------------


class IsrMember(NamedTuple):
    """A member of a proposed ISR, and the epoch with which the leader knows it (KIP-903); -1: not known."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_EPOCH


class IsrProposal(NamedTuple):
    """The ISR that a partition's leader wants, decided on these epochs (KIP-497)."""

    topic_id: bytes
    partition_id: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]
    leader_recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitions(Command["PartitionsAltered"]):
    """ISR changes that a leader proposes. Answered by PartitionsAltered, in the same order."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    proposals: tuple[IsrProposal, ...]

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> PartitionsAltered:
        """See Command."""
        return PartitionsAltered(error)


class AlteredPartition(NamedTuple):
    """What became of a proposal; `state` is the partition as it is now, on success and on some refusals."""

    topic_id: bytes
    partition_id: int
    error: ErrorCode
    state: PartitionState | None = None


class PartitionsAltered(NamedTuple):
    """`error` is about the whole (STALE_BROKER_EPOCH, NOT_CONTROLLER, …), and then `results` is empty."""

    error: ErrorCode
    results: tuple[AlteredPartition, ...] = ()


class ElectionType(IntEnum):
    """Kinds of elections that can be asked for, with Kafka's codes (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders(Command["LeadersElected"]):
    """Elect leaders by hand. `partitions`: (topic, index), or None for all. Answered by LeadersElected.

    With None, partitions that need no election are left out of the answer.
    """

    election_type: ElectionType
    partitions: tuple[tuple[str, int], ...] | None

    def refused(self, error: ErrorCode, message: str) -> LeadersElected:
        """See Command."""
        return LeadersElected(error)


class ElectionResult(NamedTuple):
    """What became of one election."""

    topic: str
    partition_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class LeadersElected(NamedTuple):
    """One result for each partition."""

    error: ErrorCode
    results: tuple[ElectionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RebalanceLeaders(Command["LeadersElected"]):
    """The leader gives partitions back to their preferred replicas, on brokers that lead less of what prefers them than
    all but `percentage` of it. At most `partitions_max` at once, as in Kafka. Answered by LeadersElected.
    """

    percentage: int = 0
    partitions_max: int = 1000

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> LeadersElected:
        """See Command."""
        return LeadersElected(error)


class Reassignment(NamedTuple):
    """The replicas that a partition shall have (KIP-455), or None to cancel what is under way."""

    topic: str
    partition_id: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Command["ReassignmentsAltered"]):
    """Move replicas. Answered by ReassignmentsAltered, in the same order."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True

    def refused(self, error: ErrorCode, message: str) -> ReassignmentsAltered:
        """See Command."""
        return ReassignmentsAltered(error, message)


class ReassignmentResult(NamedTuple):
    """What became of one of them."""

    topic: str
    partition_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ReassignmentsAltered(NamedTuple):
    """One result for each partition asked for."""

    error: ErrorCode
    message: str | None = None
    results: tuple[ReassignmentResult, ...] = ()


# -- features --------------------------------------------------------------------------------------


class UpgradeType(IntEnum):
    """How far a feature may go back, with Kafka's codes (KIP-584, KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature shall have; 0 removes it. `upgrade_type` is a number from the wire."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Command["FeaturesUpdated"]):
    """Change the levels of features, all or none; of one that is named twice the later level counts. Answered by
    FeaturesUpdated.
    """

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False

    def refused(self, error: ErrorCode, message: str) -> FeaturesUpdated:
        """See Command."""
        return FeaturesUpdated(error, message)


class FeaturesUpdated(NamedTuple):
    """All levels are changed, or none is: the first error says why."""

    error: ErrorCode
    message: str | None = None


ClusterCommand = (
    BrokerHeartbeat
    | FenceBrokers
    | UnregisterBroker
    | AssignDirectories
    | AlterPartitions
    | ElectLeaders
    | RebalanceLeaders
    | AlterReassignments
    | UpdateFeatures
)
"""All commands of this file: mypy proves by it that each of them is decided."""
