"""The features that this version of the software knows, and their levels (KIP-584). Knows nothing else."""

from __future__ import annotations

from collections.abc import Mapping

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {"raftlog.metadata.version": (1, 1)}
"""Lowest and highest level of each."""
