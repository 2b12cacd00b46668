"""The audit trail: producers tell, by topic and window of time, how many records they have written.

After the audit of Kafka's first paper (Kreps, Narkhede, Rao: "Kafka: a Distributed Messaging System for Log
Processing", NetDB 2011). A producer that writes rows and trail in one transaction tells no count for rows that are not
there, and leaves none out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

TRAIL = "audit-trail"
"""The topic, unless another one is named."""
WINDOW_MS = 3_600_000
SCHEMA = "producer string, topic string, window bigint, window_ms bigint, count bigint"
"""What the value of a record is, as JSON: `count` records in the window that begins at `window` (ms since 1970)."""


def trail(producer: str, topic: str, timestamps: pa.Array, window_ms: int = WINDOW_MS) -> pa.Table:
    """Records for the trail: how many of these timestamps (ms) lie in which window. Counts of one window add up."""
    begins, counts = np.unique(np.asarray(timestamps) // window_ms * window_ms, return_counts=True)
    values = [
        f'{{"producer":"{producer}","topic":"{topic}","window":{begin},"window_ms":{window_ms},"count":{count}}}'
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
    ]
    return pa.table({"key": pa.array([topic] * len(values)), "value": pa.array(values, pa.string())})
