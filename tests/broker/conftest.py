from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

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
    """Requests of this test that nobody can answer any more, whose clients still wait: each handler answers."""
    forgotten: list[str] = []
    # Those of tests before may be collected during this one.
    made: set[int] = set()
    initialize = RequestContext.__init__

    def begin(context: RequestContext, *arguments: Any, **fields: Any) -> None:
        made.add(id(context))
        initialize(context, *arguments, **fields)

    def let_go(context: RequestContext) -> None:
        is_own = id(context) in made
        made.discard(id(context))
        # A request of the broker to itself has no connection.
        if is_own and not context._is_answered and context.connection is not None and not context.connection.closed:
            forgotten.append(context.api.name)

    monkeypatch.setattr(RequestContext, "__init__", begin)
    monkeypatch.setattr(RequestContext, "__del__", let_go, raising=False)
    yield forgotten
    if forgotten:
        raise InvariantViolation(f"never answered: {', '.join(forgotten)}")
