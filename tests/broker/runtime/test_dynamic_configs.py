"""A real broker goes by what is changed while it runs, and by its file again when that is taken back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.platform import Platform
from raftlog.broker.server import limits
from raftlog.broker.server.listeners import KafkaListeners
from raftlog.broker.store.scheduled_tasks import ScheduledTasks
from raftlog.metadata.commands import AlterConfigs, AlterResource, ConfigChange, ConfigOperation, CreateTopics, NewTopic
from raftlog.metadata.records import ResourceType
from raftlog.wire.errors import ErrorCode
from tests.waiting import until


def make(directory: Path, **settings: str) -> Broker:
    directory.mkdir(exist_ok=True)
    given = {"node.id": "1", "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Broker(BrokerConfig({**given, "producer.id.expiration.ms": "5000", **settings}), Platform())


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    running = make(tmp_path / "1")
    await running.start()
    yield running
    await running.stop()


async def alter(broker: Broker, resource: str = "", **values: str | None) -> None:
    changes = tuple(
        ConfigChange(name.replace("_", "."), ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
        for name, value in values.items()
    )
    command = AlterConfigs((AlterResource(ResourceType.BROKER, resource, changes),))
    ((*_, error, message),) = (await broker.controller.execute(command)).results
    assert error is ErrorCode.NONE, message


async def is_let_in(broker: Broker, opened: list[asyncio.StreamWriter], listener: int = 0) -> bool:
    """Whether another connection stays open; ApiVersions is answered on it."""
    _, host, port = broker.addresses[listener]
    reader, writer = await asyncio.open_connection(host, port)
    opened.append(writer)
    writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))
    try:
        return bool(await reader.read(4))
    except ConnectionError:
        return False


async def test_the_store_goes_by_what_was_changed(broker: Broker) -> None:
    assert broker.logs.store.producer_expiration_ms == 5000
    await alter(
        broker,
        producer_id_expiration_ms="6000",
        log_cleaner_backoff_ms="7",
        log_cleaner_dedupe_buffer_size="2000000",
    )
    settings = broker.logs.settings
    assert (settings.cleaner_backoff_ms, settings.cleaner_dedupe_buffer_size) == (7, 2_000_000)
    assert broker.logs.store.producer_expiration_ms == 6000
    await alter(broker, "1", producer_id_expiration_ms="8000")
    assert broker.logs.store.producer_expiration_ms == 8000
    await alter(broker, producer_id_expiration_ms=None)
    await alter(broker, "1", producer_id_expiration_ms=None)
    assert broker.logs.store.producer_expiration_ms == 5000


async def test_compaction_rests_no_longer_than_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest that had begun went on to its end: for an hour, where an hour was what had been set before."""
    looks: list[None] = []

    async def compact(_: ScheduledTasks) -> None:
        looks.append(None)

    monkeypatch.setattr(ScheduledTasks, "compact", compact)
    running = make(tmp_path / "1", **{"log.cleaner.backoff.ms": "3600000"})
    await running.start()
    await alter(running, log_cleaner_backoff_ms="5")
    await until(lambda: len(looks) > 3, "compaction looks again and again")
    await running.stop()


async def test_topics_without_settings_of_their_own_go_by_what_was_changed(broker: Broker) -> None:
    await broker.controller.execute(CreateTopics((NewTopic("t"),)))
    partition = broker.partitions.find_by_name(b"t", 0)
    assert not isinstance(partition, ErrorCode)
    await alter(broker, message_max_bytes="1234", log_segment_bytes="1048576", log_retention_ms="99")
    config = partition.log.config
    assert (config.max_message_bytes, config.segment_bytes, config.retention_ms) == (1234, 1_048_576, 99)


@pytest.mark.parametrize(
    ("name", "text"),
    [("max.connections", "2"), ("max.connections.per.ip", "2")],
)
async def test_no_more_connections_are_let_in_than_was_changed(broker: Broker, name: str, text: str) -> None:
    opened: list[asyncio.StreamWriter] = []
    await alter(broker, **{name.replace(".", "_"): text})
    assert [await is_let_in(broker, opened) for _ in range(3)] == [True, True, False]
    await alter(broker, **{name.replace(".", "_"): None})
    assert await is_let_in(broker, opened)
    for writer in opened:
        writer.close()


