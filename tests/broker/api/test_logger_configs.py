"""Levels of loggers while a broker runs (KIP-412), and log lines as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.broker.runtime.log_format import JsonFormatter
from raftlog.broker.runtime.log_levels import LOGGERS, ROOT
from raftlog.metadata.commands import ConfigOperation
from raftlog.metadata.records import ResourceType
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.runtime.admin_world import AdminWorld
from tests.paths import ROOT as TREE

KIND = ResourceType.BROKER_LOGGER
SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
LINK = "raftlog.link"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in ("raftlog", *LOGGERS)}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


async def alter(world: AdminWorld, *changes: tuple[str, int, str | None], broker: str = "1") -> tuple[int, str | None]:
    configs = [AlterableConfig(name=name, config_operation=how, value=value) for name, how, value in changes]
    resource = AlterConfigsResource(resource_type=KIND, resource_name=broker, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = (await world.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)).responses
    return result.error_code, result.error_message


async def levels(world: AdminWorld) -> dict[str, str]:
    resource = DescribeConfigsResource(resource_type=KIND, resource_name="1", configuration_keys=None)
    (result,) = (await world.call(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]), 4)).results
    return {each.name: each.value for each in result.configs}


async def test_a_loggers_level_is_set_shown_and_taken_back(tmp_path: Path) -> None:
    async with AdminWorld(tmp_path) as world:
        assert await alter(world, (ROOT, SET, "WARN"), (LINK, SET, "DEBUG")) == (ErrorCode.NONE, None)
        assert logging.getLogger(LINK).isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("raftlog.store").isEnabledFor(logging.INFO)
        shown = await levels(world)
        assert (shown[ROOT], shown[LINK], shown["raftlog.store"]) == ("WARN", "DEBUG", "WARN")
        assert await alter(world, (LINK, DELETE, None)) == (ErrorCode.NONE, None)
        assert (await levels(world))[LINK] == "WARN"


@pytest.mark.parametrize(
    ("change", "broker", "error", "message"),
    [
        ((LINK, SET, "LOUD"), "1", ErrorCode.INVALID_CONFIG, "not a supported log level"),
        (("kafka.server", SET, "DEBUG"), "1", ErrorCode.INVALID_CONFIG, "does not exist"),
        ((ROOT, DELETE, None), "1", ErrorCode.INVALID_REQUEST, "root logger"),
        ((LINK, APPEND, "DEBUG"), "1", ErrorCode.INVALID_REQUEST, "only SET and DELETE"),
        ((LINK, SET, "DEBUG"), "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
    ],
)
async def test_what_cannot_be_changes_nothing(
    tmp_path: Path, change: tuple[str, int, str | None], broker: str, error: ErrorCode, message: str
) -> None:
    async with AdminWorld(tmp_path) as world:
        before = await levels(world)
        told = await alter(world, (LINK, SET, "TRACE"), change, broker=broker)
        assert told[0] == error and message in (told[1] or "")
        assert await levels(world) == before


async def test_a_broker_whose_loggers_are_named_twice_is_refused_both_times(tmp_path: Path) -> None:
    """Two different changes of one broker were both carried out; and many took the square of their number to count."""
    async with AdminWorld(tmp_path) as world:
        before = await levels(world)
        configs = [AlterableConfig(name=LINK, config_operation=SET, value=level) for level in ("TRACE", "ERROR")]
        twice = [AlterConfigsResource(resource_type=KIND, resource_name="1", configs=[each]) for each in configs]
        others = [AlterConfigsResource(resource_type=KIND, resource_name=str(name)) for name in range(2, 20_000)]
        request = IncrementalAlterConfigsRequest(resources=[*twice, *others])
        began = time.process_time()
        results = (await world.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)).responses
        assert time.process_time() - began < 5.0
        assert [(each.error_code, each.error_message) for each in results[:2]] == [
            (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        ] * 2
        assert await levels(world) == before


def test_all_loggers_of_the_broker_are_known() -> None:
    found = set()
    for folder in ("broker", "metadata", "raftlog/raft"):
        for path in (TREE / folder).rglob("*.py"):
            found |= set(re.findall(r'getLogger\("(raftlog\.[a-z.]+)"\)', path.read_text()))
    assert found == set(LOGGERS)


def test_a_json_line_is_one_object_whatever_is_logged() -> None:
    try:
        raise ValueError("zwei\nZeilen")
    except ValueError:
        record = logging.LogRecord("raftlog.link", logging.ERROR, "", 0, "a %s", ("\n\"b\"",), sys.exc_info())
    line = JsonFormatter(7).format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["node"], told["message"]) == ("ERROR", "link", 7, 'a \n"b"')
    assert told["exception"].endswith("ValueError: zwei\nZeilen") and re.fullmatch(r"[\d-]+T[\d:.]+Z", told["time"])
