"""What has gone through a broker, counted as it goes: additions alone, for this is on the path of every batch."""

from __future__ import annotations


class Traffic:
    """Of one topic, or of several together. Bytes are those of record batches as they lie on the disk."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "replication_bytes_in", "replication_bytes_out")

    def __init__(self) -> None:
        self.bytes_in = self.records_in = self.bytes_out = 0
        # To followers, and from leaders.
        self.replication_bytes_in = self.replication_bytes_out = 0

    def add(self, other: Traffic) -> None:
        """Count what another has counted, too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class IsrChanges:
    """How often followers left the ISRs of what this broker leads, and came back."""

    __slots__ = ("expands", "shrinks")

    def __init__(self) -> None:
        self.shrinks = self.expands = 0
