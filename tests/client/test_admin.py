"""Administration whose replies are lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from raftlog.client import Client
from raftlog.client.core.errors import Rejected
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from tests.client.proxy import broker_behind_a_proxy


def create(client: Client) -> Awaitable[object]:
    return client.admin.create_topic("made")


def delete(client: Client) -> Awaitable[object]:
    return client.admin.delete_topic("there")


def extend(client: Client) -> Awaitable[object]:
    return client.admin.create_partitions("there", 5)


@pytest.mark.parametrize(
    ("api", "change", "code"),
    [
        (ApiKey.CREATE_TOPICS, create, ErrorCode.TOPIC_ALREADY_EXISTS),
        (ApiKey.DELETE_TOPICS, delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ApiKey.CREATE_PARTITIONS, extend, ErrorCode.INVALID_PARTITIONS),
    ],
    ids=["create", "delete", "extend"],
)
async def test_what_a_call_did_itself_before_a_reply_was_lost_is_told_in_doubt(
    api: ApiKey, change: Callable[[Client], Awaitable[object]], code: ErrorCode
) -> None:
    with broker_behind_a_proxy(api) as proxy:
        async with Client(str(proxy.address), timeout=30) as client:
            await client.admin.create_topic("there")
            proxy.lose_replies(1, closes=True)
            with pytest.raises(Rejected, match="may have succeeded") as told:
                await change(client)
            assert told.value.code is code and told.value.in_doubt
            with pytest.raises(Rejected) as plain:
                await change(client)
            assert plain.value.code is code and not plain.value.in_doubt
