"""What two nodes tell each other before anything else, and whether they may talk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raftlog.raft.core.errors import PeerViolation
from raftlog.raft.core.ids import NodeId

PROTOCOL_VERSION = 1
NOT_ASKED = -1
HOST_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class Hello:
    """A node's word on itself.

    `to`: the node id that it expects on the other side, NOT_ASKED in an answer. `incarnation`: random for each start.
    `voters`: ids and addresses of the voters it knows; `from_log`: known from the log and not from the command line.
    `directories`: those of the voters, in their order; b"" for one that is not known.
    """

    version: int
    to: int
    cluster_id: str
    node_id: NodeId
    directory: bytes
    incarnation: int
    host: str
    port: int
    observer: bool
    from_log: bool
    voters: tuple[tuple[int, str, int], ...]
    directories: tuple[bytes, ...] = ()

    def to_wire(self) -> tuple[Any, ...]:
        """As plain values."""
        return tuple(getattr(self, name) for name in self.__slots__)

    @classmethod
    def from_wire(cls, values: Sequence[Any]) -> Hello:
        """What `to_wire` made, possibly with more behind it in a later version. Raises PeerViolation."""
        try:
            hello = cls(*values[: len(_TYPES)])
            fits = all(type(value) is wanted for value, wanted in zip(hello.to_wire(), _TYPES, strict=True))
            fits = fits and is_address(hello.host, hello.port) and hello.node_id >= 0
            fits = fits and all(type(voter) is int and is_address(host, port) for voter, host, port in hello.voters)
            fits = fits and all(type(directory) is bytes for directory in hello.directories)
        except (TypeError, ValueError) as error:
            raise PeerViolation("not a greeting of a raftlog broker") from error
        if not fits:
            raise PeerViolation("not a greeting of a raftlog broker")
        return hello

    @property
    def voter_ids(self) -> list[int]:
        """The ids of the voters, sorted."""
        return sorted(voter[0] for voter in self.voters)

    def has_in_log(self, other: Hello) -> bool:
        """Whether the log of this node names the other one as a voter, and with the directory that it has."""
        named = zip(self.voters, self.directories, strict=False)
        return self.from_log and any(
            voter[0] == other.node_id and directory in (b"", other.directory) for voter, directory in named
        )


def is_address(host: object, port: object) -> bool:
    """Whether a greeting can name this as the address of a voter."""
    return type(host) is str and len(host) <= HOST_LENGTH_MAX and type(port) is int and 0 <= port < 2**16


_TYPES = (int, int, str, int, bytes, int, str, int, bool, bool, tuple, tuple)


def refusal(own: Hello, other: Hello, address: str, expected: int = NOT_ASKED) -> str:
    """Why these two must not talk and what to do about it, or nothing. `address`: where the other is connected;
    `expected`: the node id that `own` looked for there.
    """
    if other.version != own.version:
        return (
            f"node {other.node_id} at {address} speaks version {other.version} of the peer protocol, and node"
            f" {own.node_id} version {own.version}: run the same release of raftlog on both"
        )
    if own.cluster_id and other.cluster_id and own.cluster_id != other.cluster_id:
        return (
            f"node {other.node_id} at {address} belongs to cluster {other.cluster_id}, and node {own.node_id} to"
            f" {own.cluster_id}: correct the addresses in --peers, or the data directory of the one that is in the"
            " wrong cluster"
        )
    if other.node_id == own.node_id:
        if other.incarnation == own.incarnation:
            wrong = f"of node {expected} " if expected not in (NOT_ASKED, own.node_id) else ""
            return f"{address} is this broker (node {own.node_id}) itself: correct the address {wrong}in --peers"
        return (
            f"node id {own.node_id} is used twice, here and by the broker at {address}: give each broker an --id of"
            " its own"
        )
    for looked_for, found in ((expected, other.node_id), (other.to, own.node_id)):
        if looked_for not in (NOT_ASKED, found):
            where = f"at {address}" if looked_for == expected else "here"
            return f"node {looked_for} was looked for {where} and node {found} found: correct the addresses in --peers"
    return _disagreement(own, other) or _disagreement(other, own)


def _disagreement(one: Hello, other: Hello) -> str:
    """What is wrong with the peer list of `other`, which is as good as that of `one` unless it comes from the log."""
    if other.from_log or other.observer or (one.observer and not one.from_log):
        return ""
    # Who died before it had an entry has only the peer list of its first day, and the members may be others by now.
    if one.voter_ids == other.voter_ids or one.has_in_log(other):
        return ""
    lists = f"{_ids(other)} in --peers of node {other.node_id}"
    if not one.from_log:
        own = f"{_ids(one)} in that of node {one.node_id}"
        return f"the peer lists disagree: {lists}, {own}: use the same in all brokers"
    if other.node_id not in one.voter_ids:
        return (
            f"node {other.node_id} is not a voter of this quorum ({_ids(one)}): start it with --observer and --peers"
            f" naming these, then give it a vote with `raftlog quorum add`"
        )
    return f"the peer lists disagree: {lists}, but the voters of this quorum are {_ids(one)}: correct --peers"


def _ids(hello: Hello) -> str:
    return ",".join(map(str, hello.voter_ids))
