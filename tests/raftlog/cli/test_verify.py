"""`raftlog verify`, as far as it comes without starting brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from raftlog.cli.signals import StopRequested
from raftlog.linearizability.harness import run as harness
from tests.raftlog.cli.conftest import Run


def test_a_folder_that_cannot_be_is_a_mistake_of_the_command_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below", Path("/proc/no-such-folder/run")):
        refused = run("verify", "--workload", "append", "--time", "1", "--output", str(folder))
        assert refused.code == 64 and f"the run's folder cannot be {folder}" in refused.err


def test_a_folder_with_anything_in_it_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    for name, said in (("notes.txt", "is not empty, and what it holds is no run"), ("run.json", "holds a run already")):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        refused = run("verify", "--workload", "topics", "--time", "1", "--output", str(folder))
        assert refused.code == 64 and said in refused.err and "choose another folder" in refused.err
        assert [(each.name, each.read_text()) for each in folder.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "topics", "--fault", "everything", "--system", "localhost:1"], "nothing of everything can be"),
        (["--workload", "append", "--fault", "power-cut", "--brokers", "1"], "take --brokers 3 or more"),
        (["--workload", "append", "--fault", "pause-kill", "--brokers", "2"], "take --brokers 3 or more"),
        (["--workload", "append", "--fault", "kill,none"], "there is no fault 'none'"),
        (["--workload", "append", "--system", "localhost:abc"], "'abc' is not a port"),
    ],
)
def test_what_does_not_go_together_is_told_before_anything_is_made(
    run: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    refused = run("verify", *words, "--output", str(tmp_path / "run"))
    assert refused.code == 64 and said in refused.err and not (tmp_path / "run").exists()


def test_a_run_that_is_stopped_says_so_as_json_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: harness.Run) -> NoReturn:
        raise StopRequested

    monkeypatch.setattr(harness.Run, "verify", stop)
    stopped = run("verify", "--workload", "append", "--output", str(tmp_path / "run"), "--json")
    told = json.loads(stopped.out)
    assert stopped.code == 2 and (told["status"], told["reason"]) == ("unknown", "stopped: no verdict")
