"""The pytest fixture `history`: a recorder on this machine's monotonic clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlog.linearizability.checker.recorder import Recorder


@pytest.fixture
def history() -> Recorder:
    """A recorder: `invoke` before a request leaves, then `ok`, `fail` or `info`; for threads and asyncio alike."""
    import time

    from raftlog.linearizability.checker.recorder import Recorder

    return Recorder(time.monotonic_ns)
