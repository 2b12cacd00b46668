"""raftlog: a Kafka-compatible distributed log in Python that coordinates itself."""

__version__ = "0.1.0"
