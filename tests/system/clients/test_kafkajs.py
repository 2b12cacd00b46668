"""KafkaJS: topics, producing, a group of two, offsets, in one run of Node.js.

The package is installed once into the user's cache, in a pinned version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.conftest import Broker

VERSION = "2.2.4"
STORY = Path(__file__).with_name("kafkajs_story.js")
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


def test_kafkajs_tells_its_story(broker: Broker, node_folder: Path, name: str) -> None:
    done = subprocess.run(
        ["node", str(STORY), str(node_folder), broker.bootstrap_servers, name],
        capture_output=True, text=True, timeout=STORY_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    happened = json.loads(done.stdout)
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
