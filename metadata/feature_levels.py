"""The features that this version of the software knows, and their levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TRANSACTION_VERSION: Final = "transaction.version"
"""1: the coordinator's records have tagged fields. 2: each transaction has a producer epoch of its own (KIP-890)."""

GROUP_VERSION: Final = "group.version"
"""1: groups of the consumer protocol (KIP-848)."""

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    GROUP_VERSION: (0, 1),
    "raftlog.metadata.version": (1, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""Lowest and highest level of each. A new cluster has the highest, and one of an earlier version level 0 of what it
did not know, until somebody raises it.
"""


def unsupported_features(levels: Mapping[str, int]) -> tuple[str, ...]:
    """What the cluster has switched on and this version cannot do, in words."""
    known = SUPPORTED_FEATURES
    return tuple(
        f"{name} at level {level}" for name, level in sorted(levels.items()) if level > known.get(name, (0, 0))[1]
    )
