"""The `raftlog` command: finds the command that was asked for and turns its failures into exit codes.

Command modules are imported only when they run, so that `raftlog --help` and the start of a broker stay fast.

Exit codes: 0 done, 1 it failed, 2 the command line was wrong, 130 stopped by Ctrl-C, 141 the reader of our
standard output went away (128 + the signal's number, as shells report it).
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NamedTuple, NoReturn

from raftlog import __version__
from raftlog.cli.failure import CommandFailed, UsageError, nearest

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

COMPLETING = "_ARGCOMPLETE"
"""Set by a shell that completes a line (`raftlog completion`)."""

CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What the system says when standard output goes to a full or broken disk, or was closed by whoever started us."""


class Command(NamedTuple):
    module: str
    summary: str


GROUPS: tuple[tuple[str, dict[str, Command]], ...] = (
    (
        "Brokers",
        {
            "dev": Command(
                "raftlog.cli.dev", "start brokers for development, on free ports, in a throw-away directory"
            ),
            "broker": Command("raftlog.cli.broker", "run one broker until it is told to stop"),
            "demo": Command("raftlog.cli.demo", "real data through brokers whose leaders are killed, and a count"),
        },
    ),
    (
        "Data",
        {
            "produce": Command("raftlog.cli.produce", "send lines of standard input, or of a file, to a topic"),
            "consume": Command("raftlog.cli.consume", "print the records of topics"),
            "pipeline": Command("raftlog.cli.pipeline", "run jobs on Spark that read and write topics, exactly once"),
        },
    ),
    (
        "Administration",
        {
            "topic": Command("raftlog.cli.topic", "create, list, describe, alter or delete topics"),
            "group": Command("raftlog.cli.group", "list, describe, reset or delete consumer groups"),
            "txn": Command("raftlog.cli.txn", "list, describe or end transactions, find those that hang"),
            "config": Command("raftlog.cli.config", "list or set the settings of a topic or a broker"),
        },
    ),
    (
        "Correctness",
        {
            "check": Command("raftlog.cli.check", "say whether a recorded history is linearizable, and why not"),
            "verify": Command("raftlog.cli.verify", "real clients, faults, and whether what was promised was kept"),
            "report": Command("raftlog.cli.report", "tell what went wrong in a run of `raftlog verify`, when and why"),
            "fault": Command("raftlog.cli.fault", "make things go wrong in the brokers of `raftlog dev --faults`"),
        },
    ),
    (
        "Clusters",
        {
            "cluster": Command("raftlog.cli.cluster", "show how brokers and partitions are, forget a broker"),
            "doctor": Command("raftlog.cli.doctor", "look for what makes clusters fail, and say what to do"),
            "quorum": Command("raftlog.cli.quorum", "show and change who votes on the metadata"),
            "partition": Command("raftlog.cli.partition", "move partitions between brokers, elect leaders"),
        },
    ),
    ("Shell", {"completion": Command("raftlog.cli.completion", "make a shell complete commands and options")}),
)
COMMANDS: dict[str, Command] = {name: command for _, commands in GROUPS for name, command in commands.items()}


def help_text() -> str:
    lines = ["usage: raftlog COMMAND [OPTION ...]", "", "A Kafka-compatible distributed log."]
    for title, commands in GROUPS:
        lines += ["", f"{title}:"]
        lines += [f"  {name:<10} {command.summary}" for name, command in commands.items()]
    lines += [
        "",
        "`raftlog COMMAND --help` explains a command. Clients find the broker at 127.0.0.1:9092 unless",
        "-b HOST:PORT or the environment's RAFTLOG_BOOTSTRAP_SERVERS says otherwise.",
        "",
        "Try:",
        "  raftlog dev --port 9092 &",
        "  echo 'hello' | raftlog produce greetings",
        "  raftlog consume greetings -e",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are on standard error, with what to do next."""
    arguments = sys.argv[1:] if arguments is None else arguments
    replace_closed_streams()
    escape_what_has_no_sign()
    try:
        code = run_or_leave(arguments)
        sys.stdout.flush()
        return code
    except CommandFailed as failure:
        return failed(failure, arguments)
    except BrokenPipeError:
        # Only standard output raises this here: the client wraps what its sockets raise.
        discard_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in CANNOT_BE_WRITTEN or error.filename is not None:
            raise
        discard_output()
        return failed(CommandFailed(f"cannot write the output: {os.strerror(error.errno).lower()}"), arguments)
    except KeyboardInterrupt:
        if asks_for_json(arguments):
            failed(CommandFailed("interrupted", code="INTERRUPTED"), arguments)
        return EXIT_INTERRUPTED


def run_or_leave(arguments: list[str]) -> int:
    """The exit code, also of what leaves at once: argparse, after --help."""
    try:
        return run(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0


def failed(failure: CommandFailed, arguments: list[str]) -> int:
    """Say why, and return the exit code."""
    failure.report(as_json=asks_for_json(arguments))
    return EXIT_USAGE if isinstance(failure, UsageError) else EXIT_FAILED


def asks_for_json(arguments: list[str]) -> bool:
    # `consume` has -J for it, as kcat has; `produce` reads JSON with the same letter.
    return "--json" in arguments or (arguments[:1] == ["consume"] and "-J" in arguments)


def replace_closed_streams() -> None:
    """Put something in the place of a standard stream that was closed before we ran: it fails when it is used, except
    standard error, which swallows what it is told. Left free, its number would go to the first socket or file.
    """
    for name, mode, flags in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_RDWR)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


def escape_what_has_no_sign() -> None:
    """Names of groups may have any letters, and standard output may be of an encoding that lacks them."""
    from io import TextIOWrapper

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Python would flush standard output and fail once more while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: list[str]) -> int:
    if COMPLETING in os.environ:
        complete()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        if len(arguments) > 1 and arguments[1] in COMMANDS:
            return run([arguments[1], "--help"])
        print(help_text())
        return 0 if arguments else EXIT_USAGE
    name, *rest = arguments
    if name in ("-V", "--version", "version"):
        print(f"raftlog {__version__}")
        return 0
    if name.startswith("-"):
        raise UsageError(f"option {name} stands before the command", "write it behind: raftlog COMMAND [OPTION ...]")
    if name not in COMMANDS:
        raise unknown_command(name)
    return run_command(name, rest)


def complete() -> NoReturn:
    """A shell asks what may stand where its cursor is."""
    from raftlog.cli import completion

    completion.complete(
        {name: command.module for name, command in COMMANDS.items()},
        {name: command.summary for name, command in COMMANDS.items()},
    )


def run_command(name: str, rest: list[str]) -> int:
    from importlib import import_module

    code: int = import_module(COMMANDS[name].module).run(rest)
    return code


def unknown_command(name: str) -> UsageError:
    close = nearest(name, [*COMMANDS, "help", "version"])
    hint = f"did you mean `raftlog {close}`?" if close else "`raftlog --help` lists the commands"
    return UsageError(f"there is no command {name!r}", hint)
