"""DeleteTopics (key 20), v1 to v6.

By name; from v6 also by id (KIP-516). The answer comes when the deletion is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.pace import Pace
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.commands import DeleteTopics
from raftlog.metadata.decision import repeated
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from raftlog.wire.schema import ZERO_UUID

_STATES_FROM = 6
_DISABLED_CODE_FROM = 3


@responds_later
async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Each topic succeeds or fails on its own."""
    wanted = request.topics
    if context.api_version < _STATES_FROM:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    if not context.services.config["delete.topic.enable"]:
        return _disabled(context, wanted)
    # As in Kafka what is unclear by itself makes nothing else unclear.
    names = Counter(state.name for state in wanted if state.topic_id == ZERO_UUID)
    ids = Counter(state.topic_id for state in wanted if state.name is None)
    refused: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    accepted: list[str | bytes] = []
    pace = Pace()
    for state in wanted:
        await pace.spend(1)
        problem = _problem(state, names, ids)
        if problem is not None:
            refused[state.name, state.topic_id] = _result(
                state.name, state.topic_id, ErrorCode.INVALID_REQUEST, problem
            )
        else:
            accepted.append(state.name if state.name is not None else state.topic_id)
    seconds = metadata_timeout_seconds(request.timeout_ms)
    await _bring_together(accepted, context.services.controller.image, pace)
    results = list(refused.values())
    deleted: list[str] = []
    async for answer in context.services.controller.execute_in_parts(accepted, DeleteTopics, seconds):
        deleted += [r.name or "" for r in answer.results if r.error is ErrorCode.NONE]
        results += [_result(r.name, r.topic_id, r.error, r.message) for r in answer.results]
    context.log_change("topics deleted", deleted)
    return DeleteTopicsResponse(responses=results)


async def _bring_together(accepted: list[str | bytes], image: MetadataImage, pace: Pace) -> None:
    """A topic that is named by name and by id is refused: the controller sees parts of a large request, and sees both
    together if such pairs come first.
    """
    ids = await pace.each(accepted, lambda wanted: _id_of(wanted, image))
    twice = repeated(topic_id for topic_id in ids if topic_id)
    if twice:
        accepted.sort(key=lambda wanted: (_id_of(wanted, image) not in twice, _id_of(wanted, image)))


def _id_of(wanted: str | bytes, image: MetadataImage) -> bytes:
    if isinstance(wanted, bytes):
        return wanted
    topic = image.topics.get(wanted)
    return b"" if topic is None else topic.topic_id


def _problem(state: DeleteTopicState, names: Counter[str | None], ids: Counter[bytes]) -> str | None:
    if state.name is None and state.topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if state.name is not None and state.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if state.name is not None and names[state.name] > 1:
        return "Duplicate topic name."
    if state.name is None and ids[state.topic_id] > 1:
        return "Duplicate topic id."
    return None


def _disabled(context: RequestContext, wanted: Sequence[DeleteTopicState]) -> DeleteTopicsResponse:
    error = ErrorCode.TOPIC_DELETION_DISABLED
    if context.api_version < _DISABLED_CODE_FROM:
        error = ErrorCode.INVALID_REQUEST
    message = "Topics cannot be deleted: delete.topic.enable is false."
    return DeleteTopicsResponse(responses=[_result(s.name, s.topic_id, error, message) for s in wanted])


def _result(name: str | None, topic_id: bytes, error: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)
