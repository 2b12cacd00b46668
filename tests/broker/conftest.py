from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.broker.store.store_world import Host


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    yield host
    for log in host.manager:
        log.abandon()
