"""KafkaJS: topics, producing, a group of two, offsets, in one run of Node.js; transactions in another.

The package is installed once into the user's cache, in a pinned version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Broker
from tests.system.clients.confluent import read_all
from tests.system.clients.groups import make_topic

VERSION = "2.2.4"
STORY = Path(__file__).with_name("kafkajs_story.js")
TRANSACTIONS = Path(__file__).with_name("kafkajs_transactions.js")
INSTALL_SECONDS = 120.0
STORY_SECONDS = 120.0
RECORDS = 300


@pytest.fixture(scope="module")
def node_folder() -> Path:
    """A folder in whose node_modules KafkaJS is."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js and npm are not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raftlog-tests"
    folder = cache / f"kafkajs-{VERSION}"
    if (folder / "node_modules" / "kafkajs" / "package.json").exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    # Into a folder of our own, then renamed: nobody ever finds half of it.
    fresh = Path(tempfile.mkdtemp(dir=cache))
    (fresh / "package.json").write_text('{"private": true}')
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", f"kafkajs@{VERSION}"]
    try:
        subprocess.run(npm, cwd=fresh, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(fresh)
        reason = error.stderr.decode(errors="replace").strip() if error.stderr else str(error)
        pytest.skip(f"npm could not install kafkajs {VERSION}: {reason[-200:]}")
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh)  # another test run was faster
    return folder


def run(story: Path, node_folder: Path, broker: Broker, *topics: str) -> dict[str, Any]:
    """What the story tells, as JSON."""
    done = subprocess.run(
        ["node", str(story), str(node_folder), broker.bootstrap_servers, *topics],
        capture_output=True, text=True, timeout=STORY_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    happened: dict[str, Any] = json.loads(done.stdout)
    return happened


def test_kafkajs_tells_its_story(broker: Broker, node_folder: Path, name: str) -> None:
    happened = run(STORY, node_folder, broker, name)
    assert happened["leaders"] == [1, 1, 1]
    assert happened["cluster"] == {"brokers": 1, "controller": 1}
    # KafkaJS alters settings as a whole: what is not named goes back to its default.
    assert happened["configs"] == {"segment.bytes": "2000000", "retention.ms": "604800000"}
    assert happened["baseOffsets"] == ["0", "0", "5"]
    assert happened["plain"] == [
        *[[None, f"plain {number}", "story"] for number in range(4)],
        ["tombstone", None, None],
    ]
    assert happened["read"] == happened["distinct"] == RECORDS + 5
    assert happened["group"] == {"state": "Stable", "protocolType": "consumer", "members": 1}
    assert happened["committed"] == ["105", "100", "100"]
    assert happened["ends"] == [["0", "105"], ["0", "100"], ["0", "100"]]
    assert (happened["deleted"], happened["moved"]) == ("40", "7")
    assert happened["listed"] and happened["gone"]


def test_kafkajs_commits_aborts_copies_exactly_once_and_is_fenced(broker: Broker, node_folder: Path) -> None:
    source, target = make_topic(broker.bootstrap_servers, 1, records=12), make_topic(broker.bootstrap_servers, 2)
    happened = run(TRANSACTIONS, node_folder, broker, source, target)
    assert happened == {"afterAbort": "-1", "committed": ["12"], "send": "INVALID_PRODUCER_EPOCH"}
    settings = {"isolation_level": "read_committed", "partitions": 2}
    messages = read_all(broker.bootstrap_servers, target, 2 * 3 + 12, **settings)
    values: list[list[bytes]] = [[], []]
    for message in messages:
        values[message.partition()].append(message.value())
    assert values[0] == [b"first", b"second", *(b"copy %d" % number for number in range(12)), b"third"]
    assert values[1] == [b"first", b"second", b"third"]
