"""docs/CHECKER_KAFKA.md says what the code does: anomalies, options, functions, and an example that can be read."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from raftlog.linearizability.checker.kafka import CATALOGUE, KafkaOptions, check_kafka
from raftlog.linearizability.checker.kafka.columns.facts import READERS
from raftlog.linearizability.checker.verdict import Status
from tests.paths import ROOT

TEXT = (ROOT / "docs" / "CHECKER_KAFKA.md").read_text()


def table() -> str:
    lines = ["| anomaly | severity | definition | an error |", "| --- | --- | --- | --- |"]
    lines += [f"| `{one.name}` | {one.severity.value} | {one.text} | {one.error_when} |" for one in CATALOGUE.values()]
    return "\n".join(lines)


def first_columns(heading: str) -> set[str]:
    """The names in the first column of the table with this heading."""
    rows = TEXT[TEXT.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_table_of_anomalies_is_the_catalogue() -> None:
    assert table() in TEXT, f"docs/CHECKER_KAFKA.md should hold:\n{table()}"


def test_every_option_is_explained() -> None:
    assert first_columns("| option | `raftlog check` |") == {field.name for field in dataclasses.fields(KafkaOptions)}


def test_every_function_is_explained() -> None:
    known = {"send", "poll", "txn", *READERS} - {"debug-topic-partitions"}
    assert first_columns("| function | input | output |") == known


def test_the_example_is_a_history(tmp_path: Path) -> None:
    found = re.search(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    path = tmp_path / "history.jsonl"
    path.write_text(found.group(1))
    report = check_kafka(path)
    assert (report.status, report.operation_count) == (Status.VALID, 2)
    assert report.annotations[0].label == "kill broker 2"
