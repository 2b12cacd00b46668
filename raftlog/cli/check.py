"""`raftlog check`: a recorded history in, a verdict and the reason out."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftlog.cli.arguments import Parser, add_json, positive, positive_seconds
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.cli.kafka_history import add_kafka_options, kafka_options, refuse_kafka_options
from raftlog.cli.output import NO_PAGE, notice, print_json, write_page

if TYPE_CHECKING:
    from raftlog.linearizability.checker.history import History
    from raftlog.linearizability.checker.kafka import KafkaReport
    from raftlog.linearizability.checker.model import Model
    from raftlog.linearizability.checker.page.report import Report
    from raftlog.linearizability.checker.verdict import Verdict
    from raftlog.linearizability.resources import Allowance

EXIT_CODES = {"valid": 0, "invalid": 1, "unknown": 2}
EXIT_UNREADABLE = 3
EXIT_USAGE = 64  # EX_USAGE: 2 says that nobody knows whether the history is valid
EXIT_BROKEN = 70  # EX_SOFTWARE: Python's own 1 would say that the history is invalid
EXIT_PAGE = 73  # EX_CANTCREAT: the verdict is printed, the page is not written
_PROGRESS_AFTER_SECONDS = 1.0
_LINE_LIMIT = 200
_PAGE_BYTES = 450  # of an operation in the columns of the page

EPILOG = """\
Models: register, cas-register, key-value, log, queue, set, counter, lock, offsets, kafka, or your own:
package.module:name of a Model class, or of an object of one.

Exit codes: 0 valid, 1 invalid, 2 unknown, 3 the file cannot be read, 64 the command line is wrong,
70 the model or the checker broke, 73 the page cannot be written.

