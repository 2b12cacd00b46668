"""What the document and the command line say of the jobs, without Spark."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.main import main
from raftlog.cli.pipeline import JOBS
from raftlog.pipeline.jobs import java, running
from raftlog.pipeline.jobs.java import needs_java, version_of
from raftlog.pipeline.sink.mapping import Run, join, translate
from tests.paths import ROOT

COMMANDS = re.findall(r"^(?:raftlog pipeline run|spark-submit) .*", (ROOT / "docs" / "PIPELINE.md").read_text(), re.M)


def test_every_job_is_told_in_the_document_with_a_command_that_it_takes() -> None:
    told = set()
    for command in COMMANDS:
        name, words = re.findall(r"(?:run|path) (\w+)\)?(.*)", command)[0]
        import_module(f"raftlog.pipeline.jobs.{name}").build_parser().parse(shlex.split(words))
        told.add(name)
    assert told == set(JOBS)


def test_the_command_line_names_jobs_and_where_they_lie(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(JOBS)
    assert main(["pipeline", "path", "load"]) == 0
    assert Path(capsys.readouterr().out.strip()).name == "load.py"
    assert main(["pipeline", "run", "laod"]) == 2
    assert "did you mean load?" in capsys.readouterr().err
    assert main(["pipeline", "run", "x"]) == 2
    assert f"it is one of {', '.join(JOBS)}" in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_told_in_a_line() -> None:
    def run(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/lake")

    job: Any = SimpleNamespace(run=run)
    with pytest.raises(CommandFailed, match=r"cannot be used: .*Permission denied: '/lake'"):
        running.perform(job, None, argparse.Namespace(), lambda _: None)


@pytest.mark.java
@pytest.mark.skipif(find_spec("pyspark") is None or which("java") is None, reason="needs Java 17 and raftlog[spark]")
def test_a_master_that_is_none_is_told_in_a_line() -> None:
    # In a process of its own: where there is a session already, Spark starts no other, and takes any master.
    command = [sys.executable, "-m", "raftlog", "pipeline", "run", "audit", "--master", "nonsense"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    said = ended.stderr
    assert "Spark did not start" in said and "--master" in said and "Traceback" not in said


@pytest.mark.parametrize("text", ["2013-1-2", "2013-01-02T6", "2013-01-02 06", "2013-01-02T06:30", "yesterday", ""])
def test_an_hour_in_another_form_is_no_hour(text: str) -> None:
    parser = import_module("raftlog.pipeline.jobs.load").build_parser()
    with pytest.raises(UsageError, match="2013-01-31T18"):
        parser.parse(["--lake", "lake", "--replay", "again", "--until", text])


@pytest.mark.parametrize(
    ("told", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_401"', 8), ('openjdk version "25"', 25)],
)
def test_the_version_of_java_is_understood(told: str, version: int) -> None:
    assert version_of(told) == version


def test_a_java_that_is_missing_or_too_old_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    with pytest.raises(CommandFailed, match="needs Java 17, and there is no java"):
        needs_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandFailed, match="is Java 11"):
        needs_java()


def test_runs_of_offsets_are_joined_and_say_where_a_reader_goes_on() -> None:
    runs = list(join([Run(10, 7, 2), Run(0, 100, 3), Run(3, 103, 4), Run(20, 9, 1)]))
    assert runs == [Run(0, 100, 7), Run(10, 7, 2), Run(20, 9, 1)]
    assert [translate(runs[1:], offset) for offset in (0, 10, 11, 15, 20, 21, 99)] == [7, 7, 8, 9, 9, 10, 10]
    assert translate([], 5) is None
