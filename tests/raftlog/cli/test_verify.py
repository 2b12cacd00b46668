"""`raftlog verify`, as far as it comes without starting brokers."""

from __future__ import annotations

from pathlib import Path

from tests.raftlog.cli.conftest import Run


def test_a_folder_that_cannot_be_is_a_mistake_of_the_command_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below", Path("/proc/no-such-folder/run")):
        refused = run("verify", "--workload", "append", "--time", "1", "--output", str(folder))
        assert refused.code == 64 and f"the run's folder cannot be {folder}" in refused.err
