"""The seam with PySyncObj: a new version, or another body of a method that is used or replaced, fails here first.

When this fails, read what changed in PySyncObj, see whether `raftlog/raft/hardened.py` still fits, and only then put
the new fingerprints here.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pysyncobj
import pysyncobj.syncobj
import pytest

from raftlog.raft.hardened import PINNED_VERSION, HardenedSyncObj
from tests.paths import ROOT

USED_AS_THEY_ARE = {
    "__init__": "09df12cd7fd7d727",
    "_applyCommand": "827f207d515b2d64",
    "_SyncObj__applyLogEntries": "073db677773b5a2d",
    "_SyncObj__getEntries": "e29c4b33293b2101",
    "_SyncObj__callErrCallback": "6037c14ef64c2763",
    "_SyncObj__onNodeConnected": "2655afb481b4c69b",
    "_SyncObj__onNodeDisconnected": "a81c0475ba2218cc",
    "_SyncObj__onReadonlyNodeConnected": "88ae4a6d87507838",
    "_SyncObj__onReadonlyNodeDisconnected": "9dc1fe5296c63ca7",
    "doTick": "bef78c2ba06d784b",
    "getStatus": "0d3d668f66239ee0",
}
REPLACED = {
    "_onTick": "cc9eb08232d005ba",
    "_checkCommandsToApply": "a386a8079361d204",
    "_SyncObj__onMessageReceived": "ddfe34b6c0282179",
    "_SyncObj__doApplyCommand": "1ea7aa506e950d0a",
    "_SyncObj__generateRaftTimeout": "92ed37d3620e781a",
    "_SyncObj__sendAppendEntries": "9cb9073128c392fa",
    "_SyncObj__onBecomeLeader": "5a3fd97bc17dc1cf",
    "_SyncObj__setCurrentTerm": "0ad5bf456ac06bd3",
    "_SyncObj__setState": "2c1f239f7bd79b39",
    "_SyncObj__sendNextNodeIdx": "68aaeefc267b8896",
    "_SyncObj__deleteEntriesFrom": "3b23c411bb903d36",
    "_SyncObj__deleteEntriesTo": "b7b29988856a66b3",
    "_SyncObj__tryLogCompaction": "c2f8a0ec14cc7312",
    "_SyncObj__loadDumpFile": "ec66e83905de703b",
    "_SyncObj__changeCluster": "66b42884f9d2dbd1",
    "_SyncObj__doChangeCluster": "247d4d4101b8cd3c",
    "_SyncObj__updateClusterConfiguration": "e2de42f3d1a46c96",
    "addNodeToCluster": "409209c3165ec2dc",
    "removeNodeFromCluster": "a655f3c1f1472998",
    "transferLeadership": "c3ac67963962d9aa",
}


def fingerprint(name: str) -> str:
    """Of a method's source."""
    return hashlib.sha256(inspect.getsource(getattr(pysyncobj.SyncObj, name)).encode()).hexdigest()[:16]


def test_the_version_is_the_pinned_one_everywhere() -> None:
    assert version("pysyncobj") == pysyncobj.syncobj.VERSION == PINNED_VERSION
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"pysyncobj=={PINNED_VERSION}" in requirements


@pytest.mark.parametrize(("name", "expected"), sorted({**USED_AS_THEY_ARE, **REPLACED}.items()))
def test_every_internal_that_is_used_or_replaced_is_as_it_was_read(name: str, expected: str) -> None:
    assert fingerprint(name) == expected, f"SyncObj.{name} changed"


def test_what_is_replaced_is_replaced_and_what_is_used_is_used() -> None:
    for name in REPLACED:
        assert getattr(HardenedSyncObj, name) is not getattr(pysyncobj.SyncObj, name), name
    for name in USED_AS_THEY_ARE:
        if name not in ("__init__", "getStatus"):
            assert getattr(HardenedSyncObj, name) is getattr(pysyncobj.SyncObj, name), name


def test_a_broker_without_peers_does_not_pay_for_the_import() -> None:
    code = (
        "import sys, raftlog.raft.local, raftlog.raft.quorum;"
        "assert not [name for name in sys.modules if name.startswith('pysyncobj')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
