"""The seam with PySyncObj: a new version, another member that is touched, or another body of a method that runs or is
replaced, fails here first.

When this fails, read what changed in PySyncObj, see whether `raftlog/raft/hardened.py` still fits, and only then put
the new fingerprints here.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import version

import pysyncobj
import pysyncobj.syncobj
import pytest

from raftlog.raft import hardened
from raftlog.raft.hardened import PINNED_VERSION, PRIVATE_MEMBERS, HardenedSyncObj
from tests.paths import ROOT

RUNS = {
    "__init__": "09df12cd7fd7d727",
    "doTick": "bef78c2ba06d784b",
    "_applyCommand": "827f207d515b2d64",
    "_SyncObj__applyLogEntries": "073db677773b5a2d",
    "_SyncObj__getEntries": "e29c4b33293b2101",
    "_SyncObj__callErrCallback": "6037c14ef64c2763",
}
REPLACED = {
    "_onTick": "cc9eb08232d005ba",
    "_SyncObj__onMessageReceived": "ddfe34b6c0282179",
    "_SyncObj__doApplyCommand": "1ea7aa506e950d0a",
}


def fingerprint(name: str) -> str:
    """Of a method's source."""
    return hashlib.sha256(inspect.getsource(getattr(pysyncobj.SyncObj, name)).encode()).hexdigest()[:16]


def called(name: str) -> set[str]:
    """The methods of SyncObj that a method of it calls on itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(pysyncobj.SyncObj, name))))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            method = f"_SyncObj{method}" if method.startswith("__") and not method.endswith("__") else method
            if ast.unparse(node.func.value) == "self" and hasattr(pysyncobj.SyncObj, method):
                found.add(method)
    return found


def test_the_version_is_the_pinned_one_everywhere() -> None:
    assert version("pysyncobj") == pysyncobj.syncobj.VERSION == PINNED_VERSION
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"pysyncobj=={PINNED_VERSION}" in requirements


@pytest.mark.parametrize(("name", "expected"), sorted({**RUNS, **REPLACED}.items()))
def test_every_internal_that_runs_or_is_replaced_is_as_it_was_read(name: str, expected: str) -> None:
    assert fingerprint(name) == expected, f"SyncObj.{name} changed"


def test_what_is_replaced_is_replaced_and_what_runs_is_the_librarys() -> None:
    for name in RUNS.keys() - {"__init__"}:
        assert getattr(HardenedSyncObj, name) is getattr(pysyncobj.SyncObj, name), name
    for name in REPLACED:
        assert PRIVATE_MEMBERS[name].startswith("replaced: "), name
        assert getattr(HardenedSyncObj, name) is not getattr(pysyncobj.SyncObj, name), name


def test_every_private_member_that_is_touched_is_in_the_table_and_no_other() -> None:
    tree = ast.parse(inspect.getsource(hardened))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    library = {name for name in dir(pysyncobj.SyncObj) if re.match(r"_[a-zA-Z]", name)}
    touched = {name for name in names if name.startswith("_SyncObj__") or name in library}
    assert touched == set(PRIVATE_MEMBERS)


def test_no_part_of_its_consensus_can_run() -> None:
    """Of what is called here, all that is called in turn, up to what is replaced."""
    reached: set[str] = set()
    waiting = {"doTick", "_applyCommand", "_SyncObj__applyLogEntries"}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= called(name) - reached - set(REPLACED)
    assert reached == RUNS.keys() - {"__init__"}


def test_a_broker_without_peers_does_not_pay_for_the_import() -> None:
    code = (
        "import sys, raftlog.raft.local, raftlog.raft.quorum;"
        "assert not [name for name in sys.modules if name.startswith('pysyncobj')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
