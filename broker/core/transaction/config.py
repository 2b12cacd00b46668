"""The limits of transactions, from the broker's settings."""

from __future__ import annotations

from typing import NamedTuple


class TransactionConfig(NamedTuple):
    """All in ms."""

    max_timeout_ms: int
    id_expiration_ms: int
    abort_interval_ms: int
    """How often transactions are looked at for their time-out."""
    expiry_interval_ms: int
    """How often transactional ids are looked at for expiry."""
