"""Whether clients should be sent to this broker, and if not, why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raftlog.metadata.image import MetadataImage
from raftlog.raft.seam import QuorumStatus
from raftlog.wire.ids import BrokerId

QUORUM_SILENCE_SECONDS_MAX = 5.0
"""Nothing heard of the quorum for longer than this: what the broker knows may be out of date."""


class Readiness:
    """The reasons why a broker is not ready, looked at anew whenever somebody asks."""

    def __init__(
        self,
        node_id: BrokerId,
        image: Callable[[], MetadataImage],
        status: Callable[[], QuorumStatus],
        full_disks: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`full_disks`: a reason for each disk that is full."""
        self._node_id = node_id
        self._image = image
        self._status = status
        self._full_disks = full_disks

    def reasons(self) -> list[str]:
        """Why the broker is not ready; empty when it is."""
        found = list(self._full_disks())
        own = self._image().brokers.get(self._node_id)
        if own is None:
            found.append("the broker is not registered in the cluster")
        elif own.in_controlled_shutdown:
            found.append("the broker is shutting down")
        elif own.fenced:
            found.append("the broker is fenced: the controller has not heard of it, or it has not caught up")
        status = self._status()
        silence = quorum_silence(status)
        if not status.is_writable:
            found.append("the metadata log cannot be written: make room on its disk")
        elif silence is None:
            found.append("the metadata quorum has no leader")
        elif silence > QUORUM_SILENCE_SECONDS_MAX:
            found.append(f"nothing was committed by the metadata quorum for {silence:.1f} s")
        return found


def quorum_silence(status: QuorumStatus) -> float | None:
    """Seconds since a majority of the quorum was last known to be in contact; None without a leader, or where nothing
    that the quorum says is taken in.

    A leader counts its voters, itself included; any other node has only the leader to go by.
    """
    if status.leader_id < 0 or not status.is_writable:
        return None
    ages = {member.node_id: member.last_contact_seconds for member in (*status.voters, *status.observers)}
    if status.leader_id != status.node_id:
        return max(0.0, ages.get(status.leader_id, 0.0))
    heard = sorted(
        0.0 if voter.node_id == status.node_id else voter.last_contact_seconds
        for voter in status.voters
        if voter.node_id == status.node_id or voter.last_contact_seconds >= 0
    )
    majority = len(status.voters) // 2 + 1
    return heard[majority - 1] if len(heard) >= majority else float("inf")


def is_cut_off(status: QuorumStatus) -> bool:
    """Whether this node cannot hear the quorum: the kernel has ended the connections with a majority of the voters, or,
    where no leader is known, with one that may be the leader; or its own journal takes nothing.
    """
    if not status.is_writable:
        return True
    return _lost_voters(status) > 0 if status.leader_id < 0 else not reaches_majority(status)


def reaches_majority(status: QuorumStatus) -> bool:
    """Whether this node is connected with a majority of the voters, itself included if it is one."""
    return len(status.voters) - _lost_voters(status) > len(status.voters) // 2


def _lost_voters(status: QuorumStatus) -> int:
    return sum(voter.node_id != status.node_id and voter.last_contact_seconds < 0 for voter in status.voters)
