"""The report of a run with faults: from the run's folder to one self-contained HTML page, and to plain text.

    run = read_run("runs/3")                       # the files that docs/VERIFICATION.md names
    account = account_of(run)                      # judged, and what happened around each anomaly
    print(render_text([account]))
    write_page(stream, [account])                  # one run, or two side by side

The page asks for nothing and stands on the parts of the checker's page (`checker/page`): its colours, its columns of
operations, and its protection from hostile histories. It draws its own curves: most rows are lanes (faults, leaders,
in-sync replicas, clients), which libraries for plots do not have, and all share one axis.
"""

from __future__ import annotations

from raftlog.linearizability.report.account import Account, account_of, kafka_words
from raftlog.linearizability.report.folder import read_run
from raftlog.linearizability.report.page import write_page
from raftlog.linearizability.report.run import Run, RunError
from raftlog.linearizability.report.text import render_text

__all__ = ["Account", "Run", "RunError", "account_of", "kafka_words", "read_run", "render_text", "write_page"]
