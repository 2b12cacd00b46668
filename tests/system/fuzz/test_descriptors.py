"""The files that a broker may have open: clients that take all they can get leave it enough to go on with."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.broker import descriptors
from raftlog.testing import BrokerDied, BrokerProcess
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from tests.system.fuzz.watch import Watch, watched
from tests.system.traps.raw import RawConnection

LIMIT = 300
OPEN = 400


def limited(tmp_path: Path, limits: str, settings: dict[str, str] | None = None) -> BrokerProcess:
    """A broker under limits of the shell."""
    python = ("sh", "-c", f'{limits} && exec "$@"', "sh", sys.executable)
    return BrokerProcess(1, tmp_path / "data", settings=settings, log_file=tmp_path / "log", python=python)


@pytest.fixture
def restricted(tmp_path: Path) -> Iterator[Watch]:
    """Its checkpoints are written several times a second, each as a new file."""
    settings = {f"log.flush.{name}checkpoint.interval.ms": "100" for name in ("offset.", "start.offset.")}
    settings |= {"replica.high.watermark.checkpoint.interval.ms": "100", "offsets.topic.num.partitions": "4"}
    process = limited(tmp_path, f"ulimit -n {LIMIT}", settings)
    process.start()
    try:
        with watched(process) as watching:
            # Its bystander is connected before the others take what there is.
            watching.wait_for_rounds()
            yield watching
    finally:
        process.kill()


def test_clients_that_open_more_connections_than_there_are_descriptors_stop_nothing(restricted: Watch) -> None:
    host, _, port = restricted.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(OPEN):
            stack.enter_context(socket.create_connection((host, int(port))))
        restricted.wait_for_rounds()
    restricted.wait_for_rounds()
    with RawConnection(restricted.address) as afterwards:
        afterwards.ask(ApiVersionsRequest(), 0)
    log = restricted.process.log()
    assert "all that the limit of open files has room for" in log
    assert "offline" not in log and "cannot accept" not in log


def test_with_too_few_descriptors_for_anybodys_share_a_broker_does_not_start(tmp_path: Path) -> None:
    process = limited(tmp_path, "ulimit -n 64")
    with pytest.raises(BrokerDied, match=r"may open fewer than 256 files.*Raise the hard limit"):
        process.start()
    assert process.returncode == 1 and not (tmp_path / "data").exists()


def test_a_limit_of_the_size_of_files_is_raised_as_far_as_it_may_be(tmp_path: Path) -> None:
    process = limited(tmp_path, "ulimit -Sf 1024 && ulimit -Hf unlimited")
    process.start()
    try:
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert re.search(r"Max file size +unlimited +unlimited", limits)
    finally:
        process.kill()


def test_a_broker_whose_files_cannot_hold_a_segment_does_not_start(tmp_path: Path) -> None:
    process = limited(tmp_path, "ulimit -Sf 1024 && ulimit -Hf 4096")
    with pytest.raises(BrokerDied, match=r"may not have 2 GiB.*Raise the hard limit \(ulimit -Hf"):
        process.start()
    assert process.returncode == 1 and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "limit, logs, connections", [(300, 150, 32), (1024, 512, 384), (20_000, 4096, 14_654), (1 << 20, 4096, 978_944)]
)
def test_nobody_gets_the_share_of_another(
    monkeypatch: pytest.MonkeyPatch, limit: int, logs: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    found = descriptors.shares()
    assert found == (logs, connections)
    assert found.logs + found.connections < limit
