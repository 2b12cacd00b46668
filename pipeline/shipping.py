"""raftlog for workers that do not have it: its modules in one archive, which Spark hands to each of them."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import raftlog

PARTS = ("wire", "client", "metadata", "pipeline", "linearizability")
"""What tasks may need; a broker they do not."""


def ship(spark: Any) -> None:
    """Give raftlog's modules to all workers of a session, of a cluster or of Spark Connect, before anything is run.

    The packages that raftlog needs (PyArrow, NumPy, crc32c, …) have to be there already: they are no pure Python.
    """
    path = archive(Path(tempfile.mkdtemp(prefix="raftlog-")))
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect has none, and says so in an exception of its own
        spark.addArtifacts(str(path), pyfile=True)
    else:
        context.addPyFile(str(path))


def archive(directory: Path) -> Path:
    """A zip file of the modules, as they lie here. Always the same name: Spark hands it on once."""
    root = Path(raftlog.__file__).parent
    path = directory / "raftlog.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(root / "__init__.py", "raftlog/__init__.py")
        for part in PARTS:
            folder = (root / part).resolve()  # in a checkout these are links
            for file in sorted(folder.rglob("*.py")):
                packed.write(file, f"raftlog/{part}/{file.relative_to(folder)}")
        # What is imported from beside these parts: a few files of the command line.
        for name in ("cli", "demo"):
            for file in sorted((root / name).glob("*.py")):
                packed.write(file, f"raftlog/{name}/{file.name}")
    return path
