"""/health and /ready: what whoever watches a broker from outside is told."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator

import pytest

from raftlog import __version__
from raftlog.broker.runtime.readiness import QUORUM_SILENCE_SECONDS_MAX, Readiness
from raftlog.broker.server import health
from raftlog.broker.server.health import HealthServer
from raftlog.metadata.image import BrokerRegistration, MetadataImage
from raftlog.raft.seam import QuorumMember, QuorumStatus
from tests.waiting import until


class World:
    """A server, and what it takes for reasons."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.page = asyncio.Event()
        self.server = HealthServer(asyncio.get_running_loop(), lambda: self.reasons, self.metrics)
        self.address = ("", 0)

    async def metrics(self) -> tuple[str, bytes]:
        await self.page.wait()
        return "text/plain", b"up 1\n"

    async def ask(self, request: bytes) -> tuple[int, str]:
        """Status and body of the answer to a request after which the connection is closed."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(request)
        answer = (await asyncio.wait_for(reader.read(), 5)).decode()
        writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split(" ")[1]), body

    async def get(self, path: str) -> tuple[int, dict[str, object]]:
        status, body = await self.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return status, json.loads(body)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.address = await made.server.listen("127.0.0.1", 0)
    yield made
    made.server.close()


async def test_a_broker_is_ready_when_nothing_speaks_against_it(world: World) -> None:
    assert await world.get("/ready") == (200, {"status": "ready"})
    world.reasons = ["the broker is fenced"]
    assert await world.get("/ready?verbose=1") == (503, {"status": "not ready", "reasons": ["the broker is fenced"]})
    assert await world.get("/health") == (200, {"status": "alive"})


async def test_what_is_not_served_is_refused_in_http(world: World) -> None:
    assert (await world.get("/metric"))[0] == 404
    assert (await world.ask(b"POST /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"))[0] == 405
    assert (await world.ask(b"POST /ready HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd"))[0] == 405
    assert (await world.ask(b"\x16\x03\x01\r\n\r\n"))[0] == 400
    assert (await world.ask(b"GET /" + b"a" * health.REQUEST_BYTES_MAX))[0] == 400
    status, body = await world.ask(b"HEAD /ready HTTP/1.0\r\n\r\n")
    assert (status, body) == (200, "")


async def test_the_version_is_told(world: World) -> None:
    assert await world.get("/version") == (200, {"version": __version__})


async def test_what_is_asked_behind_a_page_of_metrics_waits_for_it(world: World) -> None:
    reader, writer = await asyncio.open_connection(*world.address)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert (await world.get("/health"))[0] == 200, "others do not wait"
    world.page.set()
    answers = (await asyncio.wait_for(reader.read(), 5)).decode()
    assert answers.index("Content-Type: text/plain") < answers.index("up 1\n") < answers.index('"alive"')
    writer.close()


async def test_a_broker_that_is_not_ready_tells_its_metrics(world: World) -> None:
    world.reasons = ["the broker is fenced"]
    world.page.set()
    assert await world.ask(b"GET /metrics HTTP/1.0\r\n\r\n") == (200, "up 1\n")


async def test_a_page_that_cannot_be_made_is_answered_too(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def metrics() -> tuple[str, bytes]:
        raise OSError("too many open files")

    world.server.metrics = metrics
    status, body = await world.ask(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert status == 500 and "error" in json.loads(body)
    assert "too many open files" in caplog.text
    assert (await world.get("/health"))[0] == 200


async def test_one_connection_may_ask_several_times(world: World) -> None:
    reader, writer = await asyncio.open_connection(*world.address)
    for _ in range(3):
        writer.write(b"GET /health HTTP/1.1\r\n\r\nGET /ready HTTP/1.1\r\n\r\n")
        for _ in range(2):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            assert await reader.readuntil(b"}\n")
    writer.close()


async def test_who_says_nothing_is_let_go_and_a_crowd_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SILENCE_SECONDS_MAX", 0.05)
    assert await asyncio.wait_for((await asyncio.open_connection(*world.address))[0].read(), 5) == b""
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(health, "SILENCE_SECONDS_MAX", 60.0)
    _, first = await asyncio.open_connection(*world.address)
    while not world.server.connections:
        await asyncio.sleep(0)
    assert await asyncio.wait_for((await asyncio.open_connection(*world.address))[0].read(), 5) == b""
    first.close()


async def test_who_reads_no_answer_gets_no_more_and_is_let_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question of 30 bytes left a page in memory; and who read none kept one of the few connections for ever."""
    pages = 0

    async def metrics() -> tuple[str, bytes]:
        nonlocal pages
        pages += 1
        return "text/plain", bytes(16 << 20)

    monkeypatch.setattr(health, "SILENCE_SECONDS_MAX", 0.5)
    world.server.metrics = metrics
    _, writer = await asyncio.open_connection(*world.address, limit=1)
    for _ in range(20):
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await world.get("/health")
    assert pages <= 2
    await until(lambda: not world.server.connections)
    writer.transport.abort()


