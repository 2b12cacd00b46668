"""Where a coordinator keeps a key."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import coordinator_partition, java_hash


def test_groups_are_placed_as_kafka_places_them() -> None:
    """Seen in a Kafka 4.3.1 with fifty partitions."""
    placed = {name: coordinator_partition(name, 50) for name in ("g1", "simple", "", "neg", "nm", "j1", "j2", "ret")}
    assert placed == {"g1": 42, "simple": 26, "": 0, "neg": 44, "nm": 19, "j1": 35, "j2": 36, "ret": 1}
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert java_hash("äöü😀") == java_hash("äöü\ud83d\ude00")
