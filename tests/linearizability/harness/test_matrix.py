"""The table of the standard matrix, from the folders of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftlog.linearizability.harness.matrix import Cell, cells, fits, table, write_table


def done(matrix: Path, cell: Cell, status: str, *anomalies: str) -> None:
    folder = cell.folder(matrix)
    folder.mkdir(parents=True)
    found = [{"name": name, "judgement": "error"} for name in anomalies]
    verdict = {"status": status, "checks": [{"operation_count": 1000, "anomalies": found}]}
    (folder / "run.json").write_text(json.dumps({"status": "done", "seconds": 60, "verdict": verdict}))


def test_the_table_has_what_was_run_and_what_cannot_be(tmp_path: Path) -> None:
    done(tmp_path, Cell("append", "kill", 3), "valid")
    done(tmp_path, Cell("append", "isr-of-one", 3), "invalid", "lost-write", "unseen")
    text = table(tmp_path, ["append", "topics"], ["kill", "isr-of-one", "delayed-end-txn"], [3, 5])
    assert "3 brokers, 2 runs of 2 minutes together, 2,000 operations" in text and "5 brokers" not in text
    assert "| kill | valid |  |" in text
    assert "| isr-of-one | **invalid**: lost-write | - |" in text
    assert "| delayed-end-txn | - | - |" in text


def test_the_table_is_written_between_its_marks(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- matrix -->\nold\n<!-- /matrix -->\nafter\n")
    write_table(document, "new\n")
    assert document.read_text() == "before\n<!-- matrix -->\nnew\n<!-- /matrix -->\nafter\n"
    document.write_text("no marks")
    with pytest.raises(ValueError, match="matrix"):
        write_table(document, "new\n")


def test_each_workload_meets_each_fault_that_it_can() -> None:
    found = list(cells(["append", "bank"], ["kill", "zombie-writer"], [3, 5]))
    assert Cell("bank", "zombie-writer", 5) in found and Cell("append", "zombie-writer", 3) not in found
    assert len(found) == len(set(found)) == 6
    assert fits("topics", "everything") and not fits("topics", "bit-flip")
