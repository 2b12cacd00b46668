"""A shell that completes a line is told what may stand there, as argcomplete's function in it asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.raftlog.cli.conftest import Run

pytest.importorskip("argcomplete")


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("raftlog re", {"report"}),
        ("raftlog topic cr", {"create"}),
        ("raftlog topic create orders --part", {"--partitions"}),
        ("raftlog check --exactly-once ", {"claimed", "always", "never"}),
        ("raftlog check history", {"history.jsonl"}),
        ("raftlog consume history", set()),
        ("raftlog nosuch --", set()),
    ],
)
def test_commands_verbs_options_choices_and_files_are_offered(tmp_path: Path, line: str, offered: set[str]) -> None:
    (tmp_path / "history.jsonl").touch()
    answer = tmp_path / "answer"
    answer.touch()
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    done = subprocess.run(
        [sys.executable, "-m", "raftlog"], env=environment, cwd=tmp_path, timeout=60, capture_output=True, check=False
    )
    assert done.stdout == b""
    assert {word.strip() for word in answer.read_text().split("\n") if word.strip()} == offered


def test_the_command_prints_what_a_shell_reads(run: Run) -> None:
    done = run("completion", "bash")
    assert done.code == 0 and "complete -o nospace" in done.out and "raftlog" in done.out
    assert run("completion", "basic").code == 2
