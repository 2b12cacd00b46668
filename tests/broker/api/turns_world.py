"""A request without a broker: its turns come when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from raftlog.broker.api.context import OwnRequest
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.schema import Message

T = TypeVar("T")


class TurnsWorld:
    """`context` is that of a request of the broker to itself; `responses` what it was answered, `failures` what was
    raised."""

    def __init__(self) -> None:
        self.responses: list[Message] = []
        self.failures: list[Exception] = []
        self._soon: list[Callable[[], None]] = []
        loop = SimpleNamespace(
            call_soon=self._soon.append,
            call_exception_handler=lambda what: self.failures.append(what["exception"]),
        )
        services = cast(Any, SimpleNamespace(loop=loop))
        self.context = OwnRequest(services, APIS[ApiKey.LIST_OFFSETS], 1, self.responses.append)

    def turn(self) -> None:
        """The next one."""
        soon = self._soon[:]
        self._soon.clear()
        for callback in soon:
            callback()


def all_turns(work: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
    """`RequestContext.in_turns` where nobody else has a turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as ended:
            done(ended.value)
            return
