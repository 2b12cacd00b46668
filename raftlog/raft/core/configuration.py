"""Who votes: the members of a quorum, and what counts as a majority of them.

A voter is a node id together with the directory (a random id) that its journal lies in: a node whose disk was wiped or
swapped has another directory, and is not the voter that it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgpack

from raftlog.raft.core.errors import NewerVersion
from raftlog.raft.core.ids import NodeId

FORMAT = 1


class Voter(NamedTuple):
    """A member with a vote. `directory` b"": not known, as in an empty log: then it counts for elections and not for
    commits.
    """

    node_id: NodeId
    directory: bytes
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """The voters, and those that are awaited: nodes that get their vote (back) once they have caught up.

    Both are sorted by node id, and no node is in both.
    """

    voters: tuple[Voter, ...] = ()
    awaited: tuple[Voter, ...] = ()

    @classmethod
    def of_addresses(cls, peers: Mapping[int, tuple[str, int]]) -> Configuration:
        """The configuration of an empty log, from node ids and addresses."""
        return cls(tuple(Voter(NodeId(node), b"", host, port) for node, (host, port) in sorted(peers.items())))

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """The voters' node ids."""
        return tuple(voter.node_id for voter in self.voters)

    @property
    def majority(self) -> int:
        """How many voters make a majority."""
        return len(self.voters) // 2 + 1

    def voter(self, node_id: NodeId) -> Voter | None:
        """The voter with this id."""
        return next((voter for voter in self.voters if voter.node_id == node_id), None)

    def is_majority(self, nodes: Collection[int]) -> bool:
        """Whether these nodes hold a majority of the votes. Nothing is a majority of nobody."""
        return bool(self.voters) and sum(voter.node_id in nodes for voter in self.voters) >= self.majority

    def reached(self, values: Iterable[float]) -> float:
        """The greatest value that a majority has reached, given one value for each voter."""
        return sorted(values, reverse=True)[self.majority - 1]

    def with_voter(self, voter: Voter) -> Configuration:
        """This one with a voter added, or in the place of the one with its id; no longer awaited."""
        others = [other for other in self.voters if other.node_id != voter.node_id]
        awaited = tuple(other for other in self.awaited if other.node_id != voter.node_id)
        return Configuration(tuple(sorted([*others, voter])), awaited)

    def without(self, node_id: NodeId, *, awaited: Voter | None = None) -> Configuration:
        """This one without a node; `awaited`: as what it is expected back."""
        waiting = [other for other in self.awaited if other.node_id != node_id]
        if awaited is not None:
            waiting.append(awaited)
        return Configuration(tuple(voter for voter in self.voters if voter.node_id != node_id), tuple(sorted(waiting)))

    def encode(self) -> bytes:
        """The bytes of a configuration entry."""
        return cast(bytes, msgpack.packb([FORMAT, self.voters, self.awaited]))

    @classmethod
    def decode(cls, data: bytes) -> Configuration:
        """What `encode` made. Raises NewerVersion."""
        values: Sequence[Any] = msgpack.unpackb(data, use_list=False)
        if values[0] != FORMAT:
            raise NewerVersion(f"a list of members of format {values[0]}")
        return cls(tuple(Voter(*row) for row in values[1]), tuple(Voter(*row) for row in values[2]))
