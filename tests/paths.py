"""Where things lie: the tree, and the peers and reference data that may lie beside it; and how to read it."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
KAFKA = SHARED / "peers" / "kafka" / "kafka"
"""Starts Apache Kafka and its tools; see its README."""
KAFKA_JARS = SHARED / "peers" / "kafka" / "libs"
SPARK_JARS = SHARED / "peers" / "spark-kafka"
"""Spark's own Kafka connector."""
KAFKA_PROTOCOL = SHARED / "kafka-protocol"
HISTORIES = SHARED / "histories"


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a source file, which several tests look at."""
    # Three quarters of the time would be the collector's, which walks all trees so far while the next one grows.
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()
