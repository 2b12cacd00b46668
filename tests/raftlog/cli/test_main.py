from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog import __version__
from raftlog.cli.main import COMMANDS
from tests.raftlog.cli.conftest import Run

# What costs milliseconds or megabytes; none of it is needed to print a page of help.
HEAVY = ["asyncio", "uvloop", "msgpack", "socket", "subprocess", "argparse", "json", "raftlog.wire", "raftlog.client"]


@pytest.mark.parametrize(
    "started",
    ["runpy.run_module('raftlog', run_name='__main__')", "from raftlog.__main__ import main; sys.exit(main())"],
)
def test_an_interrupt_while_modules_are_imported_is_no_traceback(started: str) -> None:
    program = f"""
import runpy, sys

class Interrupts:
    def find_spec(name, path=None, target=None):
        if name == "raftlog.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts)
{started}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_lists_every_command_and_says_where_clients_look(run: Run) -> None:
    outcome = run("--help")
    assert outcome.code == 0
    for name, command in COMMANDS.items():
        assert f"  {name} " in outcome.out and command.summary in outcome.out
    assert "127.0.0.1:9092" in outcome.out and "RAFTLOG_BOOTSTRAP_SERVERS" in outcome.out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_what_needs_no_command_loads_no_command(arguments: list[str]) -> None:
    program = (
        "import sys; before = set(sys.modules); from raftlog.cli.main import main; "
        f"main({arguments!r}); print('\\n' + '\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, env={"PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()
    assert "raftlog.cli.main" in loaded
    assert not [module for module in HEAVY if module in loaded]


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_a_failure(run: Run) -> None:
    outcome = run()
    assert outcome.code == 2 and outcome.out.startswith("usage: raftlog COMMAND")


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").out == f"raftlog {__version__}\n"


def test_an_unknown_command_offers_the_nearest_one(run: Run) -> None:
    outcome = run("tpoic", "list")
    assert (outcome.code, outcome.out) == (2, "")
    assert "there is no command 'tpoic'" in outcome.err and "`raftlog topic`" in outcome.err


def test_an_unknown_verb_offers_the_nearest_one(run: Run) -> None:
    outcome = run("topic", "crate", "orders")
    assert outcome.code == 2 and "`raftlog topic create`" in outcome.err


def test_an_unknown_option_offers_the_nearest_one(run: Run) -> None:
    outcome = run("topic", "create", "orders", "--partition", "3")
    assert outcome.code == 2 and "did you mean --partitions?" in outcome.err


def test_an_option_before_the_command_says_where_it_belongs(run: Run) -> None:
    outcome = run("-b", "localhost:9092", "topic", "list")
    assert outcome.code == 2 and "raftlog COMMAND [OPTION ...]" in outcome.err


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(run: Run, command: str) -> None:
    outcome = run(command, "--help")
    assert outcome.code == 0 and outcome.out.startswith(f"usage: raftlog {command}")
    assert run("help", command).out == outcome.out


@pytest.mark.parametrize(
    "verb",
    [
        *("topic create", "topic list", "topic describe", "topic alter", "topic delete"),
        *("group list", "group describe", "group reset-offsets", "group delete"),
        *("config list", "config set", "config unset"),
    ],
)
def test_every_verb_explains_itself_with_an_example(run: Run, verb: str) -> None:
    outcome = run(*verb.split(), "--help")
    assert outcome.code == 0
    assert "--json" in outcome.out and "--bootstrap-server" in outcome.out
    assert f"raftlog {verb} " in outcome.out.partition("example")[2]


def test_with_json_an_error_is_one_line_of_json_on_standard_error(run: Run) -> None:
    outcome = run("topic", "list", "--json", "-b", "127.0.0.1:1")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.error["code"] == "BROKER_UNREACHABLE"
    assert "127.0.0.1:1" in outcome.error["message"] and "raftlog dev" in outcome.error["hint"]


def test_who_asked_for_json_is_told_of_an_interrupt_in_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("raftlog.cli.main.run_command", interrupt)
    asked, quiet = run("topic", "list", "--json"), run("topic", "list")
    assert asked.code == quiet.code == 130 and quiet.out == quiet.err == asked.out == ""
    assert json.loads(asked.err)["error"]["code"] == "INTERRUPTED"


def test_a_reader_that_goes_away_ends_the_command_without_a_word() -> None:
    program = "import sys; from raftlog.cli.main import main; sys.exit(main(['--help']))"
    closed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert closed.stdout is not None and closed.stderr is not None
    closed.stdout.close()
    assert closed.wait(30) == 141
    assert closed.stderr.read() == b""
    closed.stderr.close()


def shell(words: str) -> tuple[int, str]:
    """Exit code and standard error of `raftlog` with these words, which may redirect its streams."""
    program = f'"{sys.executable}" -c "import sys; from raftlog.cli.main import main; sys.exit(main())" {words}'
    done = subprocess.run(["/bin/sh", "-c", program], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_output_that_has_no_room_is_a_failure_in_one_line() -> None:
    assert shell("--help > /dev/full") == (1, "raftlog: cannot write the output: no space left on device\n")


def test_standard_streams_that_are_closed_fail_when_they_are_used() -> None:
    assert shell("--help >&-") == (1, "raftlog: cannot write the output: bad file descriptor\n")
    assert shell("produce --help >&-") == (1, "raftlog: cannot write the output: bad file descriptor\n")
    assert shell("no-such-command >&- <&-")[0] == 2
    assert shell("no-such-command 2>&-") == (2, "")


def test_names_that_standard_output_has_no_letters_for_are_escaped(on_broker: Run, topic: str) -> None:
    assert on_broker("consume", topic, "-e", "-G", "grüße").code == 0
    assert on_broker("group", "reset-offsets", "grüße", "--topic", topic, "--to-latest", "--execute").code == 0
    program = "import sys; from raftlog.cli.main import main; sys.exit(main(['group', 'list']))"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ascii_only)
    assert done.returncode == 0 and "gr\\xfc\\xdfe" in done.stdout


def test_what_cannot_be_read_is_told_in_one_line(on_broker: Run, topic: str) -> None:
    code, told = shell(f"produce {topic} <&-")
    assert (code, told) == (1, "raftlog: cannot read the input: bad file descriptor\n")


@pytest.mark.parametrize("option", ["--json", "-J"])
def test_consume_tells_errors_as_json_whichever_way_it_was_asked_for(run: Run, option: str) -> None:
    outcome = run("consume", "orders", option, "-b", "127.0.0.1:1")
    assert (outcome.code, outcome.error["code"]) == (1, "BROKER_UNREACHABLE")


def test_an_error_without_json_is_for_people(run: Run) -> None:
    outcome = run("topic", "list", "-b", "127.0.0.1:1")
    assert outcome.err.startswith("raftlog: no broker answers at 127.0.0.1:1 (connection refused)\n  is it running?")
    with pytest.raises(json.JSONDecodeError):
        json.loads(outcome.err)
