"""`raftlog report`: what went wrong in a run of `raftlog verify`, when, and under which faults."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.cli.arguments import Parser, positive_seconds
from raftlog.cli.check import EXIT_PAGE, EXIT_UNREADABLE, EXIT_USAGE, Progress, encodable, megabytes
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.cli.kafka_history import add_kafka_options, kafka_options
from raftlog.cli.output import NO_PAGE, write_page

if TYPE_CHECKING:
    from raftlog.linearizability.checker.formats.lines import Source
    from raftlog.linearizability.checker.history import History
    from raftlog.linearizability.report import Account, Run
    from raftlog.linearizability.resources import Allowance

_WIDTH_MAX = 200

EPILOG = """\
A folder is one that `raftlog verify` left (docs/VERIFICATION.md says what is in it). Two are put side by side on one
axis of time. The verdict is the run's own; this command's exit code says whether the report was made.

Exit codes: 0 made, 3 a folder cannot be read, 64 the command line is wrong, 73 the page cannot be written.

example:
  raftlog report runs/3 --html report.html"""


def run(arguments: list[str]) -> int:
    try:
        return _report(_parser().parse(arguments))
    except UsageError as error:
        error.report(as_json=False)
        return EXIT_USAGE
    except CommandFailed as failure:
        failure.report(as_json=False)
        return EXIT_PAGE if failure.code == NO_PAGE else EXIT_UNREADABLE


def _parser() -> Parser:
    parser = Parser(prog="raftlog report", description="Tell what happened in a run with faults.", epilog=EPILOG)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="a run's folder, or two")
    parser.add_argument("--html", metavar="FILE", help="write one page that needs nothing else, for a browser")
    parser.add_argument(
        "--budget-seconds", type=positive_seconds, default=300.0, metavar="SECONDS", help="time (default %(default)g)"
    )
    parser.add_argument(
        "--budget-mb", type=megabytes, default=2000.0, metavar="MB", help="memory, with reading (default %(default)g)"
    )
    return parser


def _report(options: argparse.Namespace) -> int:
    from raftlog.linearizability.report import render_text

    if len(options.folders) > 2:
        raise UsageError(f"{len(options.folders)} folders were given", "a report is of one run, or of two side by side")
    if options.html and not Path(options.html).absolute().parent.is_dir():
        raise UsageError(f"there is no directory for the page {options.html}")
    accounts = accounts_of(options.folders, options.budget_seconds, options.budget_mb)
    width = max(60, min(_WIDTH_MAX, shutil.get_terminal_size((100, 24)).columns))
    sys.stdout.write(encodable(render_text(accounts, width=width)))
    if options.html:
        write_report(options.html, accounts)
    return 0


def accounts_of(folders: list[str], seconds: float | None, mb: float | None) -> list[Account]:
    """The runs of these folders, judged. Raises CommandFailed for what is no run, and for one that is too large."""
    from raftlog.linearizability.checker.budget import OutOfBudget
    from raftlog.linearizability.checker.history import HistoryError
    from raftlog.linearizability.files import read_file
    from raftlog.linearizability.report import RunError, read_run
    from raftlog.linearizability.resources import Allowance

    progress = Progress()
    allowance = Allowance(seconds, mb)

    def read(source: Source) -> History:
        return read_file(source, "jsonl", allowance, progress.lines)

    try:
        runs = [read_run(each, read) for each in folders]
        return [_account(each, allowance) for each in runs]
    except OutOfBudget as out:
        hint = "allow more with --budget-mb or --budget-seconds"
        raise CommandFailed(f"the report needs more: {out.reason}", hint, code="BUDGET") from None
    except (RunError, HistoryError) as error:
        raise CommandFailed(str(error), code="UNREADABLE") from None
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}", code="UNREADABLE") from None
    finally:
        progress.end()


def _account(run: Run, allowance: Allowance) -> Account:
    """Judged by the options with which the run was judged when it ended."""
    from raftlog.linearizability.report import account_of, kafka_words

    parser = Parser(prog="raftlog check", description="The options of a run's check.")
    parser.add_argument("--model")
    add_kafka_options(parser)
    try:
        options = kafka_options(parser.parse(kafka_words(run)), allowance.left())
    except UsageError as error:
        raise CommandFailed(f"{run.name}/run.json: options of the check: {error.message}", code="UNREADABLE") from None
    return account_of(run, options)


def write_report(path: str, accounts: list[Account]) -> None:
    """Write the page. Raises CommandFailed when it cannot be written."""
    from raftlog.linearizability import report

    write_page(path, lambda stream: report.write_page(stream, accounts))
