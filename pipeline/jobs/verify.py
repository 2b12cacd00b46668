"""verify: the checker over a history that is too large for one process, key by key; also `raftlog check --spark`."""

from __future__ import annotations

import argparse
from typing import Any

from raftlog.cli.arguments import Parser, positive_seconds
from raftlog.cli.failure import CommandFailed, UsageError, nearest
from raftlog.linearizability.checker.history import History, HistoryError
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.catalogue import MODELS
from raftlog.linearizability.checker.verdict import Invalid, Status, Unknown, Verdict
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.running import Say, Summary
from raftlog.pipeline.verify.distributed import Budget, check_on_spark

NAME = "verify"
SUMMARY = "the linearizability checker over a history that is too large for one process, key by key"


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, "raftlog pipeline run verify history.jsonl --model register", brokers=False)
    made.add_argument("file", metavar="FILE", help="the history in JSON Lines, where every worker can read it")
    made.add_argument("--model", required=True, help=f"one of {', '.join(MODELS)}")
    made.add_argument("--budget-seconds", type=positive_seconds, metavar="SECONDS", help="time (default: no limit)")
    return made


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    if options.model not in MODELS:
        close = nearest(options.model, MODELS)
        raise UsageError(f"there is no model {options.model!r}", f"did you mean {close}?" if close else None)
    try:
        verdict, _ = check_on_spark(spark, options.file, MODELS[options.model](), Budget(options.budget_seconds), say)
    except HistoryError as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{options.file}: {error.strerror}") from None
    summary = Summary(NAME, ok=verdict.status is Status.VALID)
    summary.add("operations", verdict.operation_count, operations=verdict.operation_count)
    bad = sum(part.status is Status.INVALID for part in verdict.parts)
    summary.add("parts", f"{len(verdict.parts):,}, {bad:,} of them invalid", parts=len(verdict.parts), invalid=bad)
    summary.add("seconds", f"{verdict.seconds:.1f}", seconds=round(verdict.seconds, 3))
    summary.add("verdict", verdict.status.value, status=verdict.status.value)
    if isinstance(verdict, Invalid):
        summary.add("because", verdict.witness.words, words=verdict.witness.words)
    if isinstance(verdict, Unknown):
        summary.add("because", verdict.reason, reason=verdict.reason)
    return summary


def on_master(
    master: str, path: str, model: Model[Any], budget: tuple[float | None, float]
) -> tuple[Verdict, History]:
    """The verdict, in a session of its own. `budget`: seconds, and megabytes of each task."""
    options = argparse.Namespace(master=master, conf=[])
    spark = running.session(NAME, options)
    try:
        return check_on_spark(spark, path, model, Budget(*budget), running.to_stderr)
    finally:
        spark.stop()


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
