"""How handlers answer: exactly once, now or later, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.broker.api.context import RequestContext, responds, responds_later
from raftlog.broker.api.request_metrics import RequestCounts
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.errors import ErrorCode, InvariantViolation, RemoteProtocolError
from raftlog.wire.headers import parse_response_header
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.runtime.admin_world import ClientConnection

Stopped = list[dict[str, Any]]


@pytest.fixture
async def stopped() -> AsyncIterator[Stopped]:
    """What would have stopped the broker."""
    found: Stopped = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context))
    yield found


def context_of(connection: ClientConnection) -> RequestContext:
    services: Any = SimpleNamespace(loop=asyncio.get_running_loop(), tasks=set(), counts=RequestCounts())
    return RequestContext(
        services,
        APIS[ApiKey.HEARTBEAT],
        api_version=4,
        correlation_id=7,
        client_id="c",
        listener_name="PLAINTEXT",
        advertised=("broker.test", 9092),
        connection=connection,
    )


async def test_an_answer_goes_out_at_once_or_takes_the_place_that_was_kept_for_it() -> None:
    for answers_first in (True, False):
        connection = ClientConnection()
        context = context_of(connection)
        if answers_first:
            context.respond(HeartbeatResponse())
        context.handler_returned()
        if not answers_first:
            assert not connection.answer.done()
            context.respond(HeartbeatResponse())
        assert parse_response_header(ApiKey.HEARTBEAT, 4, connection.answer.result())[0] == 7


async def test_a_handler_that_answers_twice_is_a_bug() -> None:
    @responds
    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        context.respond(HeartbeatResponse())
        return HeartbeatResponse()

    with pytest.raises(InvariantViolation, match="Heartbeat: a request was answered twice"):
        handle(context_of(ClientConnection()), HeartbeatRequest())


async def test_what_a_coroutine_raises_counts_as_raised_by_the_handler(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(error: Exception) -> HeartbeatResponse:
        raise error

    ends = {
        RemoteProtocolError("too many"): "too many",
        KeyError("a bug"): "internal error, see the trace above",
    }
    for error, told in ends.items():
        connection = ClientConnection()
        context = context_of(connection)
        context.respond_with(fail(error))
        context.handler_returned()
        with pytest.raises(ConnectionError, match=told):
            await connection.answer
    assert any("a bug in serving a request" in message for message in caplog.messages)
    assert not stopped
    connection = ClientConnection()
    context_of(connection).respond_with(fail(InvariantViolation("it lies")))
    while not stopped:
        await asyncio.sleep(0)
    connection.close("the broker stops")
    assert "it lies" in str(stopped[0]["exception"])
    assert connection.answer.exception() is not None


async def test_a_late_answer_that_cannot_be_encoded_ends_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    connection = ClientConnection()
    context = context_of(connection)
    context.handler_returned()
    context.respond(HeartbeatResponse(error_code="none"))  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="internal error"):
        await connection.answer


async def test_a_coroutine_is_not_forgotten_while_it_waits() -> None:
    release = asyncio.Event()

    @responds_later
    async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        await release.wait()
        return HeartbeatResponse(error_code=ErrorCode.NONE)

    connection = ClientConnection()
    context = context_of(connection)
    handle(context, HeartbeatRequest())
    context.handler_returned()
    await asyncio.sleep(0)
    assert len(context.services.tasks) == 1
    release.set()
    await connection.answer
    await asyncio.sleep(0)
    assert not context.services.tasks


async def test_a_handler_that_never_answers_is_noticed(forgotten_requests: list[str]) -> None:
    context_of(ClientConnection()).handler_returned()
    assert forgotten_requests == ["Heartbeat"]
    forgotten_requests.clear()
