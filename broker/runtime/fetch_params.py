"""How much a fetch asks for, and how long it may wait: Kafka's FetchParams."""

from __future__ import annotations

from typing import NamedTuple


class FetchParams(NamedTuple):
    """How much, how long, and what may be seen. Bytes and seconds; the first batch comes whole even above the limit."""

    wait_seconds: float
    bytes_min: int
    bytes_max: int
    read_committed: bool
    whole_answer: bool  # answer about every partition, not only those with news