example:
  raftlog check history.jsonl --model log --html report.html"""


def run(arguments: list[str]) -> int:
    try:
        options = _parser().parse(arguments)
        return _check(options)
    except UsageError as error:
        error.report(as_json="--json" in arguments)
        return EXIT_USAGE
    except CommandFailed as failure:
        failure.report(as_json="--json" in arguments)
        return EXIT_PAGE if failure.code == NO_PAGE else EXIT_UNREADABLE
    except BrokenPipeError:
        raise
    except Exception as bug:  # noqa: BLE001 - a model of somebody's own may raise anything, and it is no verdict
        traceback.print_exc()
        CommandFailed(f"no verdict: {type(bug).__name__}: {bug}", code="BROKEN").report(as_json="--json" in arguments)
        return EXIT_BROKEN


def _parser() -> Parser:
    parser = Parser(prog="raftlog check", description="Check a recorded history.", epilog=EPILOG)
    parser.add_argument("file", metavar="FILE", help="the history")
    parser.add_argument("--model", required=True, help="what the service promised to be")
    parser.add_argument("--format", default="jsonl", help="jsonl (default), jepsen or porcupine")
    parser.add_argument(
        "--budget-seconds", type=positive_seconds, default=60.0, metavar="SECONDS", help="time (default %(default)g)"
    )
    parser.add_argument(
        "--budget-mb", type=megabytes, default=500.0, metavar="MB", help="memory, with reading (default %(default)g)"
    )
    parser.add_argument(
        "--online", action="store_true", help="judge while reading (jsonl): memory for what is open, not for the file"
    )
    parser.add_argument(
        "--spark", metavar="MASTER", help="check on Spark, such as local[4] or spark://HOST:7077 (jsonl, by key)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page that shows the history and the verdict")
    add_json(parser, "print the verdict as one line of JSON")
    add_kafka_options(parser)
    return parser


def megabytes(text: str) -> float:
    """A number of megabytes above zero, of the command line."""
    return positive(text, "megabytes")


def _check(options: argparse.Namespace) -> int:
    from raftlog.linearizability.checker.history import HistoryError
    from raftlog.linearizability.files import READERS

    if options.html and not Path(options.html).absolute().parent.is_dir():
        raise UsageError(f"there is no directory for the page {options.html}")
    if options.online and options.spark:
        raise UsageError("--online and --spark exclude each other", "a stream is read in order, by one process")
    if options.format not in READERS:
        raise UsageError(f"there is no format {options.format!r}", f"it is one of {', '.join(READERS)}")
    progress = Progress()
    try:
        if options.model == "kafka":
            if options.spark:
                raise UsageError("--model kafka is not checked by key", "leave --spark out: it is read as a stream")
            return _check_kafka(options, progress)
        refuse_kafka_options(options)
        return _check_model(options, _model(options), progress)
    except HistoryError as error:
        raise CommandFailed(str(error), code="UNREADABLE") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandFailed(f"{error.filename or options.file}: {error.strerror}", code="UNREADABLE") from None
    finally:
        progress.end()


def _model(options: argparse.Namespace) -> Model[Any]:
    from raftlog.linearizability.checker.model import Model
    from raftlog.linearizability.checker.models.catalogue import MODELS
    from raftlog.linearizability.checker.models.key_value import KeyValue

    name: str = options.model
    if name == "key-value" and options.format == "porcupine":
        return KeyValue(absent="")
    if name in MODELS:
        return MODELS[name]()
    module_name, colon, attribute = name.partition(":")
    if not colon:
        close = nearest(name, [*MODELS, "kafka"])
        hint = f"did you mean {close}?" if close else f"it is one of {', '.join(MODELS)}, kafka, or package.module:name"
        raise UsageError(f"there is no model {name!r}", hint)
    from importlib import import_module

    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module_name), attribute)
        model = found() if isinstance(found, type) else found
    except Exception as error:  # noqa: BLE001 - importing somebody's own module may raise anything
        raise UsageError(f"the model {name!r} cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(model, Model):
        raise UsageError(f"{name!r} is no Model", "derive it from raftlog.linearizability.checker.model.Model")
    return model


def _check_model(options: argparse.Namespace, model: Model[Any], progress: Progress) -> int:
    from raftlog.linearizability.checker.budget import OutOfBudget
    from raftlog.linearizability.checker.check import check
    from raftlog.linearizability.checker.history import History
    from raftlog.linearizability.checker.page import report_of
    from raftlog.linearizability.checker.page.plain import plain_verdict
    from raftlog.linearizability.checker.page.report import of_the_witness
    from raftlog.linearizability.checker.verdict import Unknown
    from raftlog.linearizability.files import read_file
    from raftlog.linearizability.resources import Allowance

    allowance = Allowance(options.budget_seconds, options.budget_mb)
    history: History | None = None
    verdict: Verdict
    try:
        if options.online:
            verdict = _check_online(options, model, allowance, progress)
        elif options.spark:
            verdict, history = _check_on_spark(options, model)
        else:
            history = read_file(options.file, options.format, allowance, progress.lines)
            verdict = check(history, model, budget=allowance.left(progress.seconds), progress=progress.parts)
    except OutOfBudget as out:
        reason = f"The budget ran out: {out.reason}."
        verdict = Unknown(model, limit=out.limit, reason=reason)
        history = History(source=options.file)
    progress.end()
    report = report_of(verdict, history, title=options.file)
    _print(options, report, lambda: plain_verdict(verdict, options.file))
    if options.html:
        try:
            if options.spark:
                raise OutOfBudget("memory", "the others were checked by other processes")
            allowance.expect(_page_bytes(options, report.history), "the page")
        except OutOfBudget as out:
            notice(f"the page has the operations of the witness only: {out.reason}")
            report = of_the_witness(report)
        _write_page(options.html, report)
    return EXIT_CODES[verdict.status.value]


def _check_online(options: argparse.Namespace, model: Model[Any], allowance: Allowance, progress: Progress) -> Verdict:
    from raftlog.linearizability.checker.formats.jsonl import JsonLinesReader
    from raftlog.linearizability.checker.online import OnlineCheck

    if options.format != "jsonl":
        raise UsageError("--online reads jsonl only")
    reader = JsonLinesReader(options.file, progress=progress.lines, weigh=allowance.expect)
    online = OnlineCheck(model, budget=allowance.left(), source=options.file)
    online.extend(reader.events())
    return online.finish()


def _check_on_spark(options: argparse.Namespace, model: Model[Any]) -> tuple[Verdict, History]:
    from raftlog.pipeline.jobs import verify

    if options.format != "jsonl":
        raise UsageError("--spark reads jsonl only")
    return verify.on_master(options.spark, options.file, model, (options.budget_seconds, options.budget_mb))


def _check_kafka(options: argparse.Namespace, progress: Progress) -> int:
    from raftlog.linearizability.checker.kafka import check_kafka
    from raftlog.linearizability.resources import Allowance

    if options.format != "jsonl":
        raise UsageError("--model kafka reads jsonl only")
    if options.online:
        raise UsageError("--online has no meaning with --model kafka", "it reads a history as a stream in any case")
    allowance = Allowance(options.budget_seconds, options.budget_mb)
    report = check_kafka(options.file, kafka_options(options, allowance.left()), progress=progress.lines)
    progress.end()
    if options.json:
        print_json(report.to_json())
    else:
        print(encodable(report.text()))
    if options.html:
        _write_page(options.html, _kafka_page(options, report, allowance, progress))
    return EXIT_CODES[report.status.value]


def _kafka_page(options: argparse.Namespace, report: KafkaReport, allowance: Allowance, progress: Progress) -> Report:
    """With all operations of the file, which is read again, or with those of the examples where that costs too much."""
    from raftlog.linearizability.checker.budget import OutOfBudget
    from raftlog.linearizability.checker.kafka.report.page import page_report
    from raftlog.linearizability.files import read_file

    history: History | None = None
    try:
        read = read_file(options.file, "jsonl", allowance, progress.lines)
        allowance.expect(_page_bytes(options, read), "the page")
        history = read
    except OutOfBudget as out:
        notice(f"the page has the operations of the examples only: {out.reason}")
    progress.end()
    return page_report(report, history, title=options.file)


def _print(options: argparse.Namespace, report: Report, plain: Callable[[], dict[str, Any]]) -> None:
    from raftlog.linearizability.checker.page import render_text

    if options.json:
        print_json(plain())
    else:
        width = max(60, min(_LINE_LIMIT, shutil.get_terminal_size((100, 24)).columns))
        ascii_only = encodable("├─┤╌✕…µ·") != "├─┤╌✕…µ·"
        print(encodable(render_text(report, width=width, ascii_only=ascii_only)), end="")


def _page_bytes(options: argparse.Namespace, history: History) -> int:
    """About how much memory it takes to write the page of a history: its columns, and its texts more than once."""
    return _PAGE_BYTES * len(history) + 2 * Path(options.file).stat().st_size


def _write_page(path: str, report: Report) -> None:
    from raftlog.linearizability.checker.page import write_report

    write_page(path, lambda stream: write_report(report, stream))


def encodable(text: str) -> str:
    """The text with escapes where standard output has no sign for it."""
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Progress:
    """How far a long check is, on one line of standard error that is written over; only for a person who waits."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._next = time.monotonic() + _PROGRESS_AFTER_SECONDS
        self._written = False
        self._settled = ""

    def lines(self, count: int) -> None:
        """So many lines were read."""
        self._say(f"{count:,} lines read")

    def parts(self, settled: int, count: int) -> None:
        """So many parts of all have a verdict."""
        self._settled = f", {settled:,} of {count:,} parts settled" if count > 1 else ""

    def seconds(self, count: float) -> None:
        """The check is so old."""
        self._say(f"checking for {count:.0f} s{self._settled}")

    def end(self) -> None:
        """Take the line away."""
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + 0.2
        self._written = True
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
