"""The Kafka analysis: what a history of sends, polls, transactions, commits and metadata reads says about a service."""

from raftlog.linearizability.checker.kafka.catalogue import CATALOGUE, Definition, Severity
from raftlog.linearizability.checker.kafka.check import analyze, check_kafka
from raftlog.linearizability.checker.kafka.options import KafkaOptions
from raftlog.linearizability.checker.kafka.report.findings import Judgement
from raftlog.linearizability.checker.kafka.report.page import page_report
from raftlog.linearizability.checker.kafka.report.report import Anomaly, AnomalyExample, KafkaReport, Measurements

__all__ = [
    "CATALOGUE",
    "Anomaly",
    "AnomalyExample",
    "Definition",
    "Judgement",
    "KafkaOptions",
    "KafkaReport",
    "Measurements",
    "Severity",
    "analyze",
    "check_kafka",
    "page_report",
]
