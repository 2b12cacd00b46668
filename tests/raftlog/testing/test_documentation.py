"""Every example of docs/TESTING.md runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.faults.spec import KINDS
from tests.paths import ROOT
from tests.raftlog.testing.test_plugin import run_files

TEXT = (ROOT / "docs" / "TESTING.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
TESTS = [example for example in EXAMPLES if "def test_" in example]


@pytest.mark.long
def test_the_tests_of_the_document_pass(tmp_path: Path) -> None:
    files = {f"test_example_{number}.py": text for number, text in enumerate(TESTS)}
    assert len(files) >= 3
    done = run_files(tmp_path, files)
    count = sum(text.count("def test_") for text in TESTS)
    assert f"{count} passed" in done.stdout, done.stdout


@pytest.mark.long
async def test_the_other_examples_run() -> None:
    others = [example for example in EXAMPLES if example not in TESTS]
    assert len(others) >= 2
    for example in others:
        names: dict[str, Any] = {}
        code = compile(example, "docs/TESTING.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        if running is not None:
            await running


def test_every_kind_of_fault_is_told() -> None:
    table = TEXT[TEXT.index("| of | faults") : TEXT.index("- **Which requests**")]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    told = {word for row in rows for word in re.findall(r"[a-z-]+", row.split("|")[3])}
    assert {kind for kind in KINDS if kind not in told} <= {"deaf"}  # a cut seen from the other end
