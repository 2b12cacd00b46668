"""The features that this version of the software knows, and their levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {"raftlog.metadata.version": (1, 1)}
"""Lowest and highest level of each."""


def unsupported_features(levels: Mapping[str, int]) -> tuple[str, ...]:
    """What the cluster has switched on and this version cannot do, in words."""
    known = SUPPORTED_FEATURES
    return tuple(
        f"{name} at level {level}" for name, level in sorted(levels.items()) if level > known.get(name, (0, 0))[1]
    )
