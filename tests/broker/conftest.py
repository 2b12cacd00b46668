from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from raftlog.broker.api.context import RequestContext
from raftlog.wire.errors import InvariantViolation
from tests.broker.store.store_world import Host


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    yield host
    for log in host.manager:
        log.storage.abandon()


@pytest.fixture(autouse=True)
def forgotten_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Requests that nobody can answer any more, whose clients still wait: each handler answers."""
    forgotten: list[str] = []

    def let_go(context: RequestContext) -> None:
        if not context._is_answered and not context.connection.closed:
            forgotten.append(context.api.name)

    monkeypatch.setattr(RequestContext, "__del__", let_go, raising=False)
    yield forgotten
    if forgotten:
        raise InvariantViolation(f"never answered: {', '.join(forgotten)}")