async def test_who_reads_slowly_gets_all_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def metrics() -> tuple[str, bytes]:
        return "text/plain", bytes(4 << 20)

    world.server.metrics = metrics
    reader, writer = await asyncio.open_connection(*world.address)
    writer.write(3 * b"GET /metrics HTTP/1.1\r\n\r\n" + b"GET /health HTTP/1.0\r\n\r\n")
    assert (await world.get("/health"))[0] == 200
    answers = await asyncio.wait_for(reader.read(), 5)
    assert answers.count(b"HTTP/1.1 200") == 4 and answers.count(0) == 12 << 20 and b'"alive"' in answers
    writer.close()


def image(**changes: object) -> MetadataImage:
    broker = BrokerRegistration(1, bytes(16), 1, (), None, False)._replace(**changes)  # type: ignore[arg-type]
    return MetadataImage(brokers={1: broker})


def status(leader_id: int, ages: dict[int, float], *, node_id: int = 1) -> QuorumStatus:
    voters = tuple(QuorumMember(node, "h", 1, 0, True, age, age) for node, age in ages.items())
    return QuorumStatus(node_id, leader_id, 1, 0, 0, voters, ())


LONG = QUORUM_SILENCE_SECONDS_MAX + 1


def test_a_broker_with_a_full_disk_is_not_ready() -> None:
    full = ["the disk of /data is full: make room, or delete topics"]
    assert Readiness(1, image, lambda: status(1, {1: 0.0}), lambda: full).reasons() == full


@pytest.mark.parametrize(
    ("image", "status", "said"),
    [
        (image(), status(1, {1: 0.0, 2: 0.1, 3: LONG}), None),
        (image(), status(2, {1: 0.0, 2: 0.1, 3: -1.0}), None),
        (image(), status(2, {2: 0.1, 3: 0.0, 4: 0.0}), None),
        (MetadataImage(), status(1, {1: 0.0}), "not registered"),
        (image(fenced=True), status(1, {1: 0.0}), "fenced"),
        (image(in_controlled_shutdown=True), status(1, {1: 0.0}), "shutting down"),
        (image(), status(-1, {1: 0.0, 2: 0.1, 3: 0.1}), "no leader"),
        (image(), status(1, {1: 0.0, 2: LONG, 3: LONG}), "nothing was committed by the metadata quorum for 6.0 s"),
        (image(), status(2, {1: 0.0, 2: LONG, 3: 0.0}), "nothing was committed"),
        (image(), dataclasses.replace(status(2, {1: 0.0, 2: 0.1}), is_writable=False), "the metadata log cannot be"),
    ],
)
def test_a_broker_is_ready_when_it_is_unfenced_and_the_quorum_works(
    image: MetadataImage, status: QuorumStatus, said: str | None
) -> None:
    reasons = Readiness(1, lambda: image, lambda: status).reasons()
    assert (reasons == []) if said is None else (said in reasons[0])