@pytest.mark.long
async def test_connections_that_come_too_soon_wait_and_are_let_in(tmp_path: Path) -> None:
    broker = make(tmp_path / "1", **{"quota.window.num": "2"})
    await broker.start()
    opened: list[asyncio.StreamWriter] = []
    await alter(broker, max_connection_creation_rate="2")
    assert [await is_let_in(broker, opened) for _ in range(2)] == [True, True]
    later = [asyncio.create_task(is_let_in(broker, opened)) for _ in range(3)]
    await until(lambda: held(broker), "one is held")
    assert broker.listeners.counts().open == 2 and not any(task.done() for task in later)
    assert await asyncio.gather(*later) == [True, True, True]
    await alter(broker, max_connection_creation_rate=None)
    assert [await is_let_in(broker, opened) for _ in range(5)] == [True] * 5 and not held(broker)
    await alter(broker, max_connection_creation_rate="1")
    last = asyncio.create_task(is_let_in(broker, opened))
    await until(lambda: held(broker), "one is held")
    await broker.stop()
    assert not await last
    for writer in opened:
        writer.close()


def held(broker: Broker) -> int:
    """How many connections wait to be let in."""
    assert isinstance(broker.listeners, KafkaListeners)
    return len(broker.listeners._server._held)


@pytest.mark.long
async def test_a_listener_has_a_rate_of_its_own_and_brokers_do_not_wait_for_clients(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
        "max.connection.creation.rate": "1",
        "quota.window.num": "2",
    }
    broker = make(tmp_path / "1", **settings)
    await broker.start()
    opened: list[asyncio.StreamWriter] = []
    assert [await is_let_in(broker, opened) for _ in range(20)] == [True] * 20 and not held(broker)
    clients = [asyncio.create_task(is_let_in(broker, opened, 1)) for _ in range(2)]
    await until(lambda: held(broker), "a client is held")
    assert await asyncio.gather(*clients) == [True, True]
    name = "listener.name.plaintext.max.connection.creation.rate"
    await alter(broker, "1", **{name: "3"})
    brokers = asyncio.create_task(is_let_in(broker, opened))
    await until(lambda: held(broker), "a broker is held")
    assert await brokers
    await alter(broker, "1", **{name: None})
    assert [await is_let_in(broker, opened) for _ in range(20)] == [True] * 20
    await broker.stop()
    for writer in opened:
        writer.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\u200b"])
async def test_a_host_that_cannot_be_looked_up_has_no_limit_and_stops_no_broker(broker: Broker, host: str) -> None:
    opened: list[asyncio.StreamWriter] = []
    await alter(broker, max_connections_per_ip_overrides=f"{host}:1,localhost:2")
    assert False in [await is_let_in(broker, opened) for _ in range(50)]
    for writer in opened:
        writer.close()


async def test_a_name_server_that_takes_its_time_stops_nobody(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a broker's settings looked all host names up, and the broker did nothing else meanwhile."""
    asked: list[object] = []
    answers = threading.Event()

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        assert answers.wait(10)
        return [(2, 1, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(limits, "socket", SimpleNamespace(getaddrinfo=look_up, SOCK_STREAM=1))
    opened: list[asyncio.StreamWriter] = []
    await alter(broker, max_connections_per_ip_overrides="far.test:2")
    await alter(broker, producer_id_expiration_ms="5000")
    assert [await is_let_in(broker, opened) for _ in range(3)] == [True, True, True]
    answers.set()
    assert False in [await is_let_in(broker, opened) for _ in range(50)]
    await alter(broker, max_connections_per_ip_overrides=None)
    assert True in [await is_let_in(broker, opened) for _ in range(50)]
    assert asked == ["far.test"]
    for writer in opened:
        writer.close()


async def test_what_was_changed_holds_after_a_restart(tmp_path: Path) -> None:
    first = make(tmp_path / "1")
    await first.start()
    await alter(first, producer_id_expiration_ms="6000", max_connections_per_ip="1")
    await first.stop()
    again = make(tmp_path / "1")
    await again.start()
    opened: list[asyncio.StreamWriter] = []
    assert again.logs.store.producer_expiration_ms == 6000
    assert [await is_let_in(again, opened) for _ in range(2)] == [True, False]
    for writer in opened:
        writer.close()
    await again.stop()


async def test_what_has_no_effect_is_taken_and_said_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "raftlog.broker"):
        await alter(broker, log_cleaner_threads="2")
        await alter(broker, log_retention_ms="1000")
    assert caplog.text.count("settings without effect in raftlog, for compaction has a plan of its own") == 1
    assert "log.cleaner.threads" in caplog.text
