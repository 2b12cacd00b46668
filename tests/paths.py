"""Where things lie: the tree, and the peers and reference data that may lie beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
KAFKA = SHARED / "peers" / "kafka" / "kafka"
"""Starts Apache Kafka and its tools; see its README."""
KAFKA_JARS = SHARED / "peers" / "kafka" / "libs"
KAFKA_PROTOCOL = SHARED / "kafka-protocol"
HISTORIES = SHARED / "histories"
