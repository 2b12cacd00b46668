"""The standard matrix: which cells are run, and what is known of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from raftlog.linearizability.harness.matrix import Cell, Matrix, cells, fits
from raftlog.linearizability.harness.results import merged, of_run, read, table, write_table


def run(cell: Cell, status: str, *anomalies: str, began: float = 1.0) -> dict[str, Any]:
    found = [{"name": name, "judgement": "error"} for name in anomalies]
    return {
        "system": cell.system,
        "workload": cell.workload,
        "fault": cell.fault,
        "brokers": cell.brokers,
        "status": "done",
        "seconds": 60.0,
        "seed": 7,
        "began": began,
        "versions": {"raftlog": "1.0"},
        "verdict": {"status": status, "checks": [{"operation_count": 1000, "anomalies": found}]},
    }


def test_the_table_has_what_was_run_and_what_cannot_be() -> None:
    runs = [
        run(Cell("append", "kill", 3), "valid"),
        run(Cell("append", "isr-of-one", 3), "invalid", "lost-write"),
        run(Cell("topics", "kill", 3, "kafka"), "valid"),
    ]
    known = merged([], map(of_run, runs))
    text = table(known, ["append", "topics"], ["kill", "isr-of-one", "delayed-end-txn"], fits)
    assert "raftlog, 3 brokers, 2 runs of 2 minutes together, 2,000 operations" in text and "5 brokers" not in text
    assert "| kill | valid, 1 min |  |" in text
    assert "kafka, 3 brokers, 1 runs of 1 minutes" in text and "| kill |  | valid, 1 min |" in text
    assert text.count("isr-of-one") == 1, "faults that Kafka did not meet have no row"
    assert "| isr-of-one | **invalid**: lost-write, 1 min | - |" in text
    assert "| delayed-end-txn | - | - |" in text


def test_the_table_is_written_between_its_marks(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- matrix -->\nold\n<!-- /matrix -->\nafter\n")
    write_table(document, "new\n")
    assert document.read_text() == "before\n<!-- matrix -->\nnew\n<!-- /matrix -->\nafter\n"
    document.write_text("no marks")
    with pytest.raises(ValueError, match="matrix"):
        write_table(document, "new\n")


def test_a_newer_run_replaces_an_older_one_and_time_is_summed_while_they_agree() -> None:
    cell = Cell("append", "kill", 3)
    valid = [of_run(run(cell, "valid", began=at)) for at in (1.0, 2.0)]
    (both,) = merged(merged([], valid), valid)
    assert (both.status, both.runs, both.seconds, both.operations) == ("valid", 2, 120.0, 2000)
    (worse,) = merged([both], [of_run(run(cell, "invalid", "lost-write", began=3.0))])
    assert (worse.words, worse.runs) == ("**invalid**: lost-write, 1 min", 1)
    assert merged([worse], valid) == [worse], "older runs change nothing"


def test_results_outlive_the_folders_of_their_runs(tmp_path: Path) -> None:
    document, folder = tmp_path / "page.md", tmp_path / "runs"
    document.write_text("<!-- matrix -->\n<!-- /matrix -->\n")
    for number, workload in enumerate(("append", "bank")):
        cell = Cell(workload, "kill", 3)
        cell.folder(folder).mkdir(parents=True)
        (cell.folder(folder) / "run.json").write_text(json.dumps(run(cell, "valid", began=number)))
        Matrix(folder, document, 1.0, []).write()
        shutil.rmtree(folder)
    assert [each.workload for each in read(tmp_path / "verification-matrix.json")] == ["append", "bank"]
    assert "| kill | valid, 1 min |" in document.read_text()


def test_a_cell_that_has_a_run_as_long_is_not_run_again(tmp_path: Path) -> None:
    cell = Cell("append", "kill", 3)
    cell.folder(tmp_path).mkdir()
    (cell.folder(tmp_path) / "run.json").write_text(json.dumps(run(cell, "valid")))
    begun = tmp_path / "begun"
    Matrix(tmp_path, tmp_path / "none.md", 1.0, ["touch", str(begun)]).do(cell)
    assert not begun.exists()
    Matrix(tmp_path, tmp_path / "none.md", 2.0, ["sh", "-c", f"touch {begun}"]).do(cell)
    assert begun.exists() and (tmp_path / "append-kill-3.earlier-1").exists()


def test_each_workload_meets_each_fault_that_it_can() -> None:
    found = list(cells(["append", "bank"], ["kill", "zombie-writer"], [3, 5]))
    assert Cell("bank", "zombie-writer", 5) in found and Cell("append", "zombie-writer", 3) not in found
    assert len(found) == len(set(found)) == 6
    assert fits("topics", "everything") and not fits("topics", "bit-flip") and not fits("topics", "helix")
    assert fits("append", "helix") and not fits("compacted", "helix"), "replicas are compacted each for itself"
