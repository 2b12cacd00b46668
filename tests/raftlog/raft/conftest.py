"""A quorum that was just started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.raftlog.raft.quorum_world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Three nodes that were just started."""
    async with World(tmp_path) as made:
        await made.start()
        yield made
