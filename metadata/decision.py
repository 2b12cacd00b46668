"""What every decision is made with, and what it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from raftlog.metadata.configs import ConfigResolver
from raftlog.metadata.records import Record
from raftlog.wire.ids import BrokerId

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


class Environment(NamedTuple):
    """What the deciding node knows beside the image.

    `new_id` gives 16 random bytes that no other topic has; it is a port, so that a simulation repeats. `features`: the
    lowest and the highest level of each feature that this version knows. `node_id`: of the deciding node.
    """

    new_id: Callable[[], bytes]
    resolver: ConfigResolver
    num_partitions: int = 1
    default_replication_factor: int = 1
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})
    node_id: BrokerId = BrokerId(0)


class Decision(NamedTuple, Generic[R]):
    """The records that make it so (none: nothing changes), and the answer once they are committed."""

    records: tuple[Record, ...]
    response: R


def repeated(keys: Iterable[K]) -> frozenset[K]:
    """Those that a request names more than once."""
    return frozenset(key for key, times in Counter(keys).items() if times > 1)
