"""`raftlog pipeline`: jobs on Spark that read and write topics."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from raftlog.cli.arguments import Verbs
from raftlog.cli.failure import CommandFailed, UsageError, nearest

VERBS = Verbs("pipeline", "Jobs on Spark that read and write topics, exactly once. docs/PIPELINE.md tells about each.")
VERBS.add("run", "run a job: `raftlog pipeline run load --help`")
VERBS.add("list", "name the jobs")
VERBS.add("path", "print the file of a job, for spark-submit")
VERBS.add("demo", "real flights through the jobs, while a broker and an executor are killed, and a count")

JOBS = ("feed", "load", "enrich", "delays", "audit", "verify", "mirror")


def run(arguments: list[str]) -> int:
    verb, rest = VERBS.choose(arguments)
    if verb == "list":
        for name in JOBS:
            print(f"{name:<8} {_module(name).SUMMARY}")
        return 0
    if verb == "demo":
        from raftlog.pipeline.demo import main

        return main.main(rest)
    if not rest or rest[0] in ("-h", "--help"):
        print(f"usage: raftlog pipeline {verb} JOB\n\nThe jobs are {', '.join(JOBS)}.")
        return 0 if rest else 2
    name, *given = rest
    if name not in JOBS:
        close = nearest(name, JOBS)
        hint = f"did you mean {close}?" if close else f"it is one of {', '.join(JOBS)}"
        raise UsageError(f"there is no job {name!r}", hint)
    if verb == "path":
        print(_module(name).__file__)
        return 0
    done: int = _module(name).main(given)
    return done


def _module(name: str) -> Any:
    try:
        return import_module(f"raftlog.pipeline.jobs.{name}")
    except ImportError as error:
        raise CommandFailed(f"the job {name} needs {error.name}", "pip install 'raftlog[pipeline]'") from error
