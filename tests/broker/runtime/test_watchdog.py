"""A broker that stands still lets its clients go; one that works, or ends, is not disturbed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's pidfd_getfd")

PROGRAM = """
import asyncio, os, sys
from raftlog.broker.runtime.watchdog import start_watchdog
watchdog = start_watchdog(0.2)
async def serve():
    class Echo(asyncio.Protocol):
        def connection_made(self, transport): self.transport = transport
        def data_received(self, data): self.transport.write(data)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    watchdog.begin(loop)
    print(watchdog.pid, server.sockets[0].getsockname()[1], flush=True)
    await loop.create_future()
asyncio.run(serve())
"""


class Stopped:
    """A process with a watchdog, and one client of it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        watchdog, port = map(int, self.process.stdout.readline().split())
        self.watchdog = watchdog
        self.address = ("127.0.0.1", port)
        self.client = socket.create_connection(self.address, 5)

    def echoes(self, client: socket.socket) -> bool:
        client.sendall(b"x")
        return client.recv(10) == b"x"

    def end(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def broker() -> Iterator[Stopped]:
    made = Stopped()
    yield made
    made.end()


def wait_until_gone(pid: int) -> None:
    status = Path(f"/proc/{pid}/status")
    wait_until(lambda: not status.exists() or "\nState:\tZ" in status.read_text(), f"process {pid} has ended")


def test_a_client_of_a_stopped_broker_is_let_go_and_can_come_back(broker: Stopped) -> None:
    assert broker.echoes(broker.client)
    os.kill(broker.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert broker.client.recv(10) == b""
    assert time.monotonic() - began < 3
    os.kill(broker.process.pid, signal.SIGCONT)
    with socket.create_connection(broker.address, 5) as again:
        assert broker.echoes(again)
        # And a second time.
        os.kill(broker.process.pid, signal.SIGSTOP)
        assert again.recv(10) == b""


def test_a_broker_that_beats_keeps_its_clients(broker: Stopped) -> None:
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        assert broker.echoes(broker.client)


def test_the_watchdog_ends_with_its_broker(broker: Stopped) -> None:
    broker.process.kill()
    wait_until_gone(broker.watchdog)


def test_a_broker_outlives_its_watchdog(broker: Stopped) -> None:
    os.kill(broker.watchdog, signal.SIGKILL)
    wait_until_gone(broker.watchdog)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        assert broker.echoes(broker.client)
