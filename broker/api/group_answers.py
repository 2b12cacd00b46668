"""The group coordinator's answers on their way to the client: some are there at once, some come later."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from raftlog.broker.api.context import RequestContext


def respond_either(context: RequestContext, answer: Any) -> None:
    """Answer with a response, or with a coroutine of it."""
    if isinstance(answer, CoroutineType):
        context.respond_with(answer)
    else:
        context.respond(answer)
